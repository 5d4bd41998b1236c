"""What is wrong with a file of models or jobs: each fault with its place, all of them in one error."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dmlcpu.errors import DmlError

# A place in the file: the names and list positions that lead there from the root.
Path = tuple[str | int, ...]

_PLAIN_NAME = re.compile(r"[A-Za-z_$][\w$]*")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a file.

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
        return self.reason

    @property
    def reason(self) -> str:
        """The fault, without the file and the line that a job may have."""
        before = f"{self.path}: " if self.path else ""
        return f"{before}{self.found}; allowed: {self.allowed}"


class FaultsError(DmlError):
    """A file cannot be run. Nothing has been run, and nothing written.

    Parameters
    ----------
    source : str
        The file.
    faults : list of Fault
        Everything that is wrong, in the order of the file. `operator` is the file; `field`, `found` and `allowed` are
        those of the first fault.
    """

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        super().__init__(source, faults[0].path, faults[0].found, faults[0].allowed)
        self.args = (source, faults)  # what the error is pickled as
        self.faults = faults

    def __str__(self) -> str:
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        return "\n  ".join([f"{self.operator}: {count}", *self._lines()])

    def _lines(self) -> list[str]:
        return list(map(str, self.faults))


class ModelError(FaultsError):
    """A model file cannot be run. Nothing has been run, and nothing written.

    Parameters
    ----------
    source : str
        The file.
    faults : list of Fault
        Everything that is wrong, in the order of the file. `operator`, `field`, `found` and `allowed` are those of
        the first.
    """

    faults: list[Fault]


@dataclass(slots=True)
class Faults:
    """The faults found so far in a JSON file."""

    _found: list[tuple[Path, str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, path: Path, found: str, allowed: str) -> None:
        """Note one fault."""
        self._found.append((path, found, allowed))

    def entries(self) -> set[Path]:
        """Return the entries of the file at fault: the first two steps of each path."""
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
    """Return the positions of the members that lead to `path`; a missing member counts as the last."""
    positions = []
    for part in path:
        if isinstance(data, dict):
            positions.append(list(data).index(part) if part in data else len(data))
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            positions.append(part)
            data = data[part] if part < len(data) else None
    return positions
