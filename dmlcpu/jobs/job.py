"""A job: one operation on named files; and how entries become jobs."""

import contextlib
import functools
import glob
import os
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dmlcpu.common.faults import shown
from dmlcpu.common.imports import MissingExtraError
from dmlcpu.common.regions import Tensor
from dmlcpu.common.secrets import without_secrets
from dmlcpu.files import FileError, Identity, identity
from dmlcpu.files.remote import file_and_name, is_remote, local, located, matching, naming, without_query
from dmlcpu.files.web import in_time
from dmlcpu.jobs.entries import DEEPEST, Listing
from dmlcpu.jobs.faults import Place
from dmlcpu.jobs.operations import canonical, is_path, operation_of

_DOTS = re.compile(r"//|/\.|^\.|/$|^$")  # where a path may have another spelling
_MAGIC = re.compile(r"[*?[]")  # where a pattern begins to match names
_NOTHING: Mapping[str, Any] = {}

_NAME = "::"  # between a file and the name of an array in it
_NEEDED = {"op": "the name of an operator, a DxDispatch model or a saved index", "output": "a file to write"}


class FileInput(NamedTuple):
    """An array in a file."""

    path: str
    name: str | None = None  # of an array in a file that holds several
    dtype: str | None = None  # its bits are read as this type

    @property
    def spelled(self) -> str:
        """FILE, or FILE::NAME."""
        return self.path if self.name is None else f"{self.path}{_NAME}{self.name}"

    @property
    def described(self) -> str | dict[str, str]:
        """It as a file of jobs gives it, without secrets."""
        if self.dtype is None:
            return without_secrets(self.spelled)
        return {member: without_secrets(text) for member, text in self._asdict().items() if text is not None}


class Job(NamedTuple):
    """One operation on named files."""

    op: str
    inputs: Mapping[str, FileInput]  # "": the file of a glob, before its argument is known
    attrs: Mapping[str, Any]  # arguments given by value
    output: str | Mapping[str, str]  # a file for all results, or one for each that is wanted

    @property
    def description(self) -> dict[str, Any]:
        """The job in one form, however it was written."""
        return {
            "op": canonical(self.op),
            "inputs": {name: each.described for name, each in sorted(self.inputs.items())},
            "attrs": dict(sorted(self.attrs.items())),
            "output": self.output if isinstance(self.output, str) else dict(sorted(self.output.items())),
        }

    @property
    def is_remote(self) -> bool:
        """Whether an input is read from elsewhere."""
        return any(is_remote(each.path) for each in self.inputs.values())

    @property
    def targets(self) -> dict[str, tuple[str, ...] | None]:
        """The files to write, with the results that go there; None: all."""
        if isinstance(self.output, str):
            return {self.output: None}
        targets: dict[str, tuple[str, ...]] = {}
        for result, path in self.output.items():
            targets[path] = (*targets.get(path, ()), result)
        return dict(targets)


class Work(NamedTuple):
    """What a task reads, writes and needs, as far as the check knows. Tasks on the same shapes share it."""

    shapes: Mapping[str, tuple[int, ...]] = _NOTHING  # of the inputs that are large
    results: Mapping[str, Tensor | None] = _NOTHING  # that are written; None: not known before the run
    kernel: str | None = None
    read_bytes: int = 0
    peak_bytes: int = 0  # of memory, about
    block_bytes: int | None = None  # what blocks may take, if it is run in blocks; None: it is run in one piece
    missing_chunks: Mapping[str, int | None] = _NOTHING  # of inputs that lack any, if counted; None: unknown


@dataclass(slots=True)
class Task(Place):
    """A job on its way from its entry to its outcome, whichever process carries it out. With errors it cannot run."""

    job: Job | None = None  # None: its entry has errors, or its id is another's
    inputs: Mapping[str, Identity] = field(default_factory=dict)  # its files as they were when they were checked
    work: Work = field(default_factory=Work)
    places: Mapping[str, str] = field(default_factory=dict)  # of outputs to which links lead: where these are


def tasks_of(listing: Listing) -> Iterator[Task]:
    """Yield a task for each job, in order, or for an entry with errors."""
    for place, members in listing.entries:
        if "glob" in members or "files" in members:
            yield from _for_each_file(place, members, listing.directory)
        else:
            yield _task(place, members, listing.directory)


