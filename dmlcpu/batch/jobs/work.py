"""Carrying out jobs, in whatever process: reading, computing and writing overlap, and results are in place at once."""

import contextlib
import heapq
import itertools
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dmlcpu.batch.files import FileError, Writer, create, identity, sync_folder
from dmlcpu.batch.jobs.arguments import InputError, OpenArguments, open_arguments
from dmlcpu.batch.jobs.job import Job
from dmlcpu.batch.jobs.operations import Operation, operation_of
from dmlcpu.batch.jobs.paths import Identity
from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Region, Sink, Stopped, Tensor
from dmlcpu.errors import DmlError
from dmlcpu.runtime.threads import at_most

_log = logging.getLogger("dmlcpu")

# Files are synced by so many threads: while one waits for the disk, another can write (measured on ext4: three and more
# gain nothing).
_WRITERS = 2
_AHEAD = 8  # at most: jobs that are being read, computed or written
_LONGEST_BUNDLE = 0.1  # seconds after which a bundle of jobs is brought to the disk, however few they are


class Task(NamedTuple):
    """A job that has been checked, as it is sent to whoever carries it out."""

    job: Job
    inputs: Mapping[str, Identity]  # its files as they were when they were checked
    peak_bytes: int
    block_bytes: int | None  # to work within, in blocks; None: it is run in one piece
    results: Mapping[str, Tensor]  # that are written, as far as they are known


@dataclass(frozen=True, slots=True)
class Settings:
    """What all tasks have in common."""

    directory: Path
    threads: int
    memory: int  # bytes
    bundle: int = 0  # so many small jobs are brought to the disk together; 0: jobs are large, and go through a pipeline


class Outcome(NamedTuple):
    """What became of a task."""

    error: str | None  # None: done
    seconds: float
    outputs: Mapping[str, Identity]


