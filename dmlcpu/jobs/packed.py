"""Tasks in a few hundred bytes each, so that half a million of them take little memory."""

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dmlcpu.jobs.job import FileInput, Job, Task, Work
from dmlcpu.jobs.operations import BUILD, canonical

Check = Callable[[Task], Task]


class Tasks(Sequence[Task]):
    """Tasks that are unpacked on access. Those with errors are not packed: they are few, or the run ends.

    With a check, each is checked on its first access, and kept until it is dropped.
    """

    def __init__(self, tasks: Iterable[Task] = (), check: Check | None = None) -> None:
        self._rows: list[tuple[bytes, Work] | Task | None] = []
        self._known: dict[Any, Work] = {}
        self._work = Work()  # of the last task, which most have in common with the next
        self._check = check
        self._checked: dict[int, Task] = {}
        self.options: Any = None  # of tasks: all have the same, or none
        self.ops: set[str] = set()
        self.built: set[str] = set()  # indices
        for task in tasks:
            self.append(task)

    def append(self, task: Task) -> None:
        """Add a task."""
        job, self.options = task.job, task.options
        if task.errors or job is None:
            self._rows.append(task)
            return
        self.ops.add(job.op)
        if canonical(job.op) == BUILD:
            self.built.update(job.targets)
        inputs = [(name, *each) for name, each in job.inputs.items()]
        output = job.output if isinstance(job.output, str) else dict(job.output)
        parts: Any = (task.where, task.id, job.op, inputs, job.attrs, output, dict(task.inputs), dict(task.places))
        if task.work != self._work:
            key = tuple(tuple(each.items()) if isinstance(each, dict) else each for each in task.work)
            self._work = self._known.setdefault(key, task.work)
        try:
            self._rows.append((marshal.dumps(parts), self._work))
        except ValueError:  # a program has given other values than those of JSON, such as enumerations
            self._rows.append(task)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position: int) -> Task:  # type: ignore[override]  # no slices
        if position in self._checked:
            return self._checked[position]
        row: Any = self._rows[position]
        if not isinstance(row, Task):
            where, id_, op, inputs, attrs, output, files, places = marshal.loads(row[0])
            job = Job(op, {name: FileInput(*each) for name, *each in inputs}, attrs, output)
            row = Task(where, id_, [], job, files, row[1], places, options=self.options)
        if self._check is not None:
            row = self._checked[position] = replace(self._check(row), options=None)  # workers need none
        return row  # type: ignore[no-any-return]

    def taken(self) -> Iterator[Task]:
        """Yield the tasks, and forget each."""
        for position in range(len(self)):
            task = self[position]
            self._rows[position] = None
            yield task

    @property
    def refused(self) -> list[Task]:
        """The tasks with errors."""
        return [row for row in self._rows if isinstance(row, Task) and row.errors]

    @property
    def read_bytes(self) -> int:
        """The bytes that all tasks read."""
        return sum((row.work if isinstance(row, Task) else row[1]).read_bytes for row in self._rows if row)

    def drop(self, position: int) -> None:
        """Forget the check of a task that has an outcome."""
        self._checked.pop(position, None)

    def without_errors(self, check: Check | None = None) -> "Tasks":
        """Return the tasks that can run, unless the check finds errors on access."""
        good = Tasks(check=check)
        good._rows = [row for row in self._rows if not (isinstance(row, Task) and row.errors)]
        good.options = self.options if check else None
        return good
