"""Jobs and tasks in a few hundred bytes each, so that half a million of them take little memory."""

import contextlib
import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from dmlcpu.batch.jobs.faults import Place
from dmlcpu.batch.jobs.job import FileInput, Job, Task
from dmlcpu.common.regions import Tensor

Check = Callable[[Task], Task]


class _Work(NamedTuple):
    """What tasks share with others of the same shapes: the last fields of a task."""

    shapes: Mapping[str, tuple[int, ...]]
    results: Mapping[str, Tensor | None]
    kernel: str | None
    read_bytes: int
    peak_bytes: int
    block_bytes: int | None
    missing_chunks: Mapping[str, int | None]


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
    """Jobs with their places. Those with faults are kept as they are; there are few, or the run ends."""

    def __init__(self, jobs: Iterable[tuple[Place, Job | None]]) -> None:
        self._rows: list[bytes | tuple[Place, Job | None] | None] = []
        self.options: Any = None  # of places: all have the same, or none
        for place, job in jobs:
            self.options = place.options
            packed = None if job is None or place.faults else _pack(place.where, job)
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
    """Tasks that are made when they are asked for. Those with faults are kept as they are."""

    def __init__(self) -> None:
        self._rows: list[bytes | Task] = []
        self._works: list[_Work | None] = []
        self._known: dict[Any, _Work] = {}

    def append(self, task: Task) -> None:
        """Add a task."""
        if task.faults or task.job is None:
            self._rows.append(task)
            self._works.append(None)
            return
        work = _Work(*task[5:])
        key = tuple(tuple(each.items()) if isinstance(each, Mapping) else each for each in work)
        self._rows.append(_pack(task.where, task.job, dict(task.inputs)) or task)
        self._works.append(self._known.setdefault(key, work))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> Task: ...
    @overload
    def __getitem__(self, position: slice) -> list[Task]: ...
    def __getitem__(self, position: int | slice) -> Task | list[Task]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        row, work = self._rows[position], self._works[position]
        if isinstance(row, Task):
            return row
        assert work is not None
        where, job, inputs = _unpack(row)
        return Task(where, job.id, [], job, inputs, *work)

    @property
    def faulty(self) -> list[Task]:
        """The tasks with faults."""
        return [row for row in self._rows if isinstance(row, Task) and (row.faults or row.job is None)]

    @property
    def read_bytes(self) -> int:
        """The bytes that all tasks read."""
        return sum(work.read_bytes for work in self._works if work)

    def drop(self, position: int) -> None:
        """Do nothing: a task takes little memory."""

    def without_faults(self) -> "Tasks":
        """Return the tasks that can run."""
        good = Tasks()
        pairs = zip(self._rows, self._works, strict=True)
        for row, work in pairs:
            if work is not None:
                good._rows.append(row)
                good._works.append(work)
        return good


class CheckedTasks(Sequence[Task]):
    """Tasks that are checked when they are asked for, and kept until they are dropped."""

    def __init__(self, tasks: Tasks, check: Check) -> None:
        self._tasks, self._check = tasks, check
        self._kept: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, position: int) -> Task: ...
    @overload
    def __getitem__(self, position: slice) -> list[Task]: ...
    def __getitem__(self, position: int | slice) -> Task | list[Task]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        if position not in self._kept:
            self._kept[position] = self._check(self._tasks[position])
        return self._kept[position]

    def drop(self, position: int) -> None:
        """Forget a task that has an outcome."""
        self._kept.pop(position, None)
