"""A run under way: what becomes of its jobs is counted, recorded and told."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmlcpu.batch.files import remove, stray
from dmlcpu.batch.jobs.check import Plan
from dmlcpu.batch.jobs.lines import Lines
from dmlcpu.batch.jobs.manifest import DONE, FAILED, record_of
from dmlcpu.batch.jobs.prepare import Prepared, Todo
from dmlcpu.batch.jobs.progress import Silent
from dmlcpu.batch.jobs.signals import stop_on_signals
from dmlcpu.batch.jobs.step import Outcome, Task
from dmlcpu.batch.jobs.workers import Lost
from dmlcpu.common.wording import printable


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that failed.

    Parameters
    ----------
    id : str
        The job's id, or "" if it could not be read.
    place : str
        The file and line it stands in.
    error : str
        What went wrong.
    """

    id: str
    place: str
    error: str

    def __str__(self) -> str:
        return f"{self.place} ({printable(self.id)}): {self.error}" if self.id else f"{self.place}: {self.error}"


class Run:
    """A run under way: what it has done, and where that is recorded."""

    def __init__(self, prepared: Prepared, log: Path | None, told: Silent, max_failures: int | None) -> None:
        self.done = self.failed = 0
        self.failures: list[Failure] = []
        self.interrupted = False
        self._prepared = prepared
        self._manifest = prepared.manifest
        self._log = Lines(log) if log else None
        self._told = told
        self._most = max_failures

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self._told.close()
        if self._log:
            self._log.close()

    def execute(self, outcomes: Callable[..., Iterator[tuple[int, Outcome | Lost]]]) -> None:
        """Run what can run, and record all outcomes; outcomes: what runs tasks."""
        todo = self._prepared.todo
        self._remove_strays()
        if self._manifest:
            self._manifest.begin({each.job.id for each in todo if each.job})
        for each in todo:
            if each.plan is None:
                self._refused(each)
        good = [(each, each.plan) for each in todo if each.plan]
        tasks = [_task(plan) for _, plan in good]
        self._told.start(len(tasks), sum(plan.read_bytes for _, plan in good), self.failed)
        with stop_on_signals(self._told.say) as asked:

            def stopping() -> bool:
                return asked.is_set() or (self._most is not None and self.failed >= self._most)

            for position, outcome in outcomes(tasks, self._prepared.directory, stopping=stopping):
                self._finished(*good[position], outcome)
            self.interrupted = asked.is_set()
        self._remove_strays()  # of workers that died: the next run need not look at jobs that are done
        self._check_records()

    def _remove_strays(self) -> None:
        """Remove temporary files that a killed run, or worker, has left."""
        directory, jobs = self._prepared.directory, [each.job for each in self._prepared.todo if each.job]
        for path in stray(os.path.join(directory, target) for job in jobs for target in job.targets):
            with contextlib.suppress(OSError):  # somebody else's: it is in nobody's way
                remove(path)

    def _refused(self, todo: Todo) -> None:
        """Record a job that cannot run."""
        error = "; ".join(fault.reason for fault in todo.place.faults)
        if todo.job:
            self._record(todo.job.id, record_of(todo.job, {}, FAILED, 0.0, error=error))
        self._fail(todo, error)
        self._write_log(todo, FAILED, 0.0, error)

    def _finished(self, todo: Todo, plan: Plan, outcome: Outcome | Lost) -> None:
        """Record what became of a job."""
        if isinstance(outcome, Lost):
            outcome = Outcome(outcome.reason, 0.0, {})
        state = DONE if outcome.error is None else FAILED
        more = {"outputs": outcome.outputs} if outcome.error is None else {"error": outcome.error}
        self._record(plan.job.id, record_of(plan.job, plan.inputs, state, outcome.seconds, **more))
        self._write_log(todo, state, outcome.seconds, outcome.error)
        self._told.finished(plan.read_bytes, failed=outcome.error is not None)
        if outcome.error is None:
            self.done += 1
        else:
            self._fail(todo, outcome.error)

    def _record(self, id_: str, record: dict[str, Any]) -> None:
        if self._manifest:
            self._manifest.record(id_, record)

    def _fail(self, todo: Todo, error: str) -> None:
        failure = Failure(todo.place.id, todo.place.where, error)
        self.failed += 1
        self.failures.append(failure)
        self._told.say(f"failed: {failure}")

    def _write_log(self, todo: Todo, outcome: str, seconds: float, error: str | None) -> None:
        if not self._log:
            return
        plan = todo.plan
        self._log.append(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "id": todo.place.id,
                "outcome": outcome,
                "op": todo.job.op if todo.job else None,
                "shapes": {name: list(shape) for name, shape in plan.shapes.items()} if plan else None,
                "kernel": plan.kernel if plan else None,
                "milliseconds": round(seconds * 1000, 3),
                "bytes": plan.read_bytes if plan else 0,
                "error": error,
            }
        )

    def _check_records(self) -> None:
        """Count it as a failure if outcomes could not be recorded."""
        for what, lines in (("manifest", self._manifest), ("log", self._log)):
            if lines:
                lines.sync()
            if lines and lines.error:
                text = f"outcomes could not be written: {lines.error.strerror}"
                self.failures.append(Failure("", f"{what} {lines.path}", text))
                self._told.say(f"failed: {self.failures[-1]}")


def _task(plan: Plan) -> Task:
    results = {name: tensor for name, tensor in plan.results.items() if tensor}
    return Task(plan.job, plan.inputs, plan.peak_bytes, plan.block_bytes, results)
