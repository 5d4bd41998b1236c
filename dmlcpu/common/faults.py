"""Faults of a model or of jobs: each has its place in the file, and one error holds them all."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmlcpu.errors import DmlError


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
        self.args = (source, faults)  # for pickles
        self.faults = faults

    def __str__(self) -> str:
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        return "\n  ".join([f"{self.operator}: {count}", *self._lines()])

    def _lines(self) -> list[str]:
        return list(map(str, self.faults))
