"""Jobs and tasks in a few hundred bytes each, so that half a million of them take little memory."""

import contextlib
import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dmlcpu.jobs.faults import Place
from dmlcpu.jobs.job import FileInput, Job, Task, Work
from dmlcpu.jobs.operations import BUILD, canonical

Check = Callable[[Task], Task]


def _pack(where: str, job: Job, more: Any = None) -> bytes | None:
    """Return a job, and more, in few bytes; None if a program has given other values than those of JSON."""
    inputs = [(name, *each) for name, each in job.inputs.items()]
    output = job.output if isinstance(job.output, str) else dict(job.output)
    parts: Any = (where, job.id, job.op, inputs, job.attrs, output, more)
    with contextlib.suppress(ValueError):  # of subclasses, such as enumerations
        return marshal.dumps(parts)
    return None


def _unpack(row: bytes) -> tuple[str, Job, Any]:
    where, id_, op, inputs, attrs, output, more = marshal.loads(row)
    return where, Job(id_, op, {name: FileInput(*each) for name, *each in inputs}, attrs, output), more


class PackedJobs:
    """Jobs with their places. Those with errors are not packed: they are few, or the run ends."""

    def __init__(self, jobs: Iterable[tuple[Place, Job | None]]) -> None:
        self._rows: list[bytes | tuple[Place, Job | None] | None] = []
        self.options: Any = None  # of places: all have the same, or none
        self.ops: set[str] = set()
        self.built: set[str] = set()  # indices
        for place, job in jobs:
            if job is not None:
                self.ops.add(job.op)
                if canonical(job.op) == BUILD:
                    self.built.update(job.targets)
            self.options = place.options
            packed = None if job is None or place.errors else _pack(place.where, job)
            self._rows.append(packed or (place, job))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[Place, Job | None]]:
        return map(self._at, self._rows)

    def taken(self) -> Iterator[tuple[Place, Job | None]]:
        """Yield the jobs, and forget each."""
        for number, row in enumerate(self._rows):
            self._rows[number] = None
            yield self._at(row)

    def _at(self, row: Any) -> tuple[Place, Job | None]:
        if isinstance(row, tuple):
            return row
        where, job, _ = _unpack(row)
        return Place(where, job.id, options=self.options), job


class Tasks(Sequence[Task]):
    """Tasks that are unpacked on access. With a check, each is checked then, and kept until it is dropped."""

    def __init__(self, check: Check | None = None) -> None:
        self._rows: list[tuple[bytes, Work] | Task] = []
        self._known: dict[Any, Work] = {}
        self._check = check
        self._checked: dict[int, Task] = {}

    def append(self, task: Task) -> None:
        """Add a task. One with errors is not packed."""
        more = (dict(task.inputs), dict(task.places))
        if task.errors or task.job is None or not (packed := _pack(task.where, task.job, more)):
            self._rows.append(task)
            return
        key = tuple(tuple(each.items()) if isinstance(each, Mapping) else each for each in task.work)
        self._rows.append((packed, self._known.setdefault(key, task.work)))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position: int) -> Task:  # type: ignore[override]  # no slices
        if position in self._checked:
            return self._checked[position]
        task = self._rows[position]
        if not isinstance(task, Task):
            where, job, (inputs, places) = _unpack(task[0])
            task = Task(where, job.id, [], job, inputs, task[1], places)
        if self._check is not None:
            task = self._checked[position] = self._check(task)
        return task

    @property
    def refused(self) -> list[Task]:
        """The tasks with errors."""
        return [row for row in self._rows if isinstance(row, Task) and (row.errors or row.job is None)]

    @property
    def read_bytes(self) -> int:
        """The bytes that all tasks read."""
        return sum((row.work if isinstance(row, Task) else row[1]).read_bytes for row in self._rows)

    def drop(self, position: int) -> None:
        """Forget the check of a task that has an outcome."""
        self._checked.pop(position, None)

    def without_errors(self, check: Check | None = None) -> "Tasks":
        """Return the tasks that can run, unless the check finds errors on access."""
        good = Tasks(check)
        good._rows = [row for row in self._rows if not isinstance(row, Task) or (row.job and not row.errors)]
        return good
