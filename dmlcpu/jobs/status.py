"""`jobs_status`: what the manifest records of a list of jobs, without running or checking any."""

from dataclasses import dataclass
from pathlib import Path

from dmlcpu.common.faults import alike, printable
from dmlcpu.errors import DmlError
from dmlcpu.jobs.apart import Apart
from dmlcpu.jobs.entries import Jobs, PathLike, read_jobs
from dmlcpu.jobs.faults import Place, first_names
from dmlcpu.jobs.job import Job, jobs_of
from dmlcpu.jobs.manifest import DONE, FAILED, Manifest, Record
from dmlcpu.jobs.packed import PackedJobs
from dmlcpu.jobs.prepare import is_done, manifest_of

_SLOWEST = 5  # jobs that are named
_NAMED = 5  # jobs that are named with an error


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
        How many were done but would run again, because the job, an input, an output or the meaning of results changed.
    never_run : int
        How many have no outcome.
    not_right : int
        How many are invalid, or share an id or an output with another job: `plan_jobs` returns the errors.
    slowest : list of (str, float)
        The ids of the jobs that took longest, and the seconds that they took.
    errors : dict of str to list of str
        The ids of the failed jobs by error, the most frequent error first. Names and positions are left out of the
        errors, so that similar errors count as one.
    """

    jobs: int
    done: int
    failed: int
    stale: int
    never_run: int
    not_right: int
    slowest: list[tuple[str, float]]
    errors: dict[str, list[str]]

    def __str__(self) -> str:
        words = {"done": "done", "failed": "failed", "stale": "stale", "never_run": "never run", "not_right": "invalid"}
        counts = [f"{count} {word}" for name, word in words.items() if (count := getattr(self, name))]
        jobs = "1 job" if self.jobs == 1 else f"{self.jobs} jobs"
        lines = [f"{jobs}: {', '.join(counts) or 'none'}"]
        lines += ["slowest:"] if self.slowest else []
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
    packed = PackedJobs(jobs_of(listing))
    records = Manifest(path, lock=False).records
    counts = dict.fromkeys(("done", "failed", "stale", "never_run", "not_right"), 0)
    seconds: list[tuple[str, float]] = []
    kinds: dict[str, list[str]] = {}  # of errors, with the ids of the jobs
    for place, job in Apart(packed, listing.directory).checked():
        record = records.get(place.id, {})
        state = _state(place, job, record, listing.directory, content_hash)
        counts[state] += 1
        if state == "not_right":  # the record is another's, which has the same id
            continue
        if isinstance(took := record.get("seconds"), float) and took > 0:  # not 0: jobs that could not begin
            seconds.append((place.id, took))
        if state == "failed":
            kinds.setdefault(alike(str(record.get("error"))), []).append(place.id)
    slowest = sorted(seconds, key=lambda each: -each[1])[:_SLOWEST]
    by_count = dict(sorted(kinds.items(), key=lambda kind: -len(kind[1])))
    return JobsStatus(len(packed), **counts, slowest=slowest, errors=by_count)


def _state(place: Place, job: Job | None, record: Record, directory: Path, content_hash: bool) -> str:
    if job is None or place.errors:
        return "not_right"
    if record.get("outcome") == FAILED:
        return "failed"
    if record.get("outcome") != DONE:
        return "never_run"
    return "done" if is_done(record, job, directory, content_hash) else "stale"