class _JobError(Exception):
    """A job has failed, for a reason in words."""


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Name the file of the job, where the system names a temporary one."""
    try:
        yield
    except (OSError, FileError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise _JobError(f"output: {path!r}: {reason or error}") from error


def serve(settings: Settings, tasks: Iterator[Task], stopping: Callable[[], bool]) -> Iterator[Outcome]:
    """Carry out tasks and yield their outcomes, in order; once `stopping` is true, only of those that are finished."""
    if settings.bundle:
        yield from _in_bundles(settings, tasks, stopping)
        return
    pipeline = _Pipeline(settings, tasks, stopping)
    try:
        yield from pipeline.outcomes()
    finally:
        pipeline.close()


def _in_bundles(settings: Settings, tasks: Iterator[Task], stopping: Callable[[], bool]) -> Iterator[Outcome]:
    """Do so with small jobs: to hand one from thread to thread takes longer than to carry it out.

    Jobs are read, computed and written one after the other; while a thread brings a bundle of them to the disk, the
    next ones go on. No outcome waits for a task that has yet to come: `tasks` may say so, by a method would_wait.
    (3,000 jobs of 64 KB on Zen 4, interleaved: 1.1 ms each, through the pipeline 1.4. A second such thread gains
    nothing.)
    """
    would_wait = getattr(tasks, "would_wait", lambda: False)
    bundle: list[_Step] = []
    began = 0.0
    coming: deque[Future[list[Outcome]]] = deque()
    with ThreadPoolExecutor(1, "dmlcpu-write") as writer:
        try:
            for task in itertools.takewhile(lambda _: not stopping(), tasks):
                began = time.monotonic() if not bundle else began
                step = _Step(task, settings)
                bundle.append(step)
                for action in (step.read, lambda step=step: step.compute(stopping), step.write):
                    step.attempt(action)
                is_last = would_wait() or step.error is not None  # of a failure others may wish to know at once
                is_long = len(bundle) == settings.bundle or time.monotonic() - began > _LONGEST_BUNDLE
                if is_last or is_long:
                    coming.append(writer.submit(_finished, bundle))
                    bundle = []
                while coming and (is_last or len(coming) > 1 or coming[0].done()):
                    yield from coming.popleft().result()
        except Stopped:
            bundle.pop()
        except BaseException:
            for step in bundle:
                step.discard()
            raise
        while coming:
            yield from coming.popleft().result()
        yield from _finished(bundle)


def _finished(steps: list["_Step"]) -> list[Outcome]:
    """Bring written results to the disk and put them in place; return what became of the tasks.

    Files first, then their names: what a file system writes for the first of several files or names, is for all.
    """
    for step in steps:
        step.attempt(step.finish)
    for step in steps:
        step.attempt(step.put_in_place)
    synced: set[str] = set()
    for step in steps:
        step.attempt(partial(step.sync_folders, synced))
    return [step.outcome() for step in steps]


class _Pipeline:
    """A thread that reads ahead, this one that computes, and threads that write.

    The inbox of the computing thread gets what has been read and what has been written: (number of the task, what).
    """

    def __init__(self, settings: Settings, tasks: Iterator[Task], stopping: Callable[[], bool]) -> None:
        self._settings = settings
        self._tasks = tasks
        self._stopping = stopping
        self._inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._room = _Room(settings.memory)
        self._writers = ThreadPoolExecutor(_WRITERS, "dmlcpu-write")
        self._reader = threading.Thread(target=self._read_all, name="dmlcpu-read", daemon=True)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes in the order of the tasks."""
        self._reader.start()
        finished: list[tuple[int, Outcome]] = []
        yielded, end = 0, None
        while yielded != end:
            number, message = self._inbox.get()
            if isinstance(message, _Step):
                if end is not None and number >= end:
                    message.close()
                elif not self._compute(number, message):
                    end = number
            elif isinstance(message, BaseException):
                raise message
            elif message is None:
                end = number if end is None else min(number, end)
            else:
                heapq.heappush(finished, (number, message))
            while finished and finished[0][0] == yielded:
                yield heapq.heappop(finished)[1]
                yielded += 1

    def close(self) -> None:
        """End all threads; what is being written is finished."""
        self._room.close()
        self._writers.shutdown(cancel_futures=True)

    def _read_all(self) -> None:
        """Read the tasks' files, one task after the other; then None, with the number of tasks, goes to the inbox."""
        number = 0
        try:
            for number, task in enumerate(self._tasks):
                if not self._room.enter(task.peak_bytes) or self._stopping():
                    break
                step = _Step(task, self._settings)
                step.attempt(step.read)
                self._inbox.put((number, step))
                number += 1
            self._inbox.put((number, None))
        except BaseException as error:
            self._inbox.put((number, error))

    def _compute(self, number: int, step: "_Step") -> bool:
        """Compute, and let a writer do the rest; return False if it is not done, as all is to stop."""
        if self._stopping():
            step.close()
            return False
        try:
            step.attempt(lambda: step.compute(self._stopping))
        except Stopped:
            return False
        self._writers.submit(self._write, number, step)
        return True

    def _write(self, number: int, step: "_Step") -> None:
        try:
            step.attempt(step.write)
            [outcome] = _finished([step])
            self._room.leave(step.task.peak_bytes)
            self._inbox.put((number, outcome))
        except BaseException as error:
            self._inbox.put((number, error))


