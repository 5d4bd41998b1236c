"""What is wrong with jobs: each fault with its line, job and field, all of them in one error."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dmlcpu.errors import DmlError

_MANY = 10


@dataclass(frozen=True, slots=True)
class JobFault:
    """One thing that is wrong with a job.

    Parameters
    ----------
    place : str
        The file and line, or what else the job is in.
    id : str
        The job's, or "" if it has none yet.
    field : str
        The member of the job (``inputs.x``), or what of it (``inputs.x.dtype``).
    found : str
        What stands there, or "missing".
    allowed : str
        What would have been accepted.
    """

    place: str
    id: str
    field: str
    found: str
    allowed: str

    def __str__(self) -> str:
        job = f" ({printable(self.id)})" if self.id else ""
        return f"{self.place}{job}: {self.reason}"

    @property
    def reason(self) -> str:
        """The fault without its place."""
        before = f"{self.field}: " if self.field else ""
        return f"{before}{self.found}; allowed: {self.allowed}"


class JobsError(DmlError):
    """Jobs cannot be run. Nothing has been run, and nothing written.

    Parameters
    ----------
    source : str
        The file of jobs.
    faults : list of JobFault
        Everything that is wrong, in the order of the jobs. `field`, `found` and `allowed` are those of the first.
    """

    def __init__(self, source: str, faults: list[JobFault]) -> None:
        super().__init__(source, faults[0].field, faults[0].found, faults[0].allowed)
        self.args = (source, faults)  # what the error is pickled as
        self.faults = faults

    def __str__(self) -> str:
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        alike: dict[str, list[JobFault]] = {}
        for fault in self.faults:
            alike.setdefault(fault.reason, []).append(fault)
        lines = [f"{self.operator}: {count}"]
        for fault in self.faults:
            first, *others = alike[fault.reason]
            if len(others) < _MANY:
                lines.append(str(fault))
            elif fault is first:  # one line for a mistake that is in very many jobs
                lines.append(f"{fault} (and so for {_names(others)})")
        return "\n  ".join(lines)


def _names(faults: list[JobFault]) -> str:
    """Name the jobs of faults, but not all of very many."""
    named = [printable(fault.id) or fault.place for fault in faults[:_MANY]]
    rest = [f"{len(faults) - _MANY} others"] if len(faults) > _MANY else []
    return ", ".join([*named, *rest])


def printable(text: str) -> str:
    """Return an id, which names of files may have put the ends of lines or control characters into, for a message."""
    return text if text.isprintable() else repr(text)[1:-1]


@dataclass(slots=True)
class Place:
    """Where a job stands, and the faults that are noted there."""

    where: str
    id: str = ""
    faults: list[JobFault] = field(default_factory=list)
    options: Callable[[str], str] | None = None  # how a command spells the members of its jobs

    def refuse(self, field: str, found: str, allowed: str) -> None:
        """Note a fault."""
        spelled = self.options(field) if self.options else field
        self.faults.append(JobFault(self.where, self.id, spelled, found, allowed))
