"""Errors in a model or in jobs: each has its place in the file, and one exception holds them all.

Also how messages show values and names.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dmlcpu.errors import DmlError

SHOWN = 20  # lines of errors in a message
_KINDS = 10  # kinds of the errors that are not shown
_OF_ONE_PLACE = re.compile(r"'[^']*'|\"[^\"]*\"|\[\d+\]")


@dataclass(frozen=True, slots=True)
class Fault:
    """An error in a file.

    Parameters
    ----------
    path : str
        The JSON path of the value (``$.commands[0].bindings.InputTensor``).
    found : str
        The value, or "missing".
    allowed : str
        What is accepted.
    """

    path: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return self.reason

    @property
    def reason(self) -> str:
        """The error, without the file and the line that a job may have."""
        before = f"{self.path}: " if self.path else ""
        return f"{before}{self.found}; allowed: {self.allowed}"


class FaultsError(DmlError):
    """A file cannot be run. Nothing has been run, and nothing written.

    Parameters
    ----------
    source : str
        The file.
    faults : list of Fault
        All errors, in the order of the file. `operator` is the file; `field`, `found` and `allowed` are those of the
        first one.
    """

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        super().__init__(source, faults[0].path, faults[0].found, faults[0].allowed)
        self.args = (source, faults)  # for pickles
        self.faults = faults

    def __str__(self) -> str:
        count = "1 error" if len(self.faults) == 1 else f"{len(self.faults)} errors"
        lines = self._lines()
        rest = [fault.reason for _, faults in lines[SHOWN:] for fault in faults]
        return "\n  ".join([f"{self.operator}: {count}", *(line for line, _ in lines[:SHOWN]), *counted(rest)])

    def _lines(self) -> list[tuple[str, Sequence[Fault]]]:
        """Return the lines of the message, each with its errors."""
        return [(str(fault), [fault]) for fault in self.faults]


def alike(reason: str) -> str:
    """Return the text that similar errors share: without names in quotes and positions."""
    return _OF_ONE_PLACE.sub(lambda found: f"{found[0][0]}...{found[0][-1]}", reason)


def counted(reasons: Sequence[str]) -> list[str]:
    """Return lines that count the errors not shown, by the text that similar ones share."""
    if not reasons:
        return []
    common = Counter(map(alike, reasons)).most_common(_KINDS)
    others = len(reasons) - sum(count for _, count in common)
    lines = [f"  {count} of: {kind}" for kind, count in common]
    return [f"{len(reasons)} more:", *lines, *([f"  {others} of other kinds"] if others else [])]


def shown(value: Any) -> str:
    """Return the text of a JSON value for a message: a short value in full, any other by its kind."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        text = repr(value)
    else:  # TOML also has dates and times
        text = json.dumps(value) if value is None or isinstance(value, int | float) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def listed(names: Iterable[str]) -> str:
    """Return the text of the allowed names; there may be none."""
    return ", ".join(names) or "nothing (there are none)"


def printable(text: str) -> str:
    """Return an id for a message: file names may contain line ends and control characters."""
    return text if text.isprintable() else repr(text)[1:-1]
