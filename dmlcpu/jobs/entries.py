"""Reading files of jobs: JSON Lines and TOML, each entry with its place."""

import io
import itertools
import json
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from dmlcpu.common.faults import shown
from dmlcpu.errors import DmlError
from dmlcpu.files.remote import is_remote
from dmlcpu.jobs.faults import JobFault, JobsError, Place

PathLike = str | os.PathLike[str]
Jobs = PathLike | Iterable[Mapping[str, Any]]

STDIN = "-"
DEEPEST = 64  # nested lists: as many as a NumPy array has dimensions
_HEADER = re.compile(r"^\s*\[\[\s*job\s*\]\]", re.MULTILINE)


class Listing(NamedTuple):
    """Entries, which are read once, and the folder of relative paths.

    An entry is a job as a file gives it, or a pattern for several: its place, and its members with defaults filled in.
    """

    source: str
    directory: Path
    entries: Iterable[tuple[Place, dict[str, Any]]]


def is_stream(jobs: str | os.PathLike[str]) -> bool:
    """Return whether jobs come from standard input, a pipe or a device. Such a source has no folder for a manifest."""
    path = Path(jobs)
    return jobs == STDIN or (path.exists() and not path.is_file() and not path.is_dir())


def of_this_machine(name: str, path: PathLike | None) -> Path | None:
    """Return the path that an argument gives, if it gives one; a URL is refused."""
    if path is not None and is_remote(path):
        what = "folder" if name == "directory" else "file"
        raise DmlError("run_jobs", name, repr(os.fspath(path)), f"a {what} of this machine")
    return None if path is None else Path(path)


def read_jobs(jobs: Jobs | Listing, directory: PathLike | None) -> Listing:
    """Return the entries of a file, of standard input, or of a program's list; paths are relative to `directory`."""
    directory = of_this_machine("directory", directory)
    if isinstance(jobs, Listing):  # which a command makes of its arguments
        return jobs
    if not isinstance(jobs, str | os.PathLike):
        if not isinstance(jobs, Iterable):
            raise TypeError(f"jobs is {jobs!r}; allowed: a file, or a list of jobs")
        found = ((Place(f"jobs[{number}]"), _as_in_json(job)) for number, job in enumerate(jobs))
        return Listing("jobs", directory or Path(), _with_defaults(found))
    if jobs == STDIN:
        if sys.stdin is None:
            _refuse_file("standard input", "closed", "JSON Lines")
        # A program may have put something else in its place.
        is_usual = isinstance(sys.stdin, io.TextIOWrapper)
        content = sys.stdin.buffer.read() if is_usual else sys.stdin.read().encode()
        lines = _lines(io.BytesIO(content), "standard input", "line ")
        return Listing("standard input", directory or Path(), _with_defaults(lines))
    path = Path(jobs)
    stream = is_stream(path)
    is_toml = path.suffix.lower() == ".toml"
    entries = _with_defaults(_tables(path) if is_toml else _lines(path.open("rb"), str(path), f"{path}:"))
    first = next(entries, None)
    if first is None and not stream:  # a program may have none to write into a pipe
        _refuse_file(str(path), "no jobs", "[[job]], a table for each job" if is_toml else "an object in each line")
    every = itertools.chain([] if first is None else [first], entries)
    return Listing(str(path), directory or (Path() if stream else path.parent), every)


def _refuse_file(source: str, found: str, allowed: str) -> NoReturn:
    raise JobsError(source, [JobFault(source, "", "", found, allowed)])


