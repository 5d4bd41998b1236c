"""From a file of jobs to tasks: it is read, compared with the manifest, and checked."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.secrets import without_secrets
from dmlcpu.errors import DmlError
from dmlcpu.files import FileError, identity
from dmlcpu.files.identities import differs
from dmlcpu.files.web import in_time, patience
from dmlcpu.jobs.apart import Apart
from dmlcpu.jobs.check import Checker
from dmlcpu.jobs.entries import Jobs, PathLike, is_stream, of_this_machine, read_jobs
from dmlcpu.jobs.faults import JobFault
from dmlcpu.jobs.job import Job, Task, identities, tasks_of
from dmlcpu.jobs.limits import Settings
from dmlcpu.jobs.lines import as_line
from dmlcpu.jobs.manifest import DONE, FAILED, Manifest, Record
from dmlcpu.jobs.operations import version_of
from dmlcpu.jobs.packed import Tasks
from dmlcpu.jobs.progress import Progress


class Prepared(NamedTuple):
    """All jobs: those to do, and how many are left out."""

    source: str
    directory: Path
    todo: Tasks
    apart: Apart  # all jobs, also those that do not run
    done_before: int
    left_out: int  # not done, but not recorded as failed, where only failed jobs run
    manifest: Manifest | None
    check: Callable[[Task], Task] | None  # of tasks that are checked as they run

    @property
    def errors(self) -> list[JobFault]:
        """All errors."""
        return [error for task in self.todo.refused for error in task.errors]

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return len(self.todo) + self.done_before + self.left_out

    def uses(self, path: PathLike) -> bool:
        """Return whether a file is the file of jobs, the manifest, or one that a job reads or writes."""
        file = os.path.realpath(path)
        own: list[PathLike] = [self.source, *([self.manifest.path] if self.manifest else [])]
        if any(os.path.realpath(each) == file for each in own) or self.apart.uses(path):
            return True
        there = [each for each in own if os.path.exists(each)] if os.path.exists(path) else []
        return any(os.path.samefile(each, path) for each in there)  # by another name: a link, or other capitals


def prepare(jobs: Jobs, settings: Settings, progress: Progress, *, lock: bool) -> Prepared:
    """Read jobs, leave out those that are done, and check the others. Without `lock` nothing will run."""
    listing = read_jobs(jobs, settings.directory)
    waits = functools.partial(patience, settings.retries, settings.timeout)
    with waits():
        tasks = Tasks(tasks_of(listing))
    apart = Apart(tasks, listing.directory)
    path = manifest_of(jobs, settings.manifest)
    if path and apart.uses(path):
        raise DmlError("run_jobs", "manifest", repr(os.fspath(path)), "a file that is not one of the jobs'")
    if settings.retry_failed and path is None:
        raise DmlError("run_jobs", "retry_failed", "given without a manifest", "a manifest, which records failures")
    recorded = Manifest(path, lock=lock) if path else None
    records: Mapping[str, Record] = recorded.records if recorded else {}
    checker = Checker(listing.directory, settings, apart, count_chunks=settings.require_chunks or not lock)

    todo, before, out = Tasks(), 0, 0
    close = recorded.close if recorded else lambda: None
    with OnFailure(close), waits():
        for task in progress.checking(apart.checked(), len(tasks)):
            job, record = task.job, records.get(task.id, {})
            if task.errors or job is None:
                todo.append(task)
            elif not settings.force and is_done(record, job, listing.directory, settings.content_hash):
                before += 1
            elif settings.retry_failed and record.get("outcome") != FAILED:
                out += 1
            else:
                todo.append(task if settings.check_as_you_go else checker.check(task))
    later = checker.check if settings.check_as_you_go else None
    return Prepared(listing.source, listing.directory, todo, apart, before, out, recorded, later)


def manifest_of(jobs: Jobs, manifest: PathLike | None) -> Path | None:
    """Return where the manifest of jobs is: as it is given, or next to their file; None: they have none."""
    if manifest is not None:
        return of_this_machine("manifest", manifest)
    if not isinstance(jobs, str | os.PathLike) or is_stream(jobs):
        return None
    return Path(f"{os.fspath(jobs)}.manifest.jsonl")


def is_done(record: Record, job: Job, directory: Path, content_hash: bool) -> bool:
    """Return whether a record is of this very job, and its files are what they were."""
    if record.get("outcome") != DONE or record.get("version") != version_of(job.op):
        return False
    before, now = (as_line({"": each}).decode() for each in (record.get("job"), job.description))
    if before != now and without_secrets(before) != now:  # as text: NaN is not equal to itself
        return False
    try:
        look = functools.partial(identities, job, directory, content=content_hash)
        inputs = in_time(look) if job.is_remote else look()
        outputs = record.get("outputs")
        return (
            _same(record.get("inputs"), inputs, content_hash, here=record.get("here", False))
            and isinstance(outputs, dict)
            and outputs.keys() == job.targets.keys()
            and all(_same_output(outputs[path], os.path.join(directory, path)) for path in job.targets)
        )
    except (FileError, OSError, DmlError, ImportError):  # also of a model that cannot be loaded
        return False


def _same(before: Any, now: Mapping[str, Mapping[str, Any]], content_hash: bool, *, here: bool) -> bool:
    """Return whether files are what they were. A remote file whose server reports no version counts as changed."""
    if not isinstance(before, dict):
        return False
    before, now = ({without_secrets(path): state for path, state in each.items()} for each in (before, now))
    if before.keys() != now.keys():
        return False
    for path, state in now.items():
        if content_hash:  # a file that was only touched is the same
            state = {key: state[key] for key in ("size", "sha256") if key in state}
        if len(state) < 2 or differs(before[path], state, same_place=here):
            return False
    return True


def _same_output(before: Any, file: str) -> bool:
    """Return whether an output is what it was; one that was written anew, on a cluster, by its content."""
    if not differs(before, identity(file, content=False), same_place=False):
        return True
    if not isinstance(before, dict) or "sha256" not in before:
        return False
    return identity(file, content=True).items() <= before.items()