class _Room:
    """How much may be under way at a time: jobs, and bytes of memory, but always one job."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._bytes = self._jobs = 0
        self._closed = False
        self._changed = threading.Condition()

    def enter(self, nbytes: int) -> bool:
        """Wait for room; return False if there will be none any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not self._jobs or (self._jobs < _AHEAD and self._bytes + nbytes <= self._memory)
            )
            self._jobs += 1
            self._bytes += nbytes
            return not self._closed

    def leave(self, nbytes: int) -> None:
        """Make room."""
        with self._changed:
            self._jobs -= 1
            self._bytes -= nbytes
            self._changed.notify()

    def close(self) -> None:
        """Let nobody in any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()


class _Step:
    """A task on its way through the pipeline."""

    def __init__(self, task: Task, settings: Settings) -> None:
        self.task = task
        self._settings = settings
        self.error: str | None = None
        self._seconds = 0.0
        self._operation: Operation
        self._opened: OpenArguments | None = None
        self._arguments: dict[str, Any] = {}
        self._results: Mapping[str, Array] = {}
        self._writers: dict[str, Writer] = {}
        self._outputs: dict[str, Identity] = {}

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something unless the task has failed already; a failure is kept in words, and leaves nothing behind."""
        if self.error is not None:
            return
        start = time.perf_counter()
        try:
            action()
        except BaseException as error:
            self.discard()
            if not isinstance(error, Exception) or isinstance(error, Stopped):
                raise
            self.error = _in_words(error)
            _log.debug("%s failed", self.task.job.id, exc_info=error)
        finally:
            self._seconds += time.perf_counter() - start

    def outcome(self) -> Outcome:
        """Return what became of the task."""
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
        self._check_unchanged()
        self._operation = operation_of(self.task.job.op, self._settings.directory)
        self._opened = open_arguments(self.task.job, self._operation, self._settings.directory)
        if self.task.block_bytes is None:
            self._arguments = self._opened.in_memory()
            self.close()

    def compute(self, stopping: Callable[[], bool]) -> None:
        """Compute the results; in blocks they are also written, under temporary names."""
        with at_most(self._settings.threads):
            if self.task.block_bytes is None:
                self._results = self._operation.run(self._arguments)
                self._arguments = {}
            else:
                self._compute_in_blocks(self.task.block_bytes, stopping)

    def _compute_in_blocks(self, memory: int, stopping: Callable[[], bool]) -> None:
        assert self._opened is not None
        sinks: dict[str, Sink] = dict.fromkeys(self._operation.results, _Nowhere())
        for path, tensors in self._tensors(self.task.results).items():
            sinks |= self._create(path, tensors).sinks
        arguments = self._opened.for_blocks()
        self._operation.run_in_blocks(arguments, sinks, memory, stopping)
        self.close()

    def write(self) -> None:
        """Write the results under temporary names, if that is not done yet."""
        if self.task.block_bytes is None:
            tensors = {name: Tensor(array.shape, array.dtype) for name, array in self._results.items()}
            for path, wanted in self._tensors(tensors).items():
                sinks = self._create(path, wanted).sinks
                for name in wanted:
                    array = self._results[name]
                    with _writing(path):
                        sinks[name].write(tuple(slice(0, n) for n in array.shape), array)
        self._results = {}

    def finish(self) -> None:
        """Have the results on the disk, under temporary names."""
        for path, writer in self._writers.items():
            with _writing(path):
                writer.finish()

    def put_in_place(self) -> None:
        """Give the results their names, if the files they come from are still what they were."""
        self._check_unchanged()
        for path, writer in self._writers.items():
            with _writing(path):
                try:
                    writer.put_in_place()
                except FileNotFoundError:
                    found = "the new file, under its temporary name, is gone"
                    raise FileError(found, "one run at a time that writes this output") from None
                self._outputs[path] = identity(os.path.join(self._settings.directory, path), content=False)

    def sync_folders(self, synced: set[str]) -> None:
        """Have the names on the disk. synced: folders that have them already; others are added."""
        for path, writer in self._writers.items():
            if writer.folder not in synced:
                with _writing(path):
                    sync_folder(writer.folder)
                synced.add(writer.folder)

    def _create(self, path: str, tensors: dict[str, Tensor]) -> Writer:
        with _writing(path):
            self._writers[path] = create(os.path.join(self._settings.directory, path), tensors, os.urandom(6).hex())
        return self._writers[path]

    def _tensors(self, results: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """Return what goes to each file."""
        targets = self.task.job.targets
        return {path: {name: results[name] for name in names or results} for path, names in targets.items()}

    def _check_unchanged(self) -> None:
        for path, before in self.task.inputs.items():
            try:
                now = identity(os.path.join(self._settings.directory, path), content=False)
            except OSError as error:
                raise _JobError(f"inputs: {path!r}: {error.strerror or error}") from error
            if any(before[key] != value for key, value in now.items()):
                raise _JobError(f"inputs: {path!r} has changed since it was checked")


class _Nowhere:
    """Takes a result that is not wanted."""

    def write(self, region: Region, block: Array) -> None:
        pass


def _in_words(error: Exception) -> str:
    """Return a job's failure in one line."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    text = " ".join(str(error).split("\n"))
    return text if isinstance(error, DmlError | InputError | _JobError) else f"{type(error).__name__}: {text}"
