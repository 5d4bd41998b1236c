"""`plan_jobs`: what `run_jobs` would do, found without running anything."""

from collections.abc import Mapping
from dataclasses import dataclass

from dmlcpu.common.faults import printable
from dmlcpu.common.secrets import without_secrets
from dmlcpu.files.remote import is_remote
from dmlcpu.jobs.entries import Jobs, PathLike
from dmlcpu.jobs.faults import JobFault
from dmlcpu.jobs.job import Task, Work
from dmlcpu.jobs.limits import Settings, size
from dmlcpu.jobs.prepare import prepare
from dmlcpu.jobs.progress import Progress


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """What `run_jobs` would do for a job.

    Parameters
    ----------
    id, place : str
        The job's id, and the file and line of the job.
    op : str or None
        The operation; None if the job has errors.
    inputs, outputs : mapping of str to str
        The shape of each input by its argument's name; the shape and type of each output by its result's name.
    kernel : str or None
        The kernel that would run.
    read_bytes, written_bytes, peak_bytes : int
        The bytes of elements that the job reads and writes, and an estimate of the memory that it needs.
    in_blocks : bool
        Whether it runs in blocks, because it would otherwise exceed the memory limit.
    faults : list of JobFault
        The errors that keep it from running.
    remote : list of str
        The inputs that come from other machines.
    missing_chunks : mapping of str to int or None
        The number of chunks that a zarr or HDF5 array lacks, by its argument's name; None if it is unknown. Such chunks
        read as the array's fill value.
    """

    id: str
    place: str
    op: str | None
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    kernel: str | None
    read_bytes: int
    written_bytes: int
    peak_bytes: int
    in_blocks: bool
    faults: list[JobFault]
    remote: list[str]
    missing_chunks: Mapping[str, int | None]

    def __str__(self) -> str:
        if self.faults:
            return "\n".join(f"{fault}" for fault in self.faults)
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.inputs.items())
        results = ", ".join(f"{name} {shape}" for name, shape in self.outputs.items())
        sizes = f"reads {size(self.read_bytes)}, writes {size(self.written_bytes)}, peak {size(self.peak_bytes)}"
        blocks = " in blocks" if self.in_blocks else ""
        remote = f"; from {', '.join(map(printable, self.remote))}" if self.remote else ""
        missing = "".join(
            f"; missing chunks of {name}, which are its fill value: {'not known' if count is None else count}"
            for name, count in self.missing_chunks.items()
        )
        notes = f"{blocks}{remote}{missing}"
        return f"{printable(self.id)}: {self.op} by {self.kernel}: {shapes} -> {results}; {sizes}{notes}"


@dataclass(frozen=True, slots=True)
class JobsPlan:
    """What `plan_jobs` returns.

    Parameters
    ----------
    jobs : list of PlannedJob
        The jobs that would run, and those that have errors.
    done_before : int
        How many would not run because they are done.
    left_out : int
        With `retry_failed`, how many would not run because they are not recorded as failed; otherwise 0.
    """

    jobs: list[PlannedJob]
    done_before: int
    left_out: int

    @property
    def faults(self) -> list[JobFault]:
        """The errors of all jobs."""
        return [fault for job in self.jobs for fault in job.faults]

    def __str__(self) -> str:
        good = [job for job in self.jobs if not job.faults]
        read, peak = sum(job.read_bytes for job in good), max((job.peak_bytes for job in good), default=0)
        wrong = len(self.jobs) - len(good)
        counts = [f"{len(good)} to do, reading {size(read)}, peak {size(peak)} a worker"]
        counts += [f"{wrong} invalid"] if wrong else []
        counts += [f"{self.done_before} done before"] if self.done_before else []
        counts += [f"{self.left_out} left out"] if self.left_out else []
        return "\n".join([*map(str, self.jobs), "; ".join(counts)])


def plan_jobs(
    jobs: "Jobs",
    *,
    directory: "PathLike | None" = None,
    manifest: "PathLike | None" = None,
    workers: int | None = None,
    threads: int | None = None,
    max_memory: int | str | None = None,
    scheduler: str | None = None,
    force: bool = False,
    retry_failed: bool = False,
    content_hash: bool = False,
    require_chunks: bool = False,
) -> "JobsPlan":
    """Check jobs and return what `run_jobs` would do, without running or writing anything.

    Parameters
    ----------
    jobs, directory, manifest, workers, threads, max_memory, scheduler
        As for `run_jobs`.
    force, retry_failed, content_hash, require_chunks
        As for `run_jobs`.

    Returns
    -------
    JobsPlan
        The plan of each job; invalid jobs have `faults`.

    Raises
    ------
    JobsError
        If the file of jobs cannot be parsed.
    ManifestError, DmlError, OSError, ImportError
        As for `run_jobs`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from dmlcpu import batch
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "a.npy", np.arange(10, dtype=np.float32))
    >>> job = {"op": "top_k", "inputs": {"x": "a.npy"}, "attrs": {"k": 2}, "output": "best.npz"}
    >>> plan = batch.plan_jobs([job], directory=folder)
    >>> plan.jobs[0].outputs
    {'values': '(2,) float32', 'indices': '(2,) int64'}
    """
    settings = Settings(**{name: given for name, given in locals().items() if name != "jobs"})
    prepared = prepare(jobs, settings, Progress(shown=False), lock=False)
    described: _Described = {}
    return JobsPlan([_planned(task, described) for task in prepared.todo], prepared.done_before, prepared.left_out)


# Inputs and outputs as text, which jobs with the same work share, by the work's id; with the work, so that it lives.
_Described = dict[int, tuple[Work, dict[str, str], dict[str, str]]]


def _planned(task: Task, described: _Described) -> PlannedJob:
    work = task.work
    if id(work) not in described:
        tensors = work.results.items()
        outputs = {name: f"{each.shape} {each.dtype}" if each else "what the model gives" for name, each in tensors}
        described[id(work)] = work, {name: str(shape) for name, shape in work.shapes.items()}, outputs
    _, inputs, outputs = described[id(work)]
    return PlannedJob(
        task.id,
        task.where,
        task.job.op if task.job and not task.errors else None,
        inputs,
        outputs,
        work.kernel,
        work.read_bytes,
        sum(tensor.nbytes for tensor in work.results.values() if tensor),
        work.peak_bytes,
        work.block_bytes is not None,
        task.errors,
        [without_secrets(each.path) for each in task.job.inputs.values() if is_remote(each.path)] if task.job else [],
        work.missing_chunks,
    )
