"""How a job runs: it is read, computed, written, synced and put in place."""

import contextlib
import errno
import functools
import logging
import os
import stat
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Sink, Stopped, Tensor
from dmlcpu.common.secrets import without_secrets
from dmlcpu.errors import DmlError
from dmlcpu.files import FileError, Identity, Writer, create, identity
from dmlcpu.files.base import identity_of
from dmlcpu.files.identities import differs
from dmlcpu.files.remote import located
from dmlcpu.files.targets import file_of, sync_folder
from dmlcpu.files.web import patience
from dmlcpu.jobs.job import Task, relative
from dmlcpu.jobs.open_inputs import JobError, OnRead, OpenArguments, open_arguments
from dmlcpu.jobs.operations import Operation, operation_of
from dmlcpu.runtime.threads import limit_threads

_log = logging.getLogger("dmlcpu")

# Errors that a second try meets again.
_LASTING = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_LASTING_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.ENAMETOOLONG, errno.EINVAL)


class Conditions(NamedTuple):
    """What all tasks have in common."""

    directory: Path
    threads: int
    memory: int  # bytes
    place: str | None = None  # where links lead the directory; None: of other machines it is not known
    retries: int = 0  # of a task whose files could not be read or written
    pause: float = 0.1  # seconds before the first of them; before each further one twice as long
    # A job that takes less memory is small. The thread that computes also reads and writes its files: to hand it from
    # thread to thread takes longer than the job. (3,000 jobs of 64 KB on Zen 4: 1.1 ms each, 1.4 ms through threads.)
    small: int = 1 << 20
    # The files of small jobs are brought to the disk together. (10,000 jobs of 64 KB in one process, ext4, Zen 4,
    # medians of 4: 0.96 ms each with 8 files, 0.92 with 16, 0.85 with 32.)
    bundle: int = 32
    longest: float = 0.1  # seconds of small jobs after which their files are brought to the disk, however few they are


class Outcome(NamedTuple):
    """The outcome of a task."""

    error: str | None  # None: done
    seconds: float
    outputs: Mapping[str, Identity]


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Replace the temporary name in the system's errors by the name that the job gives."""
    try:
        yield
    except (OSError, FileError) as error:
        raise JobError(f"output: {path!r}: {getattr(error, 'strerror', None) or error}") from error