def _decoded(content: bytes, source: str, offset: int = 0) -> str:
    """Return the text that a file, or a line, is; JSON and TOML are UTF-8, whatever the system's encoding is."""
    try:
        return content.decode("utf-8" if offset else "utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        start = offset + error.start
        _refuse_file(source, f"not UTF-8 at byte {start}", "UTF-8 text")


def _as_in_json(value: Any, deepest: int = 2 + DEEPEST) -> Any:
    """Return a program's value in the types of JSON: paths as text, NumPy's scalars as numbers."""
    if isinstance(value, Mapping) and deepest:
        return {name: _as_in_json(each, deepest - 1) for name, each in value.items()}
    if isinstance(value, list | tuple) and deepest:
        return [_as_in_json(each, deepest - 1) for each in value]
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    return value.item() if isinstance(value, np.generic) else value


def _lines(file: BinaryIO, source: str, before: str) -> Iterator[tuple[Place, Any]]:
    """Yield each line's place and value, None with the error noted if it is no JSON, and close the file."""
    offset, is_json, wrong = 0, False, ""
    decoder = json.JSONDecoder(object_pairs_hook=_no_duplicates)  # json.loads would make one a line
    with file:
        for number, content in enumerate(file, 1):
            line = _decoded(content, source, offset).removesuffix("\n")
            offset += len(content)
            if not line.strip():
                continue
            place, found = Place(f"{before}{number}"), None
            try:
                found, is_json = decoder.decode(line), True
            except (ValueError, RecursionError) as error:  # also of integers that are too long for Python
                reason = str(error)
                if isinstance(error, json.JSONDecodeError):
                    reason = f"{error.msg} (column {error.colno})"
                place.refuse("", reason, "a JSON object")
                wrong = wrong or f"at {place.where} {reason}"
            yield place, found
    if wrong and not is_json:  # one error, not one a line
        _refuse_file(source, wrong, "JSON Lines: an object in each line (TOML is in files named .toml)")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r} twice")
    return members


def _tables(path: Path) -> Iterator[tuple[Place, Any]]:
    """Yield the tables of a TOML file: defaults, then each [[job]]."""
    text = _decoded(path.read_bytes(), str(path))
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        _refuse_file(str(path), str(error), "TOML")
    for name in data:
        if name not in ("defaults", "job"):
            _refuse_file(str(path), f"a table or key {name!r}", "[defaults] and [[job]]")
    tables = data.get("job", [])
    if not isinstance(tables, list):
        _refuse_file(str(path), "[job]", "[[job]], a table for each job")
    starts = [text.count("\n", 0, match.end()) + 1 for match in _HEADER.finditer(text)]
    if "defaults" in data:
        yield Place(str(path)), {"defaults": data["defaults"]}
    for number, table in enumerate(tables):
        # A text that looks like a header, or jobs that are written as a list, leave no line to name.
        yield Place(f"{path}:{starts[number]}" if len(starts) == len(tables) else f"{path}: job {number + 1}"), table


def _with_defaults(found: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the jobs, each with the defaults before it filled in."""
    defaults: dict[str, Any] = {}
    for place, members in found:
        if isinstance(members, dict) and list(members) == ["defaults"]:
            defaults = members["defaults"]
            if _check(defaults, place, "defaults."):
                continue
            members, defaults = None, {}
        if not place.errors:
            _check(members, place)
        yield place, {} if place.errors else _merged(defaults, members)


def _check(members: Any, place: Place, before: str = "") -> bool:
    """Note what does not have the form of a job; return whether everything does."""
    if not isinstance(members, dict):
        place.refuse(before.rstrip("."), shown(members), "an object")
        return False
    for name, value in members.items():
        if name not in _ALLOWED:
            place.refuse(before + name, "unknown", f"{', '.join(_ALLOWED)} (arguments belong in inputs or attrs)")
        elif not _ALLOWED[name][1](value):
            place.refuse(before + name, shown(value), _ALLOWED[name][0])
    return not place.errors


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value))


def _is_output(value: Any) -> bool:
    return _is_text(value) or (_is_object(value) and bool(value) and all(map(_is_text, value.values())))


_ALLOWED = {
    "id": ("text", _is_text),
    "op": ("the name of an operator, a DxDispatch model or a saved index", _is_text),
    "inputs": ("an object: a file, or numbers, for each array", _is_object),
    "attrs": ("an object: a value for each argument", _is_object),
    "output": ("a file, or an object: a file for each of some results", _is_output),
    "glob": ("a pattern", _is_text),
    "files": ("a list of files", lambda value: isinstance(value, list) and all(map(_is_text, value))),
}


def _merged(defaults: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
    """Return a job's members. The defaults complete them; inputs and attrs only if the operator is the default one."""
    merged = {**defaults, **members}
    if merged.get("op") != defaults.get("op", merged.get("op")):
        defaults = {}
    for name in ("inputs", "attrs"):
        given = members.get(name, {})
        elsewhere = members.get("attrs" if name == "inputs" else "inputs", {})
        inherited = {key: value for key, value in defaults.get(name, {}).items() if key not in elsewhere}
        merged[name] = {**inherited, **given}
    return merged