def _for_each_file(place: Place, members: dict[str, Any], directory: Path) -> Iterator[Task]:
    """Yield a task for each file of a glob or a list."""
    pattern, paths = members.get("glob"), members.get("files", [])
    if pattern is not None:
        pattern = local(pattern)
        if paths:
            place.refuse("files", "given together with glob", "one of the two")
        paths = _matching(place, pattern, directory)
        if not paths and not place.errors:
            folder = directory.absolute()  # not abspath: `..` after a link leads elsewhere
            place.refuse("glob", f"{pattern!r}, which matches no file", f"a pattern of files in {folder}")
    for member, path in _outputs(members.get("output", {})).items() if len(paths) > 1 else ():
        if "{" not in path:  # it would be the same file for all
            allowed = "a path with {stem} or {path}, which gives each input another file"
            place.refuse(member, f"{path!r} for {len(paths)} inputs", allowed)
    if place.errors:
        yield _task(place, {}, directory)
        return
    # The folder that a pattern starts from.
    base = str(Path(os.path.dirname(_MAGIC.split(naming(pattern))[0]))) if pattern is not None else ""

    def found() -> Iterator[tuple[str, Task]]:
        for number, path in enumerate(paths):
            file = FileInput(path) if pattern is not None else FileInput(*split_name(path, directory))
            yield path, _task(place, members, directory, _placeholders(path, file, base, number), file)

    made: set[str] = set()  # outputs that the pattern matches: they are no inputs
    if pattern is not None and _may_match(members.get("output", ""), base):
        matched = set(map(_normal, paths))
        made.update(target for _, task in found() if task.job for target in task.job.targets if target in matched)
        del matched
    yield from (task for path, task in found() if _normal(path) not in made)


def _matching(place: Place, pattern: str, directory: Path) -> list[str]:
    if not is_remote(pattern):
        return sorted(map(_of_this_machine, glob.glob(pattern, root_dir=directory, recursive=True)))
    try:
        return in_time(lambda: matching(pattern, directory))
    except (OSError, MissingExtraError) as error:
        reason = getattr(error, "strerror", None) or error
        place.refuse("glob", f"{pattern!r}: {reason}", "a pattern of files that can be listed")
        return []


def _outputs(output: str | Mapping[str, str]) -> dict[str, str]:
    """Return the files of an output by the members that name them."""
    return {"output": output} if isinstance(output, str) else {f"output.{name}": path for name, path in output.items()}


def _may_match(output: str | Mapping[str, str], base: str) -> bool:
    """Return whether an output may be in the folder that a pattern starts from, or below."""
    starts = [path.partition("{")[0] for path in _outputs(output).values()]
    return base == "." or any(
        _DOTS.search(f"{start}x") or start.startswith(base) or base.startswith(start) for start in starts
    )


def _placeholders(path: str, file: FileInput, base: str, number: int) -> dict[str, str]:
    """Return the values of `{path}` and the other placeholders; `{folder}` is relative to `base`."""
    parent, name = os.path.split(without_query(naming(file.path)))
    folder = os.path.relpath(parent or ".", base) if base else "."
    stem = os.path.splitext(name)[0]
    names = {"path": path, "name": name, "stem": stem, "array": file.name or ""}
    return {**names, "folder": folder, "number": str(number)}


def split_name(path: str, directory: Path) -> tuple[str, str | None]:
    """Split FILE::NAME; without a name, or if a file has this whole name, the second is None."""
    if _NAME in path and os.path.exists(os.path.join(directory, local(path))):
        return _of_this_machine(path), None
    return file_and_name(path)


def _of_this_machine(path: str) -> str:
    """Return a file's path in a spelling that is no chained URL, whatever the file's name is."""
    return os.path.join(os.curdir, path) if is_remote(path) else path


def _task(
    place: Place,
    members: dict[str, Any],
    directory: Path,
    placeholders: dict[str, str] | None = None,
    file: FileInput | None = None,
) -> Task:
    """Return a task with the job that members describe, or with errors. file: of a pattern, with its placeholders."""
    task = Task(place.where, errors=[*place.errors], options=place.options)
    if task.errors:
        return task
    for name, needed in _NEEDED.items():
        if name not in members:
            task.refuse(name, "missing", needed)
    for name in members["inputs"].keys() & members["attrs"].keys():
        task.refuse(f"attrs.{name}", "also given in inputs", "one of the two")
    if task.errors:
        return task
    fill = functools.partial(_filled, task, placeholders)
    output = members["output"]
    targets = {member: _normal(fill(path, member)) for member, path in _outputs(output).items()}
    task.id = without_secrets(fill(members["id"], "id") if "id" in members else ", ".join(targets.values()))
    inputs, attrs = {}, dict(members["attrs"])
    for name, value in members["inputs"].items():
        if isinstance(value, str | dict):
            inputs[name] = _file_input(task, f"inputs.{name}", value, directory, fill)
        else:
            attrs[name] = value
    for name, value in attrs.items():
        if not _is_json(value, DEEPEST):
            task.refuse(
                f"attrs.{name}",
                f"{' '.join(repr(value).split()):.80}",
                "numbers, text, true, false, null, or lists of them",
            )
    if file is not None:
        inputs[""] = file
    named = {f"inputs.{name}" if name else "files": each.path for name, each in inputs.items()}
    for member, path in {"op": members["op"], **named, **targets}.items():
        if member not in named and is_remote(path):
            task.refuse(member, repr(path), "a file of this machine (only inputs are read from elsewhere)")
        if not _can_be_named(path):
            task.refuse(member, repr(path), "a name that a file can have")
    if not task.errors:
        files = targets["output"] if isinstance(output, str) else {name: targets[f"output.{name}"] for name in output}
        task.job = Job(members["op"], inputs, attrs, files)
    return task


