"""JSON with comments and trailing commas."""

import json
import re
from collections.abc import Iterator
from typing import Any

from dmlcpu.common.extras import extra
from dmlcpu.models.faults import Faults, Path

# The groups are kept: strings, so that nothing inside one is taken for a comment or a comma, and a comment that does
# not end. Both match without an end too: to search behind every start of one would take quadratic time.
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\]|\\.)*"?|/\*.*)', re.DOTALL)
_TRAILING_COMMA = re.compile(r',(?=\s*[\]}])|("(?:[^"\\]|\\.)*"?)', re.DOTALL)
_JSON5_ERROR = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)


def parse(text: str, faults: Faults) -> Any:
    """Return the value `text` holds; None, with the faults noted, if it is not well formed."""
    if not text.strip():
        faults.add((), "an empty file", "a DxDispatch model")
        return None
    repeats = _Repeats()
    # json5 takes 0.4 ms a value, a thousand times what json takes: it gets only what is relaxed in other ways, and
    # the files with a syntax fault, of which it tells the place.
    for plain in (_as_it_stands, _without_comments_and_trailing_commas):
        try:
            data = json.loads(plain(text), object_pairs_hook=repeats.object)
            break
        except ValueError:
            repeats = _Repeats()
        except RecursionError:
            return _too_deep(faults)
    else:
        try:
            data = extra("json5").loads(text, object_pairs_hook=repeats.object)
        except RecursionError:
            return _too_deep(faults)
        except ValueError as error:
            return _syntax_fault(str(error), faults)
    repeats.report(data, faults)
    return data


def _as_it_stands(text: str) -> str:
    return text


def _without_comments_and_trailing_commas(text: str) -> str:
    for unwanted in (_COMMENT, _TRAILING_COMMA):  # one after the other: comments may follow a trailing comma
        text = unwanted.sub(lambda match: match[1] or " ", text)
    return text


def _too_deep(faults: Faults) -> None:
    faults.add((), "lists or objects nested too deeply to be read", "a DxDispatch model")


def _syntax_fault(error: str, faults: Faults) -> None:
    found = error
    if where := _JSON5_ERROR.fullmatch(error):
        line, problem, column = where.groups()
        problem = problem.replace("Unexpected", "unexpected", 1).replace("\n", "\\n")
        found = f"{problem} at line {line}, column {column}"
    faults.add((), found, "JSON, with comments and trailing commas")


class _Repeats:
    """The objects in which a name stands twice: parsers keep the last without a word."""

    def __init__(self) -> None:
        self._names_of: dict[int, tuple[dict[str, Any], list[str]]] = {}

    def object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            repeated = [name for name in made if names.count(name) > 1]
            self._names_of[id(made)] = (made, repeated)  # kept with the object, so that its id stays its own
        return made

    def report(self, data: Any, faults: Faults) -> None:
        if not self._names_of:
            return
        for path, value in _objects(data):
            _, repeated = self._names_of.get(id(value), (None, []))
            for name in repeated:
                faults.add((*path, name), "the name more than once", "each name once in an object")


def _objects(data: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every object in the file with its place."""
    if isinstance(data, dict):
        yield path, data
        for name, value in data.items():
            yield from _objects(value, (*path, name))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from _objects(value, (*path, i))
