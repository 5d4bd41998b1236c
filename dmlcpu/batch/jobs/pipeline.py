"""Large jobs: reading, computing and writing overlap."""

import heapq
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dmlcpu.batch.jobs.arguments import Tell
from dmlcpu.batch.jobs.step import Outcome, Settings, Step, Task, finished
from dmlcpu.common.regions import Stopped

# Files are synced by so many threads: while one waits for the disk, another can write (measured on ext4: three and more
# gain nothing).
_WRITERS = 2
_AHEAD = 8  # at most: jobs that are being read, computed or written


class Pipeline:
    """A thread that reads ahead, this one that computes, and threads that write.

    The inbox of the computing thread gets what has been read and what has been written: (number of the task, what).
    """

    def __init__(self, settings: Settings, tasks: Iterator[Task], stopping: Callable[[], bool], tell: Tell) -> None:
        self._settings = settings
        self._tasks = tasks
        self._stopping = stopping
        self._tell = tell
        self._inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._room = _Room(settings.memory)
        self._writers = ThreadPoolExecutor(_WRITERS, "dmlcpu-write")
        self._reader = threading.Thread(target=self._read_all, name="dmlcpu-read", daemon=True)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes in the order of the tasks."""
        self._reader.start()
        done: list[tuple[int, Outcome]] = []
        yielded, end = 0, None
        while yielded != end:
            number, message = self._inbox.get()
            if isinstance(message, Step):
                if end is not None and number >= end:
                    message.close()
                elif not self._compute(number, message):
                    end = number
            elif isinstance(message, BaseException):
                raise message
            elif message is None:
                end = number if end is None else min(number, end)
            else:
                heapq.heappush(done, (number, message))
            while done and done[0][0] == yielded:
                yield heapq.heappop(done)[1]
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
                step = Step(task, self._settings, self._tell)
                step.attempt(step.read)
                self._inbox.put((number, step))
                number += 1
            self._inbox.put((number, None))
        except BaseException as error:
            self._inbox.put((number, error))

    def _compute(self, number: int, step: Step) -> bool:
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

    def _write(self, number: int, step: Step) -> None:
        try:
            step.attempt(step.write)
            [outcome] = finished([step])
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
