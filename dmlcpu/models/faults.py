"""Errors in a model file: collected while it is loaded, and raised together."""

import json
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dmlcpu.common.faults import Fault, FaultsError

# A place in the file: the names and list positions on the path from the root.
Path = tuple[str | int, ...]

_PLAIN_NAME = re.compile(r"[A-Za-z_$][\w$]*")


class ModelError(FaultsError):
    """A model file cannot be run. Nothing has been run, and nothing written.

    Parameters
    ----------
    source : str
        The file.
    faults : list of Fault
        All errors, in the order of the file. The attributes `operator`, `field`, `found` and `allowed` are those of the
        first error.
    """

    faults: list[Fault]


class Refused(Exception):  # noqa: N818 - it is caught where the other entries are loaded
    """The entry being loaded is invalid; its errors are noted."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The errors found so far in a JSON file, and the place in it that is being checked."""

    path: Path = ()
    _found: list[tuple[Path, str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._found)

    def at(self, *parts: str | int) -> "Faults":
        """Return the same collection, for a place within this one."""
        return Faults((*self.path, *parts), self._found)

    def add(self, found: str, allowed: str) -> None:
        """Note an error at the place."""
        self._found.append((self.path, found, allowed))

    def refuse(self, found: str, allowed: str) -> NoReturn:
        """Note an error at the place and stop loading the entry."""
        self.add(found, allowed)
        raise Refused

    def entries(self) -> set[Path]:
        """Return the invalid entries of the file: the first two parts of each path."""
        return {path[:2] for path, _, _ in self._found}

    def in_order_of(self, data: Any) -> list[Fault]:
        """Return the distinct errors in the file's order."""
        known: dict[int, dict[Any, int]] = {}
        ordered = sorted(dict.fromkeys(self._found), key=lambda fault: _positions(fault[0], data, known))
        return [Fault(json_path(path), found, allowed) for path, found, allowed in ordered]


def json_path(path: Path) -> str:
    """Return a path as a JSON path."""
    return "$" + "".join(map(_segment, path))


def _segment(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _PLAIN_NAME.fullmatch(part) else f"[{json.dumps(part, ensure_ascii=not part.isprintable())}]"


def _positions(path: Path, data: Any, known: dict[int, dict[Any, int]]) -> list[int]:
    """Return the positions of the members on a path, the last for a missing one. known: those of objects."""
    positions = []
    for part in path:
        if isinstance(data, dict):
            if id(data) not in known:
                known[id(data)] = {name: position for position, name in enumerate(data)}
            positions.append(known[id(data)].get(part, len(data)))
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            positions.append(part)
            data = data[part] if part < len(data) else None
    return positions