def _is_json(value: Any, deepest: int) -> bool:
    if isinstance(value, list):
        return deepest > 0 and all(_is_json(each, deepest - 1) for each in value)
    return value is None or isinstance(value, bool | int | float | str)


def _can_be_named(path: str) -> bool:
    """Return whether a path can be given to the system at all."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _normal(path: str) -> str:
    """Return a path without `./`, so that a file has one name."""
    if is_remote(path):
        return path
    path = local(path)
    return str(Path(path)) if os.sep != "/" or _DOTS.search(path) else path


def _file_input(place: Place, field: str, value: Any, directory: Path, fill: Callable[[str, str], str]) -> FileInput:
    if isinstance(value, str):
        return FileInput(*split_name(fill(value, field), directory))
    for member, text in value.items():
        if member not in FileInput._fields:
            place.refuse(f"{field}.{member}", "unknown", ", ".join(FileInput._fields))
        elif not isinstance(text, str) or not text:
            place.refuse(f"{field}.{member}", shown(text), "text")
    if "path" not in value:
        place.refuse(f"{field}.path", "missing", "a file")
    if place.errors:
        return FileInput("")
    filled = {member: fill(text, f"{field}.{member}") for member, text in value.items()}
    if "name" not in filled:
        return FileInput(*split_name(filled["path"], directory), filled.get("dtype"))
    return FileInput(**filled)


def _filled(place: Place, placeholders: dict[str, str] | None, text: str, field: str) -> str:
    """Fill in `{stem}` and the other placeholders; a job without a pattern has none."""
    if placeholders is None:
        return text
    filled = ""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        place.refuse(field, f"{text!r}: {error}", "{{ and }} for braces that stand for themselves")
        return text
    for literal, name, _, _ in parts:
        if name is not None and name not in placeholders:
            place.refuse(field, f"{{{name}}}", ", ".join(f"{{{each}}}" for each in placeholders))
            return text
        filled += literal + ("" if name is None else placeholders[name])
    return filled if field.startswith("inputs") else without_secrets(filled)


def files_of(job: Job) -> Iterator[str]:
    """Yield the files that a job's results come from."""
    if is_path(job.op):
        yield job.op
    yield from (each.path for each in job.inputs.values())


def identities(job: Job, directory: Path, *, content: bool, settled: bool = False) -> dict[str, Identity]:
    """Return the identities of the files that a job's results come from."""
    own: set[str] = set()
    if is_path(job.op):
        own = {relative(path, directory) for path in operation_of(job.op, directory).files}
    found = {}
    for path in (*files_of(job), *sorted(own)):
        file, within = located(directory, path), path != job.op  # an index's files are its `own`
        try:
            found[path] = identity(file, content=False, settled=settled, within=within)
            if content and path in own:  # many jobs share it: it is read once
                now = os.stat(file)  # a link to it may lead elsewhere meanwhile
                found[path] |= _content(file, now.st_dev, now.st_ino, *found[path].values())
            elif content:
                found[path] |= identity(file, content=True, within=within)
        except OSError as error:
            error.filename = error.filename or path  # file systems elsewhere name none
            raise
        except FileError as error:
            raise FileError(f"{path!r}: {error.found}", error.allowed) from None
    return found


def relative(path: Path, directory: Path) -> str:
    """Return the path of a file from a directory; as it is if there is none: after a link `..` leads elsewhere."""
    found = os.path.relpath(path, directory)
    if os.pardir in found or os.pardir in path.parts:
        with contextlib.suppress(OSError):
            if os.path.samefile(os.path.join(directory, found), path):
                return found
        return os.fspath(path.absolute())
    return found


@functools.lru_cache(maxsize=256)
def _content(file: str, *_state: int) -> Identity:
    return identity(file, content=True)
