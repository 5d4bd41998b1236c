"""A run under way: where its jobs run, and their outcomes, which are counted, recorded and shown."""

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmlcpu.common.faults import SHOWN, counted, printable
from dmlcpu.common.secrets import without_secrets
from dmlcpu.files.folders import is_held, remove
from dmlcpu.jobs import executors
from dmlcpu.jobs.dispatch import Dispatcher, Lost, Workers
from dmlcpu.jobs.job import Task
from dmlcpu.jobs.limits import Settings
from dmlcpu.jobs.lines import Lines
from dmlcpu.jobs.manifest import DONE, FAILED
from dmlcpu.jobs.operations import version_of
from dmlcpu.jobs.prepare import Prepared
from dmlcpu.jobs.progress import COMPILING, Progress
from dmlcpu.jobs.serve import serve
from dmlcpu.jobs.signals import stop_on_signals
from dmlcpu.jobs.step import Conditions, Outcome


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that failed.

    Parameters
    ----------
    id : str
        The job's id, or "" if it could not be read.
    place : str
        The file and line of the job.
    error : str
        Why it failed.
    """

    id: str
    place: str
    error: str

    def __str__(self) -> str:
        return f"{self.place} ({printable(self.id)}): {self.error}" if self.id else f"{self.place}: {self.error}"


def lines_of(failures: Sequence[Failure]) -> list[str]:
    """Return lines about failures that are shown together: the first of them, and how many are like the others."""
    rest = counted([failure.error for failure in failures[SHOWN:]])
    return [*(f"failed: {failure}" for failure in failures[:SHOWN]), *(["failed: " + "\n".join(rest)] if rest else [])]


class JobsRun(contextlib.AbstractContextManager["JobsRun"]):
    """A run under way: its counts and failures, and where they are recorded."""

    def __init__(self, prepared: Prepared, settings: Settings, progress: Progress) -> None:
        self.done = self.failed = 0
        self.failures: list[Failure] = []
        self.interrupted = False
        self._prepared = prepared
        self._manifest = prepared.manifest
        self._log = Lines(Path(settings.log)) if settings.log else None
        self._progress = progress
        self._settings = settings

    def __exit__(self, *_: object) -> None:
        self._progress.close()
        if self._log:
            self._log.close()

    def execute(self) -> None:
        """Run the tasks without errors; record the outcomes of all."""
        todo, progress = self._prepared.todo, self._progress
        if self._manifest:  # tasks without a job may have the id of a job that is done
            self._manifest.begin(task.id for task in todo if task.job)
        self._remove_strays()  # not before the manifest is locked: they may be another run's, under way
        for task in todo.refused:
            self._finished(task, Outcome("; ".join(error.reason for error in task.errors), 0.0, {}))
        for line in lines_of(self.failures):
            progress.say(line)
        tasks = todo.without_errors(self._prepared.check)
        progress.start(len(tasks), todo.read_bytes, self.failed)
        with stop_on_signals(progress.say) as asked:

            def stopping() -> bool:
                most = self._settings.max_failures
                return asked.is_set() or (most is not None and self.failed >= most)

            for position, outcome in self.outcomes(tasks, stopping):
                task = tasks[position]
                if isinstance(outcome, Lost):
                    outcome = Outcome(outcome.reason, outcome.seconds, {})
                self._finished(task, outcome)
                if outcome.error is not None:
                    progress.say(f"failed: {self.failures[-1]}")
                progress.finished(task.work.read_bytes, failed=outcome.error is not None)
                tasks.drop(position)
            self.interrupted = asked.is_set()
        self._remove_strays()  # left by workers that died
        self._check_records()

    def outcomes(self, tasks: Sequence[Task], stopping: Callable[[], bool]) -> Iterator[tuple[int, Outcome | Lost]]:
        """Run tasks in this process, in others, on a cluster or by an executor; yield positions and outcomes."""
        if not tasks:
            return
        settings, limits, directory = self._settings, self._settings.limits, self._prepared.directory
        place = os.path.realpath(directory) if settings.scheduler is None and settings.executor is None else None
        conditions = Conditions(directory.absolute(), limits.threads, limits.memory, place, settings.retries)
        work, compiling = functools.partial(serve, conditions), functools.partial(self._progress.say, COMPILING)
        if settings.executor is not None:
            workers = Workers(settings.executor, limits.workers)
        elif settings.scheduler:
            workers = executors.Cluster(settings.scheduler)
        elif limits.workers > 1 or settings.timeout:
            # NumPy's and SciPy's libraries would start a thread for each core in each worker, which would only wait.
            threads = {"DMLCPU_NUM_THREADS": str(limits.threads), "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            workers = executors.Processes(min(limits.workers, len(tasks)), threads, compiling)
        else:
            from dmlcpu.runtime.compilation import watch_compilations

            with watch_compilations(compiling):
                yield from enumerate(itertools.chain.from_iterable(work(tasks, stopping, self._progress.read)))
            return
        with workers:
            yield from Dispatcher(work, tasks, workers, settings.retries, stopping, settings.timeout).results()

    def so_far(self) -> str:
        """Return how much is done when a run ends early, and how to go on."""
        done = f"{self._prepared.done_before + self.done} of {self._prepared.jobs} jobs are done"
        if self._manifest is None:
            return f"{done}; without a manifest the same run again runs all"
        return f"{done}, as {self._manifest.path} records; the same run again does the others"

    def _remove_strays(self) -> None:
        """Remove temporary files that a killed run, or worker, has left."""
        for path in self._prepared.apart.strays():
            with contextlib.suppress(OSError):  # of another user: it does no harm
                if not is_held(path):  # by another run, of jobs without a manifest
                    remove(path)

    def _finished(self, task: Task, outcome: Outcome) -> None:
        """Count, record and log the outcome of a job."""
        state = DONE if outcome.error is None else FAILED
        error = outcome.error and without_secrets(outcome.error)
        if self._manifest and task.job:
            self._manifest.record(
                {
                    "id": task.id,
                    "job": task.job.description,
                    "version": version_of(task.job.op),
                    "inputs": {without_secrets(path): found for path, found in task.inputs.items()},
                    "outcome": state,
                    "seconds": round(outcome.seconds, 6),
                    **({"outputs": outcome.outputs} if error is None else {"error": error}),
                }
            )
        if error is None:
            self.done += 1
        else:
            self.failed += 1
            self.failures.append(Failure(task.id, task.where, error))
        if self._log:
            line: dict[str, Any] = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "id": task.id,
                "outcome": state,
                "op": task.job.op if task.job else None,
                "shapes": None if task.errors else {name: list(shape) for name, shape in task.work.shapes.items()},
                "kernel": task.work.kernel,
                "milliseconds": round(outcome.seconds * 1000, 3),
                "bytes": task.work.read_bytes,
                "error": error,
            }
            self._log.append(line)

    def _check_records(self) -> None:
        """Count it as a failure if outcomes could not be recorded."""
        for what, lines in (("manifest", self._manifest and self._manifest.lines), ("log", self._log)):
            if lines:
                lines.end()
            if lines and lines.error:
                text = f"outcomes could not be written: {lines.error.strerror}"
                self.failures.append(Failure("", f"{what} {lines.path}", text))
                self._progress.say(f"failed: {self.failures[-1]}")