class Step:
    """A task on its way."""

    def __init__(self, task: Task, settings: Conditions, on_read: OnRead) -> None:
        assert task.job is not None
        self.task = task
        self.targets = task.job.targets
        self._job = task.job
        self._settings = settings
        self._on_read = on_read
        self.error: str | None = None
        self.may_pass = False  # what has failed may succeed later
        self._seconds = 0.0
        self._operation: Operation
        self._inputs: dict[str, Identity] = {}  # as they were before they were read
        self._opened: OpenArguments | None = None
        self._arguments: dict[str, Any] = {}
        self._results: Mapping[str, Array] = {}
        self._writers: dict[str, Writer] = {}
        self._outputs: dict[str, Identity] = {}

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something unless the task has failed. A failure is kept as text, and temporary files are removed."""
        if self.error is not None:
            return
        start = time.perf_counter()
        try:
            with patience(self._settings.retries):
                action()
        except BaseException as error:
            self.discard()
            if not isinstance(error, Exception) or isinstance(error, Stopped):
                raise
            text = " ".join(str(error).split("\n"))
            self.error = text if isinstance(error, DmlError | JobError) else f"{type(error).__name__}: {text}"
            if isinstance(error, MemoryError):
                self.error = "not enough memory"
            # The system or a network may recover, a file's name or place stays as it is.
            cause = error if isinstance(error, OSError) else error.__cause__
            lasting = isinstance(cause, _LASTING) or getattr(cause, "errno", None) in _LASTING_NUMBERS
            self.may_pass = isinstance(cause, OSError) and not lasting
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s failed\n%s", self.task.id, without_secrets("".join(traceback.format_exception(error))))
        finally:
            self._seconds += time.perf_counter() - start

    def outcome(self) -> Outcome:
        """Return the outcome of the task."""
        return Outcome(self.error, self._seconds, self._outputs)

    def close(self) -> None:
        """Close the files that are read."""
        if self._opened is not None:
            self._opened.close()

    def discard(self) -> None:
        """Close the files that are read, and remove what has been written."""
        self.close()
        for writer in self._writers.values():
            writer.discard()

    def read(self) -> None:
        """Open the files, and read them if they fit in memory."""
        if self.task.errors:  # it was checked on its way here
            raise JobError("; ".join(error.reason for error in self.task.errors))
        # Of other machines only this one's own looks are compared in all.
        self._inputs = self._unchanged(self.task.inputs, same_place=self._settings.place is not None)
        directory = self._settings.directory
        self._operation = operation_of(self._job.op, directory)
        self._opened = open_arguments(self._job, self._operation, directory)
        op, read = directory / self._job.op, dict(self._opened.identities)
        for file, state in self._operation.states.items():
            read[self._job.op if file == op else relative(file, directory)] = state
        for path, found in read.items():  # a link may have led elsewhere for a moment
            if differs(self._inputs.get(path), found, same_place=True):
                raise JobError(f"inputs: {path!r} has changed since it was checked")
        if self.task.work.block_bytes is None:
            self._arguments = self._opened.in_memory()
            self.close()

    def compute(self, stopping: Callable[[], bool]) -> None:
        """Compute the results; in blocks they are also written, under temporary names."""
        with limit_threads(self._settings.threads):
            if self.task.work.block_bytes is None:
                self._results = self._operation.run(self._arguments)
                self._arguments = {}
                return
            assert self._opened is not None
            unwanted: Any = SimpleNamespace(write=lambda region, block: None)
            sinks: dict[str, Sink] = dict.fromkeys(self._operation.results, unwanted)
            known = {name: tensor for name, tensor in self.task.work.results.items() if tensor}
            for path, tensors in self._tensors_of_files(known).items():
                sinks |= self._create(path, tensors).sinks
            arguments = self._opened.for_blocks(self._on_read)
            self._operation.run_in_blocks(arguments, sinks, self.task.work.block_bytes, stopping)
            self.close()

    def write(self) -> None:
        """Write the results under temporary names, unless that is done already."""
        tensors = {name: Tensor(array.shape, array.dtype) for name, array in self._results.items()}
        for path, wanted in self._tensors_of_files(tensors).items() if tensors else ():
            writer = self._create(path, wanted)
            with _writing(path):
                writer.write({name: self._results[name] for name in wanted})
        self._results = {}

    def finish(self) -> None:
        """Bring the results to the disk, under temporary names."""
        for path, writer in self._writers.items():
            with _writing(path):
                writer.finish()

    def put_in_place(self) -> None:
        """Give the results their names, if the inputs have not changed since they were checked."""
        self._unchanged(self._inputs, same_place=True)
        for path, writer in self._writers.items():
            with _writing(path):
                try:
                    writer.put_in_place()
                except FileNotFoundError:
                    found = "the new file, under its temporary name, is gone"
                    raise FileError(found, "one run at a time that writes this output") from None
                file = os.path.join(self._settings.directory, path)
                state = self._placed(writer, file)
                self._outputs[path] = (
                    identity_of(state) if stat.S_ISREG(state.st_mode) else identity(file, content=False)
                )
                if self._settings.place is None:  # a cluster may carry out a job again that is recorded as done
                    self._outputs[path] |= identity(file, content=True)

    def _placed(self, writer: Writer, file: str) -> os.stat_result:
        """Return the state of a result, if its path leads to it: a link may have been switched, or a folder renamed."""
        state = None
        with contextlib.suppress(FileNotFoundError):
            state = os.stat(file)
            if file_of(state) == writer.placed:
                return state
        if (found := os.path.realpath(file)) != writer.target:
            raise FileError(f"a link to {found!r}", f"{writer.target!r}, as when the job was checked")
        if state is None or self._settings.place is not None:  # a cluster may carry out a job twice at the same time
            found = "another file" if state else "no file"
            raise FileError(f"{found} in the place of the result", "one run at a time that writes this output")
        return state

    def sync_folders(self, synced: Callable[[str], OSError | None]) -> None:
        """Sync the folders of the results by a function that returns the failure of a folder."""
        for path, writer in self._writers.items():
            with _writing(path):
                if failure := synced(writer.folder):
                    raise failure

    def _create(self, path: str, tensors: dict[str, Tensor]) -> Writer:
        directory, place = self._settings.directory, self._settings.place
        if place is not None:  # no link that has come since the check is followed
            place = self.task.places.get(path) or os.path.normpath(os.path.join(place, path))
        with _writing(path):
            file, token = os.path.join(directory, path), os.urandom(6).hex()
            self._writers[path] = create(file, tensors, token, place, self._operation.form)
        return self._writers[path]

    def _tensors_of_files(self, results: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        return {path: {name: results[name] for name in names or results} for path, names in self.targets.items()}

    def _unchanged(self, files: Mapping[str, Identity], *, same_place: bool) -> dict[str, Identity]:
        """Return the identities of files as they are now, or raise if one has changed."""
        found = {}
        for path, before in files.items():
            try:
                file, within = located(self._settings.directory, path), path != self._job.op
                found[path] = identity(file, content=False, within=within)
            except OSError as error:
                raise JobError(f"inputs: {path!r}: {error.strerror or error}") from error
            if differs(before, found[path], same_place=same_place):
                raise JobError(f"inputs: {path!r} has changed since it was checked")
        return found


def finished(steps: list[Step]) -> list[Step]:
    """Write results, bring them to the disk and put them in place; return the steps."""

    @functools.cache
    def synced(folder: str) -> OSError | None:
        """Sync a folder once: the system reports a failure once."""
        try:
            sync_folder(folder)
        except OSError as error:
            return error
        return None

    try:  # first all files, then their names: a file system that writes the first of them also writes the others
        for step in steps:
            step.attempt(step.write)
            step.attempt(step.finish)
        for step in steps:
            step.attempt(step.put_in_place)
        for step in steps:
            step.attempt(functools.partial(step.sync_folders, synced))
    except BaseException:
        for step in steps:
            step.discard()
        raise
    return steps
