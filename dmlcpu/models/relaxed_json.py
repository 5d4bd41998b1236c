"""JSON with comments and trailing commas."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dmlcpu.common.extras import extra
from dmlcpu.models.faults import Faults, Path

# The groups are kept: strings, so that nothing inside one is taken for a comment or a comma, and a comment that does
# not end. Both match without an end too: to search behind every start of one would take quadratic time.
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\]|\\.)*"?|/\*.*)', re.DOTALL)
_TRAILING_COMMA = re.compile(r',(?=\s*[\]}])|("(?:[^"\\]|\\.)*"?)', re.DOTALL)
_JSON5_ERROR = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)


class _Repeating(dict[str, Any]):
    """An object in which names stand more than once: parsers keep the last in silence."""

    names: list[str]


def parse(text: str, faults: Faults) -> Any:
    """Return the value `text` holds; None, with the faults noted, if it is not well formed."""
    if not text.strip():
        faults.add("an empty file", "a DxDispatch model")
        return None
    try:
        data = _parsed(text)
        for path, names in _repeated_names(data):
            for name in names:
                faults.at(*path, name).add("the name more than once", "each name once in an object")
    except RecursionError:
        faults.add("lists or objects nested too deeply to be read", "a DxDispatch model")
        return None
    except ValueError as error:
        faults.add(_in_words(str(error)), "JSON, with comments and trailing commas")
        return None
    return data


def _parsed(text: str) -> Any:
    """Parse text with json where that can be: json5 takes hundreds of times as long, but tells where a fault is."""
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(text, object_pairs_hook=_object)
    plain = text
    for unwanted in (_COMMENT, _TRAILING_COMMA):  # one after the other: comments may follow a trailing comma
        plain = unwanted.sub(lambda match: match[1] or " ", plain)
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(plain, object_pairs_hook=_object)
    return extra("json5").loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    repeating = _Repeating(made)
    repeating.names = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    return repeating


def _repeated_names(data: Any, path: Path = ()) -> Iterator[tuple[Path, list[str]]]:
    if isinstance(data, _Repeating):
        yield path, data.names
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            if isinstance(value, dict | list):
                yield from _repeated_names(value, (*path, key))


def _in_words(error: str) -> str:
    """Return json5's message in the words of a model's faults."""
    where = _JSON5_ERROR.fullmatch(error)
    if not where:
        return error
    line, problem, column = where.groups()
    problem = problem.replace("Unexpected", "unexpected", 1).replace("\n", "\\n")
    return f"{problem} at line {line}, column {column}"
