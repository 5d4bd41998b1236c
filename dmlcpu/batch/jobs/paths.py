"""The files of jobs: which a job reads, one name for each, and what tells one state of a file from another."""

import os
from collections.abc import Iterator
from pathlib import Path

from dmlcpu.batch.files import identity
from dmlcpu.batch.jobs.job import Identity, Job
from dmlcpu.batch.jobs.operations import is_model, operation_of


def files_of(job: Job) -> Iterator[str]:
    """Yield the files that a job's results come from."""
    if is_model(job.op):
        yield job.op
    yield from (each.path for each in job.inputs.values())


def identities(job: Job, directory: Path, *, content: bool) -> dict[str, Identity]:
    """Return what tells the files that a job's results come from, from others."""
    paths = [*files_of(job)]
    if is_model(job.op):
        paths += [os.path.relpath(path, directory) for path in operation_of(job.op, directory).files]
    found = {}
    for path in paths:
        file = os.path.join(directory, path)
        found[path] = identity(file, content=False)
        if content:
            found[path] |= identity(file, content=True)
    return found


class Names:
    """One name for each file, whichever way a job goes to it: over links, `..` or the root."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folders: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Return the one name of a file that need not be there."""
        folder, name = os.path.split(os.path.join(self._directory, path))
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        file = os.path.normpath(os.path.join(self._folders[folder], name))
        return os.path.realpath(file) if os.path.islink(file) else file
