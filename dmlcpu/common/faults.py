"""What is wrong with a model file: each fault with its place, all of them in one error; and words that jobs share."""

import importlib
import json
import re
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from dmlcpu.errors import DmlError

# Where something is in the file: the names and list positions that lead there from the root.
Path = tuple[str | int, ...]

_PLAIN_NAME = re.compile(r"[A-Za-z_$][\w$]*")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a model file.

    Parameters
    ----------
    path : str
        Where, as a JSON path (``$.commands[0].bindings.InputTensor``).
    found : str
        What stands there, or "missing".
    allowed : str
        What would have been accepted.
    """

    path: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.path}: {self.found}; allowed: {self.allowed}"


class ModelError(DmlError):
    """A model file cannot be run. Nothing has been run, and nothing written.

    Parameters
    ----------
    source : str
        The file.
    faults : list of Fault
        Everything that is wrong, in the order of the file. `operator`, `field`, `found` and `allowed` are those of
        the first.
    """

    def __init__(self, source: str, faults: list[Fault]) -> None:
        super().__init__(source, faults[0].path, faults[0].found, faults[0].allowed)
        self.args = (source, faults)  # what the error is pickled as
        self.faults = faults

    def __str__(self) -> str:
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        return "\n  ".join([f"{self.operator}: {count}", *map(str, self.faults)])


class MissingExtraError(ImportError):
    """A package that an extra brings is not installed."""


@dataclass(slots=True)
class Faults:
    """The faults met so far."""

    _found: list[tuple[Path, str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, path: Path, found: str, allowed: str) -> None:
        """Note one fault."""
        self._found.append((path, found, allowed))

    def entries(self) -> set[Path]:
        """Return the entries of the file at fault: the first two steps of the paths, as far as they go."""
        return {path[:2] for path, _, _ in self._found}

    def in_order_of(self, data: Any) -> list[Fault]:
        """Return the faults, each once, in the order in which the file reads."""
        ordered = sorted(dict.fromkeys(self._found), key=lambda fault: _position(data, fault[0]))
        return [Fault(json_path(path), found, allowed) for path, found, allowed in ordered]


def json_path(path: Path) -> str:
    """Write a path as a JSON path."""
    return "$" + "".join(map(_segment, path))


def _segment(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _PLAIN_NAME.fullmatch(part) else f"[{json.dumps(part, ensure_ascii=False)}]"


def _position(data: Any, path: Path) -> list[int]:
    """Return the positions of the members that lead to `path`; one that is missing counts as the last."""
    positions = []
    for part in path:
        if isinstance(data, dict):
            positions.append(list(data).index(part) if part in data else len(data))
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            positions.append(part)
            data = data[part] if part < len(data) else None
    return positions


def shown(value: Any) -> str:
    """Write a JSON value for a message: short values as they stand, others by their kind."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        text = repr(value)
    else:  # TOML has dates and times, too
        text = json.dumps(value) if value is None or isinstance(value, int | float) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def listed(names: Any) -> str:
    """Write the names that are allowed; there may be none."""
    return ", ".join(names) or "nothing (there are none)"


def extra(module: str) -> ModuleType:
    """Import a package of the ``cli`` extra."""
    return optional(module, "the command line needs", "'dmlcpu[cli]'")


def optional(module: str, needs: str, install: str) -> ModuleType:
    """Import what need not be installed; needs: who needs it, as the error begins; install: what pip is to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        raise MissingExtraError(f"{needs} the package {package}: pip install {install}") from None
