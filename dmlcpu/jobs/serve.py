"""Carrying out jobs in this process: one thread reads ahead, this one computes, others bring results to the disk."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.regions import Stopped
from dmlcpu.files.web import pause
from dmlcpu.jobs.dispatch import WorkerError
from dmlcpu.jobs.job import Task
from dmlcpu.jobs.open_inputs import OnRead
from dmlcpu.jobs.step import Conditions, Outcome, Step, finished

T = TypeVar("T")

# Threads that write large files: while one waits for the disk, another can write (on ext4 three and more gain nothing).
# For the files of small jobs a second one gains nothing (3,000 jobs of 64 KB, Zen 4).
_WRITERS = 2
_PATIENCE = 0.5  # seconds that an interrupted run waits for its threads
_TICK = 0.1  # seconds between looks at stopping() in a pause
_AHEAD = 8  # jobs that are read ahead, at most


def serve(
    settings: Conditions, tasks: Iterable[Task], stopping: Callable[[], bool], on_read: OnRead = lambda _: None
) -> Iterator[list[Outcome]]:
    """Carry out tasks and yield their outcomes, in order; once `stopping` is true, only those of finished tasks."""
    loop = _Loop(settings, tasks, stopping, on_read)
    patience = None
    try:
        with contextlib.suppress(Stopped):
            for is_needed in loop.computed():
                yield from loop.written(wait_for_all=is_needed)
            yield from loop.written(wait_for_all=True)
    except KeyboardInterrupt:
        patience = _PATIENCE
        raise
    finally:
        loop.close(patience)


class _Loop:
    """The tasks under way, one or as many as there is memory for: read ahead, waiting to be written, being written."""

    def __init__(
        self, settings: Conditions, tasks: Iterable[Task], stopping: Callable[[], bool], on_read: OnRead
    ) -> None:
        self._settings = settings
        self._tasks = iter(tasks)
        self._next = next(self._tasks, None)
        self._stopping = stopping
        self._on_read = on_read
        self._memory = 0  # bytes that the tasks under way take
        self._ahead: deque[tuple[Step, Future[None] | None]] = deque()  # None: small, not read yet
        self._bundle: list[Step] = []
        self._files = 0  # of the bundle
        self._began = 0.0  # when its first task was computed
        self._writing: deque[tuple[list[Step], Future[list[Step]]]] = deque()
        self._reader = ThreadPoolExecutor(1, "dmlcpu-read")
        self._writers = ThreadPoolExecutor(_WRITERS, "dmlcpu-write")
        self._bundler = ThreadPoolExecutor(1, "dmlcpu-sync")

    def computed(self) -> Iterator[bool]:
        """Compute the tasks; yield whether all that is under way has to be written before the next."""
        with contextlib.suppress(Stopped):
            while not self._stopping():
                self._read_ahead()
                if self._ahead:
                    step, read = self._ahead.popleft()
                    self._compute(step, read)
                    yield step.error is not None  # a failure is reported at once: it may end the run
                elif self._next:  # it waits for memory of the tasks that are written
                    yield True
                else:
                    return

    def close(self, patience: float | None) -> None:
        """End the threads, or leave them after `patience` seconds. Files that are being written are finished."""
        executors = (self._reader, self._writers, self._bundler)
        for threads in executors:
            threads.shutdown(wait=False, cancel_futures=True)
        begun: Any = (*self._ahead, *self._writing)
        wait([future for _, future in begun if future and not future.cancelled()], patience)
        for threads in executors if patience is None else ():
            threads.shutdown()
        under_way = [self._bundle, *(steps for steps, future in self._writing if future.cancelled())]
        for step in [*(step for step, _ in self._ahead), *(step for steps in under_way for step in steps)]:
            step.discard()

    def _read_ahead(self) -> None:
        """Take the tasks that there is memory for, and begin to read the files of large ones."""
        while task := self._next:
            peak = task.work.peak_bytes
            room = len(self._ahead) < _AHEAD and self._memory + peak <= self._settings.memory
            if (self._ahead or self._bundle or self._writing) and not room:
                return
            step = Step(task, self._settings, self._on_read)
            self._memory += peak
            large = peak >= self._settings.small
            self._ahead.append((step, self._submit(self._reader, step.attempt, step.read) if large else None))
            self._next = next(self._tasks, None)

    def _compute(self, step: Step, read: Future[None] | None) -> None:
        """Compute a task's results, and have them written: those of a small task together with others."""
        if read:
            read.result()
        else:
            step.attempt(step.read)
        step.attempt(lambda: step.compute(self._stopping))
        if read:
            self._submit_bundle()
            with OnFailure(step.discard):
                self._writing.append(([step], self._submit(self._writers, finished, [step])))
            return
        step.attempt(step.write)
        if not self._bundle:
            self._began = time.monotonic()
        self._bundle.append(step)
        self._files += len(step.targets)
        if self._files >= self._settings.bundle or time.monotonic() - self._began > self._settings.longest:
            self._submit_bundle()

    def _submit(self, threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Have a thread call a function."""
        try:
            return threads.submit(function, *arguments)
        except RuntimeError as error:
            raise WorkerError(f"no thread for files starts ({error}); allowed: a higher limit of threads") from error

    def _submit_bundle(self) -> None:
        if self._bundle:
            self._writing.append((self._bundle, self._submit(self._bundler, finished, self._bundle)))
            self._bundle, self._files = [], 0

    def written(self, *, wait_for_all: bool) -> Iterator[list[Outcome]]:
        """Yield the outcomes of what is written; first wait until the writers have little left to do, or nothing."""
        if wait_for_all:
            self._submit_bundle()
        while self._writing and (wait_for_all or len(self._writing) > _WRITERS or self._writing[0][1].done()):
            steps, future = self._writing.popleft()
            outcomes: list[Outcome] = []
            try:
                for step in future.result():
                    outcomes.append(self._again(step) if step.may_pass else step.outcome())
            except Stopped:  # before a task is tried again: it has no outcome yet
                yield outcomes
                raise
            self._memory -= sum(step.task.work.peak_bytes for step in steps)
            yield outcomes

    def _again(self, step: Step) -> Outcome:
        """Try a task again by itself, after a pause, as often as the settings say; return its last outcome."""
        for number in range(self._settings.retries):
            if not step.may_pass:
                break
            end = time.monotonic() + pause(number, self._settings.pause)
            while (left := end - time.monotonic()) > 0:
                if self._stopping():
                    raise Stopped
                time.sleep(min(left, _TICK))
            again = Step(step.task, self._settings, self._on_read)
            again.attempt(again.read)
            again.attempt(partial(again.compute, self._stopping))
            [step] = finished([again])
        return step.outcome()
