"""JSON with comments and trailing commas."""

import contextlib
import json
import re
from typing import Any

from dmlcpu.common.imports import extra
from dmlcpu.models.faults import Faults

# The groups are kept: strings, so that their content is not read as comments or commas, and comments without an end.
# Both also match without an end: a search from every start would take quadratic time.
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\]|\\.)*"?|/\*.*)', re.DOTALL)
_TRAILING_COMMA = re.compile(r',(?=\s*[\]}])|("(?:[^"\\]|\\.)*"?)', re.DOTALL)
_JSON5_ERROR = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)


def parse(text: str, faults: Faults) -> Any:
    """Return the value of `text`; None, with the errors noted, if it is not well formed."""
    if not text.strip():
        faults.add("an empty file", "a DxDispatch model")
        return None
    try:
        return _as_data(_parsed(text), faults)
    except RecursionError:
        faults.add("lists or objects nested too deeply to be read", "a DxDispatch model")
    except ValueError as error:
        problem = str(error)
        if where := _JSON5_ERROR.fullmatch(problem):
            line, problem, column = where.groups()
            problem = problem.replace("Unexpected", "unexpected", 1).replace("\n", "\\n")
            problem = f"{problem} at line {line}, column {column}"
        faults.add(problem, "JSON, with comments and trailing commas")
    return None


def _parsed(text: str) -> Any:
    """Parse text; objects become tuples of pairs. json5 locates errors, but takes hundreds of times as long."""
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(text, object_pairs_hook=tuple)
    plain = text
    for unwanted in (_COMMENT, _TRAILING_COMMA):  # one after the other: comments may follow a trailing comma
        plain = unwanted.sub(lambda match: match[1] or " ", plain)
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(plain, object_pairs_hook=tuple)
    return extra("json5").loads(text, object_pairs_hook=tuple)


def _as_data(value: Any, faults: Faults) -> Any:
    """Convert pairs to dictionaries; note each name that an object has more than once."""
    if isinstance(value, list):
        return [
            _as_data(each, faults.at(i)) if isinstance(each, list | tuple) else each for i, each in enumerate(value)
        ]
    if not isinstance(value, tuple):
        return value
    made: dict[str, Any] = {}
    for name, each in value:
        if name in made:
            faults.at(name).add("the name more than once", "each name once in an object")
        made[name] = _as_data(each, faults.at(name))
    return made
