"""`run_jobs`: jobs are checked, done ones are left out, the others run here, in workers or on a cluster."""

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmlcpu.common.faults import SHOWN, counted, printable
from dmlcpu.common.secrets import without_secrets
from dmlcpu.errors import DmlError
from dmlcpu.files.folders import is_held, remove
from dmlcpu.jobs import executors
from dmlcpu.jobs.dispatch import Dispatcher, Lost, WorkerError, Workers
from dmlcpu.jobs.entries import Jobs, PathLike
from dmlcpu.jobs.faults import JobsError
from dmlcpu.jobs.job import Task
from dmlcpu.jobs.limits import Settings
from dmlcpu.jobs.lines import Lines
from dmlcpu.jobs.manifest import DONE, FAILED
from dmlcpu.jobs.operations import version_of
from dmlcpu.jobs.prepare import Prepared, prepare
from dmlcpu.jobs.progress import COMPILING, Progress
from dmlcpu.jobs.serve import serve
from dmlcpu.jobs.signals import stop_on_signals, terminated_as_interrupted
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


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What `run_jobs` did.

    Parameters
    ----------
    jobs : int
        How many jobs there are.
    done_before : int
        How many were done by an earlier run and have not changed since.
    left_out : int
        With `retry_failed`, how many were skipped because they are not recorded as failed; otherwise 0.
    done : int
        How many this run has done.
    failed : int
        How many failed: in this run, or, with `keep_going`, in the check.
    failures : list of Failure
        The failed jobs and their errors, in the order in which they failed. If outcomes could not be written to the
        manifest or the log, that file also has an entry.
    interrupted : bool
        Whether Ctrl+C or SIGTERM ended the run.
    seconds : float
        How long the call took.
    """

    jobs: int
    done_before: int
    left_out: int
    done: int
    failed: int
    failures: list[Failure]
    interrupted: bool
    seconds: float

    @property
    def not_run(self) -> int:
        """How many did not run because the run was interrupted, or ended after `max_failures` failures."""
        return self.jobs - self.done_before - self.left_out - self.done - self.failed

    @property
    def exit_code(self) -> int:
        """The exit code of ``dmlcpu batch``: 0 without failures, 1 with some, 130 if interrupted."""
        return 130 if self.interrupted else int(bool(self.failures))


def run_jobs(
    jobs: "Jobs",
    *,
    directory: "PathLike | None" = None,
    manifest: "PathLike | None" = None,
    log: "PathLike | None" = None,
    workers: int | None = None,
    threads: int | None = None,
    max_memory: int | str | None = None,
    scheduler: str | None = None,
    executor: "Executor | None" = None,
    retries: int = 2,
    timeout: float | None = None,
    keep_going: bool = False,
    check_as_you_go: bool = False,
    max_failures: int | None = None,
    force: bool = False,
    retry_failed: bool = False,
    content_hash: bool = False,
    require_chunks: bool = False,
    progress: bool = False,
) -> "BatchResult":
    """Run operators and DxDispatch models on many files.

    All jobs are checked first. The manifest records the outcome of each job. If you repeat the call, it runs only jobs
    that have not run, have failed or have changed.

    Parameters
    ----------
    jobs : path, or iterable of mappings
        A file of JSON Lines or TOML; "-" for JSON Lines on standard input; or the jobs themselves. A job has the
        members ``id``, ``op``, ``inputs``, ``attrs``, ``output``, and ``glob`` or ``files``, as in such a file.
    directory : path, optional
        The folder to which the jobs' paths are relative. By default the folder of the file of jobs, or the current
        directory if the jobs come from no file.
    manifest : path, optional
        The file that records outcomes. By default ``JOBS.manifest.jsonl``, next to the file of jobs. Jobs that come
        from no file are not recorded by default, so all of them run.
    log : path, optional
        The file to which a line of JSON is appended for each job.
    workers : int, optional
        The number of processes. With 1, the default, jobs run in this process. A Dask cluster has its own workers.
    threads : int, optional
        The number of threads of each worker. By default the workers share the cores evenly; on a Dask cluster, the
        default is 1.
    max_memory : int or str, optional
        The memory for the arrays of all workers together, in bytes or as "512M" or "4G". By default half of the memory
        that the process may use. On a Dask cluster, the limit is for each job, by default 1 GiB. A job that exceeds the
        limit runs in blocks if its files can be read and written in parts, as .npy and zarr can.
    scheduler : str, optional
        The address of a Dask scheduler: jobs run on its workers, which must see the same files at the same paths.
        "local" is the same as None.
    executor : concurrent.futures.Executor, optional
        An executor that runs the jobs, such as mpi4py's or a thread pool. The caller shuts it down. If it does not say
        how many workers it has, pass their number as `workers`. All must see the same files at the same paths.
    retries : int, default 2
        How often a job is retried after its worker was lost, or after a transient error of its files.
    timeout : float, optional
        The seconds that a job may take, without the compilation of kernels. A job that takes longer fails, and its
        worker process ends. So with a timeout, even a single worker is a separate process.
    keep_going : bool, default False
        Run the valid jobs even if others are not valid.
    check_as_you_go : bool, default False
        Check the files and the arguments of each job just before the job runs. Before the first job, only the form of
        the jobs is checked, so the first job starts soon, however many there are. A job whose check fails has failed.
    max_failures : int, optional
        Stop after this number of failures.
    force : bool, default False
        Run all jobs, even those that the manifest records as done.
    retry_failed : bool, default False
        Run only jobs that are recorded as failed.
    content_hash : bool, default False
        Detect changed inputs by their content instead of by size and time.
    require_chunks : bool, default False
        Refuse jobs on zarr or HDF5 arrays with missing chunks. By default such chunks read as the array's fill value,
        because zarr may leave out chunks that hold nothing else.
    progress : bool, default False
        Print progress to standard error: lines, and a bar on a terminal. This needs the extra ``cli``.

    Returns
    -------
    BatchResult
        The numbers of jobs by outcome, and the failures.

    Raises
    ------
    JobsError
        If a job is invalid, unless `keep_going` is set. Nothing has run; the attribute `faults` has all errors.
    ManifestError
        If the manifest is another kind of file, or another run uses it.
    WorkerError
        If workers or threads do not start, workers die repeatedly while no job finishes, a cluster's scheduler does not
        answer, or `executor` breaks. Outcomes until then are recorded.
    DmlError
        If another argument is invalid.
    OSError
        If the file of jobs cannot be read, or manifest or log cannot be written.
    ImportError
        If a package is not installed; the message names the extra that installs it.

    Notes
    -----
    Each result is written under a temporary name in its target's folder, then renamed, so no reader sees a half-written
    file. After the first Ctrl+C or SIGTERM, running jobs finish; the second ends them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from dmlcpu import batch
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("a", "b"):
    ...     np.save(folder / f"{name}.npy", np.arange(10, dtype=np.float32))
    >>> jobs = [{"glob": "*.npy", "op": "top_k", "attrs": {"k": 2}, "output": "best/{stem}.npz"}]
    >>> result = batch.run_jobs(jobs, directory=folder)
    >>> result.done, result.failures
    (2, [])
    >>> np.load(folder / "best" / "a.npz")["indices"]
    array([9, 8])
    """
    settings = Settings(**{name: given for name, given in locals().items() if name != "jobs"})
    start = time.perf_counter()
    if settings.scheduler:
        executors.check_cluster(settings.scheduler)
    elif (settings.limits.workers > 1 or timeout) and executor is None:
        executors.check_loky()
    display = Progress(shown=progress)
    with terminated_as_interrupted():
        prepared = prepare(jobs, settings, display, lock=True)
    try:
        if prepared.errors and not keep_going:
            raise JobsError(prepared.source, prepared.errors)
        if log is not None and prepared.uses(log):
            raise DmlError("run_jobs", "log", repr(os.fspath(log)), "a file that is not one of the jobs'")
        if prepared.done_before:
            display.say(f"resuming: {prepared.done_before} of {prepared.jobs} done, {len(prepared.todo)} to do")
        run = JobsRun(prepared, settings, display, Lines(Path(settings.log)) if settings.log else None, start)
        try:
            run.execute()
        except (WorkerError, KeyboardInterrupt) as error:
            how = "; without a manifest the same run again runs all"
            if prepared.manifest:
                again = "the same run again without force" if force else "the same run again"
                how = f", as {prepared.manifest.path} records; {again} does the others"
                if (lines := prepared.manifest.lines) and lines.error:
                    how = f"; {prepared.manifest.path} does not record all: {lines.error.strerror}"
            if isinstance(error, KeyboardInterrupt):  # it ends the run at once, so the caller gets no result
                found = run.result()
                display.say(f"{found.done} done, {found.failed} failed, {found.not_run} not run{how}")
                raise
            done = f"{prepared.done_before + run.done} of {prepared.jobs} jobs are done"
            raise WorkerError(f"{error}\n  {done}{how}") from error
        finally:
            display.close()
            if run.log:
                run.log.close()
    finally:
        if prepared.manifest:
            prepared.manifest.close()
    return run.result()


@dataclass(slots=True)
class JobsRun:
    """A run under way: its counts and failures, and where they are recorded."""

    prepared: Prepared
    settings: Settings
    progress: Progress
    log: Lines | None
    start: float
    done: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    interrupted: bool = False

    def execute(self) -> None:
        """Run the tasks without errors; record the outcomes of all."""
        todo, progress = self.prepared.todo, self.progress
        if self.prepared.manifest:  # tasks without a job may have the id of a job that is done
            self.prepared.manifest.begin(task.id for task in todo if task.job)
        self._remove_strays()  # not before the manifest is locked: they may be another run's, under way
        for task in todo.refused:
            self._finished(task, Outcome("; ".join(error.reason for error in task.errors), 0.0, {}))
        for line in lines_of(self.failures):
            progress.say(line)
        tasks = todo.without_errors(self.prepared.check)
        progress.start(len(tasks), todo.read_bytes, self.failed)
        with stop_on_signals(progress.say) as asked:

            def stopping() -> bool:
                most = self.settings.max_failures
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
        settings, limits, directory = self.settings, self.settings.limits, self.prepared.directory
        # Where the directory was when the jobs were checked: a link may have been switched since then.
        place = self.prepared.apart.here if settings.scheduler is None and settings.executor is None else None
        conditions = Conditions(directory.absolute(), limits.threads, limits.memory, place, settings.retries)
        work, compiling = functools.partial(serve, conditions), functools.partial(self.progress.say, COMPILING)
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
                yield from enumerate(itertools.chain.from_iterable(work(tasks, stopping, self.progress.read)))
            return
        with workers:
            yield from Dispatcher(work, tasks, workers, settings.retries, stopping, settings.timeout).results()

    def result(self) -> BatchResult:
        """Return what has been done until now."""
        before, out, seconds = self.prepared.done_before, self.prepared.left_out, time.perf_counter() - self.start
        return BatchResult(
            self.prepared.jobs, before, out, self.done, self.failed, self.failures, self.interrupted, seconds
        )

    def _remove_strays(self) -> None:
        """Remove temporary files that a killed run, or worker, has left."""
        for path in self.prepared.apart.strays():
            with contextlib.suppress(OSError):  # of another user: it does no harm
                if not is_held(path):  # by another run, of jobs without a manifest
                    remove(path)

    def _finished(self, task: Task, outcome: Outcome) -> None:
        """Count, record and log the outcome of a job."""
        state = DONE if outcome.error is None else FAILED
        error = outcome.error and without_secrets(outcome.error)
        if self.prepared.manifest and task.job:
            self.prepared.manifest.record(
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
        if self.log:
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
            self.log.append(line)

    def _check_records(self) -> None:
        """Count it as a failure if outcomes could not be recorded."""
        for what, lines in (("manifest", self.prepared.manifest and self.prepared.manifest.lines), ("log", self.log)):
            if lines:
                lines.end()
            if lines and lines.error:
                text = f"outcomes could not be written: {lines.error.strerror}"
                self.failures.append(Failure("", f"{what} {lines.path}", text))
                self.progress.say(f"failed: {self.failures[-1]}")
