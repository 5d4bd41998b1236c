"""`run_jobs`: jobs are checked, done ones are left out, the others run here, in workers or on a cluster."""

import os
import time
from concurrent.futures import Executor
from dataclasses import dataclass

from dmlcpu.errors import DmlError
from dmlcpu.jobs import executors
from dmlcpu.jobs.dispatch import WorkerError
from dmlcpu.jobs.entries import Jobs, PathLike
from dmlcpu.jobs.faults import JobsError
from dmlcpu.jobs.limits import Settings
from dmlcpu.jobs.outcomes import Failure, JobsRun
from dmlcpu.jobs.prepare import prepare
from dmlcpu.jobs.progress import Progress
from dmlcpu.jobs.signals import terminated_as_interrupted


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What `run_jobs` did.

    Parameters
    ----------
    jobs : int
        How many jobs there are.
    done_before : int
        How many were done by an earlier run, and have not changed.
    left_out : int
        How many of the others were not recorded as failed, where only failed jobs were to run.
    done : int
        How many ran and are done.
    failed : int
        How many ran, or were invalid, and are not done.
    failures : list of Failure
        The reason of each failed job, in the order in which they failed; and of the log and the manifest, if outcomes
        could not be written there.
    interrupted : bool
        Whether Ctrl+C or a signal ended the run.
    seconds : float
        How long all of it took.
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
        """How many did not run, as the run was interrupted or ended after too many failures."""
        return self.jobs - self.done_before - self.left_out - self.done - self.failed

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 all done, 1 some failed, 130 interrupted."""
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
    """Run operators and DxDispatch models over many files.

    All jobs are checked first. The manifest records the outcome of each: the same call again runs only jobs that are
    missing, have failed or have changed.

    Parameters
    ----------
    jobs : path, or iterable of mappings
        A file of JSON Lines or TOML, "-" for JSON Lines on standard input, or the jobs themselves: ``id``, ``op``,
        ``inputs``, ``attrs``, ``output``, and ``glob`` or ``files``, as in such a file.
    directory : path, optional
        What the jobs' paths are relative to; by default the folder of the file of jobs, else the current directory.
    manifest : path, optional
        Where outcomes are recorded; by default next to the file of jobs, in ``JOBS.manifest.jsonl``. Other jobs are not
        recorded by default, and all run.
    log : path, optional
        A file that a line of JSON is appended to for each job.
    workers : int, optional
        How many processes; by default 1, and then jobs run in this one. A cluster at an address has its own.
    threads : int, optional
        How many threads each worker computes with; by default the workers share the cores evenly, and on a cluster
        each has 1.
    max_memory : int or str, optional
        Bytes for arrays, for all workers together, also as "512M" or "4G"; by default half of the memory. At a
        scheduler's address it is the limit of each job, by default 1 GiB. Larger .npy files and zarr arrays are
        processed in blocks.
    scheduler : str, optional
        The address of a Dask scheduler: jobs run on its workers, which must see the same files at the same paths.
        "local" runs them on this machine, as without it.
    executor : concurrent.futures.Executor, optional
        The program's workers, such as those of mpi4py or a thread pool; the program shuts it down. `workers` is their
        number, if the executor does not have it. All must see the same files at the same paths.
    retries : int, default 2
        How often a job is retried after its worker was lost, or after a transient error of its files.
    timeout : float, optional
        Seconds that a job may take, without the compilation of kernels. A job that takes longer has failed, and its
        worker process is ended: each job then runs by itself in a worker process, also if `workers` is 1.
    keep_going : bool, default False
        Run the valid jobs even if others are not valid.
    check_as_you_go : bool, default False
        Check the files and the arguments of a job just before it runs; before anything runs, only the form of all jobs
        is checked. Very many jobs begin at once this way. A job that fails its check has failed.
    max_failures : int, optional
        Stop after this number of failures.
    force : bool, default False
        Run all jobs, whatever the manifest says.
    retry_failed : bool, default False
        Run only jobs that are recorded as failed.
    content_hash : bool, default False
        Detect changed inputs by their content instead of by size and time.
    require_chunks : bool, default False
        Refuse jobs on zarr or HDF5 arrays with missing chunks. By default the elements of such chunks are the array's
        fill value, as zarr may leave out chunks that hold nothing else.
    progress : bool, default False
        Show progress on standard error: a bar on a terminal, and lines. Needs the extra ``cli``.

    Returns
    -------
    BatchResult
        What was done, and each failure.

    Raises
    ------
    JobsError
        If a job is invalid, and not `keep_going`: the attribute `faults` has all errors, and nothing has run.
    ManifestError
        If the manifest is another kind of file, or in use by another run.
    WorkerError
        If workers or threads do not start, a cluster's scheduler does not answer, or `executor` breaks. Outcomes until
        then are recorded.
    DmlError
        If another argument is invalid.
    OSError
        If the file of jobs cannot be read, or manifest or log cannot be written.
    ImportError
        If a package is missing that an extra brings; the message says which.

    Notes
    -----
    Each result is written under a temporary name in its target's folder and renamed, so no reader sees a half-written
    file. The first Ctrl+C or SIGTERM lets running jobs finish; the second ends them.

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
        with JobsRun(prepared, settings, display) as run:
            try:
                run.execute()
            except WorkerError as error:
                raise WorkerError(f"{error}\n  {run.so_far()}") from error
    finally:
        if prepared.manifest:
            prepared.manifest.close()
    before, out, seconds = prepared.done_before, prepared.left_out, time.perf_counter() - start
    return BatchResult(prepared.jobs, before, out, run.done, run.failed, run.failures, run.interrupted, seconds)
