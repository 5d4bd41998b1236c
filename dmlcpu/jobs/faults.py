"""Errors in jobs: each has its line, job and field."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dmlcpu.common.faults import Fault, FaultsError, printable
from dmlcpu.common.secrets import without_secrets

_MANY = 10


@dataclass(frozen=True, slots=True, init=False)
class JobFault(Fault):
    """An error in a job.

    Parameters
    ----------
    place : str
        The file and line of the job, or another source.
    id : str
        The job's id, or "" if it has none yet.
    field : str
        The member of the job (``inputs.x``), or a property of it (``inputs.x.dtype``).
    found : str
        The value given, or "missing".
    allowed : str
        What is accepted.
    """

    place: str
    id: str

    def __init__(self, place: str, id: str, field: str, found: str, allowed: str) -> None:
        Fault.__init__(self, field, without_secrets(found), without_secrets(allowed))
        object.__setattr__(self, "place", place)
        object.__setattr__(self, "id", id)

    @property
    def field(self) -> str:
        """The member of the job."""
        return self.path

    def __str__(self) -> str:
        job = f" ({printable(self.id)})" if self.id else ""
        return f"{self.place}{job}: {self.reason}"


class JobsError(FaultsError):
    """Jobs are invalid. None has run, and nothing has been written.

    Parameters
    ----------
    source : str
        The file of jobs.
    faults : list of JobFault
        All errors, in the order of the jobs. The attributes `field`, `found` and `allowed` are those of the first
        error.
    """

    faults: list[JobFault]

    def _lines(self) -> list[tuple[str, Sequence[Fault]]]:
        """Return a line for each error; jobs with the same error share a line."""
        alike: dict[str, list[JobFault]] = {}
        for error in self.faults:
            alike.setdefault(error.reason, []).append(error)
        lines: list[tuple[str, Sequence[Fault]]] = []
        for error in self.faults:
            first, *others = alike[error.reason]
            if len(others) < _MANY:
                lines.append((str(error), [error]))
            elif error is first:
                names = first_names([printable(other.id) or other.place for other in others], _MANY, "others")
                lines.append((f"{error} (and so for {names})", alike[error.reason]))
        return lines


def first_names(names: Sequence[str], most: int, rest: str) -> str:
    """Return the first names, and how many the rest are."""
    more = f", {len(names) - most} {rest}" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@dataclass(slots=True)
class Place:
    """Where a job stands, and the errors that are noted there."""

    where: str
    id: str = ""
    errors: list[JobFault] = field(default_factory=list)
    options: Callable[[str], str] | None = field(default=None, kw_only=True)  # how a command spells jobs' members

    def refuse(self, field: str, found: str, allowed: str) -> None:
        """Note an error."""
        spelled = self.options(field) if self.options else field
        self.errors.append(JobFault(self.where, self.id, spelled, found, allowed))
