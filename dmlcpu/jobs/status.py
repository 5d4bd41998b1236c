"""`jobs_status`: what the manifest records of a list of jobs, without running or checking any."""

from dataclasses import dataclass

from dmlcpu.common.faults import alike, printable
from dmlcpu.errors import DmlError
from dmlcpu.jobs.apart import Apart
from dmlcpu.jobs.entries import Jobs, PathLike, read_jobs
from dmlcpu.jobs.faults import first_names
from dmlcpu.jobs.job import tasks_of
from dmlcpu.jobs.manifest import DONE, FAILED, Manifest
from dmlcpu.jobs.packed import Tasks
from dmlcpu.jobs.prepare import is_done, manifest_of

_SLOWEST = 5  # jobs that are named
_NAMED = 5  # jobs that are named as stale, or with an error


@dataclass(frozen=True, slots=True)
class JobsStatus:
    """What `jobs_status` returns.

    Parameters
    ----------
    jobs : int
        How many jobs there are.
    done : int
        How many are done and have not changed.
    failed : int
        How many failed in their last run.
    stale : int
        How many are done but would run again, because the job, an input, an output or the operator's version changed.
    never_run : int
        How many have no outcome: they have not run, or a run with `force` ended before them.
    invalid : int
        How many are invalid, or share an id or an output with another job: `plan_jobs` returns the errors.
        `not_right` is an older name of it.
    slowest : list of (str, float)
        The ids of the jobs that took longest, and the seconds that they took, with the compilation of kernels.
    errors : dict of str to list of str
        The ids of the failed jobs by error, the most frequent error first. The errors omit names and positions, so
        similar errors count as one.
    stale_ids : list of str
        The ids of the stale jobs.
    """

    jobs: int
    done: int
    failed: int
    stale: int
    never_run: int
    invalid: int
    slowest: list[tuple[str, float]]
    errors: dict[str, list[str]]
    stale_ids: list[str]

    @property
    def not_right(self) -> int:
        """The same as `invalid`: its older name."""
        return self.invalid

    def __str__(self) -> str:
        words = {"done": "done", "failed": "failed", "stale": "stale", "never_run": "not run", "invalid": "invalid"}
        counts = [f"{count} {word}" for name, word in words.items() if (count := getattr(self, name))]
        jobs = "1 job" if self.jobs == 1 else f"{self.jobs} jobs"
        lines = [f"{jobs}: {', '.join(counts) or 'none'}"]
        stale = first_names([*map(printable, self.stale_ids)], _NAMED, "more")
        lines += [f"stale: {stale}"] if stale else []
        lines += ["slowest, with the compilation of kernels:"] if self.slowest else []
        lines += [f"  {seconds:.3f} s  {printable(id_)}" for id_, seconds in self.slowest]
        lines += ["errors:"] if self.errors else []
        for error, ids in self.errors.items():
            lines.append(f"  {len(ids)} of: {error} ({first_names([*map(printable, ids)], _NAMED, 'more')})")
        return "\n".join(lines)


def jobs_status(
    jobs: "Jobs",
    *,
    directory: "PathLike | None" = None,
    manifest: "PathLike | None" = None,
    content_hash: bool = False,
) -> "JobsStatus":
    """Return what the manifest records of jobs.

    No job runs, and no array is opened. Another process may be running the jobs.

    Parameters
    ----------
    jobs, directory, manifest, content_hash
        As for `run_jobs`.

    Returns
    -------
    JobsStatus
        How many jobs are done, have failed, are stale or never ran; the slowest jobs; and the errors.

    Raises
    ------
    JobsError
        If the file of jobs cannot be parsed.
    DmlError
        If the jobs have no manifest.
    ManifestError, OSError
        As for `run_jobs`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from dmlcpu import batch
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "a.npy", np.arange(10, dtype=np.float32))
    >>> job = {"op": "top_k", "inputs": {"x": "a.npy"}, "attrs": {"k": 2}, "output": "best.npz"}
    >>> files = {"directory": folder, "manifest": folder / "manifest.jsonl"}
    >>> batch.jobs_status([job], **files).never_run
    1
    >>> result = batch.run_jobs([job], **files)
    >>> batch.jobs_status([job], **files).done
    1
    """
    path = manifest_of(jobs, manifest)
    if path is None:
        raise DmlError("jobs_status", "manifest", "missing", "a file, as these jobs have none by default")
    listing = read_jobs(jobs, directory)
    tasks = Tasks(tasks_of(listing))
    records = Manifest(path, lock=False).records
    counts = dict.fromkeys(("done", "failed", "never_run", "invalid"), 0)
    stale: list[str] = []
    seconds: list[tuple[str, float]] = []
    kinds: dict[str, list[str]] = {}  # of errors, with the ids of the jobs
    for task in Apart(tasks, listing.directory).checked():
        if task.errors or task.job is None:  # a record may be another's, which has the same id
            counts["invalid"] += 1
            continue
        record = records.get(task.id, {})
        if isinstance(took := record.get("seconds"), float) and took > 0:  # not 0: jobs that could not begin
            seconds.append((task.id, took))
        if record.get("outcome") == DONE:
            if is_done(record, task.job, listing.directory, content_hash):
                counts["done"] += 1
            else:
                stale.append(task.id)
        elif record.get("outcome") == FAILED:
            counts["failed"] += 1
            kinds.setdefault(alike(str(record.get("error"))), []).append(task.id)
        else:
            counts["never_run"] += 1
    slowest = sorted(seconds, key=lambda each: -each[1])[:_SLOWEST]
    by_count = dict(sorted(kinds.items(), key=lambda kind: -len(kind[1])))
    return JobsStatus(len(tasks), **counts, stale=len(stale), slowest=slowest, errors=by_count, stale_ids=stale)
