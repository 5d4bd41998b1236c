"""Items handed to worker processes; a worker that dies takes none of them with it."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple, TypeVar

from dmlcpu.batch.jobs.signals import signals_held_back
from dmlcpu.batch.jobs.worker_process import ENDED, HELD_BACK, ITEMS, LAST, RAISED, READY, RESULTS, STOP

T = TypeVar("T")
R = TypeVar("R")

# Yields results, one for each item and in order, in lists of those that come together; none waits for a later item. May
# take items ahead of results, from another thread. When the second argument says that it is to stop, it yields what it
# has finished and ends.
Serve = Callable[[Iterator[T], Callable[[], bool]], Iterator[list[R]]]

_STARTS = 3  # so many workers in a row may die before they are ready
_TICK = 0.1  # seconds between looks at stopping() while nothing comes
_AHEAD = 0.02  # seconds of work that a worker is given in advance: with more, some would end later than others
_ENDING = 5.0  # seconds that a worker has to end after its last message

_MAIN = """\
import sys
from multiprocessing.connection import {kind}
pipe = {kind}(int(sys.argv[1]))
try:
    sys.path[:] = pipe.recv()
except (EOFError, OSError):
    sys.exit(1)
from dmlcpu.batch.jobs.signals import signals_held_back
from dmlcpu.batch.jobs.worker_process import work
work(pipe)
"""


class Lost(NamedTuple):
    """What comes in place of a result if workers died of an item."""

    reason: str
    tries: int


class WorkerError(RuntimeError):
    """A worker could not start, or the function that serves raised; the message has the traceback."""


@dataclass(eq=False, slots=True)
class _Worker:
    """A process, and what it has been given."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    items: deque[int] = field(default_factory=deque)  # positions of those without a result, in order
    ready: bool = False
    alone: bool = False  # its item is to have no others beside it
    closing: bool = False  # it was told to end, or ends by itself
    pace: float = math.inf  # seconds that an item takes
    since: float = 0.0  # when it last began or finished an item

    def send(self, kind: str, value: Any = None) -> None:
        """Send a message; if the worker is dead, its end of the pipe will tell."""
        with contextlib.suppress(OSError):
            self.pipe.send((kind, value))

    def window(self, most: int) -> int:
        """Return how many items it should have in hand."""
        ahead = 0 if self.pace == math.inf else math.ceil(_AHEAD / max(self.pace, 1e-6))
        return min(most, max(2, ahead))

    def answered(self, count: int) -> list[int]:
        """Note that the first of its items have results; return which."""
        now = time.monotonic()
        took = (now - self.since) / count
        self.pace = took if self.pace == math.inf else self.pace + (took - self.pace) / 4
        self.since = now
        self.alone = False
        return [self.items.popleft() for _ in range(count)]

    def close(self, kind: str) -> None:
        """Tell it to end."""
        self.closing = True
        self.send(kind)

    def death(self) -> str:
        """Wait for its end, which has begun; say how it died."""
        self.pipe.close()
        try:
            code = self.process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if code >= 0:
            return f"worker exited with code {code}"
        try:
            return f"worker killed by {signal.Signals(-code).name}"
        except ValueError:  # real-time signals have no names
            return f"worker killed by signal {-code}"


def in_processes(
    serve: Serve[T, R],
    items: Sequence[T],
    *,
    workers: int,
    retries: int,
    stopping: Callable[[], bool],
    window: int = 16,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, R | Lost]]:
    """Hand items to worker processes, and yield results as they come.

    If a worker dies, the items that it had are tried again, each alone in a worker. Closing the iterator, or an
    exception in it, kills the workers; so does, from their side, the death of this process.

    Parameters
    ----------
    serve : callable
        See `Serve`. It is pickled, as are items and results.
    items : sequence
        What to hand out, in this order.
    workers : int
        How many processes, at most.
    retries : int
        How often an item is tried again after a worker died that had it. An item of which it is not sure that the
        worker died of it is tried once more in any case.
    stopping : callable
        Looked at about ten times a second. Once it says True, workers finish the items that they are at and end; the
        others get no result.
    window : int
        The most items that a worker has in hand, so that it need not wait for them.
    environment : mapping, optional
        Environment variables of the workers, besides those of this process.

    Yields
    ------
    tuple
        The position of an item, and its result, or `Lost`.

    Raises
    ------
    WorkerError
        If `serve` raises, or workers cannot start.
    """
    pool = _Pool(serve, items, workers, retries, stopping, window, environment or {})
    try:
        yield from pool.results()
    finally:
        pool.kill()


class _Pool:
    """The workers of one run."""

    def __init__(
        self,
        serve: Serve[Any, Any],
        items: Sequence[Any],
        workers: int,
        retries: int,
        stopping: Callable[[], bool],
        window: int,
        environment: Mapping[str, str],
    ) -> None:
        self._serve = serve
        self._items = items
        self._most = workers
        self._retries = retries
        self._asked_to_stop = stopping
        self._window = window
        self._environment = {**os.environ, **environment}
        self._workers: list[_Worker] = []
        self._left = len(items)  # without a result
        self._next = 0  # the first item that was never handed out
        self._again: deque[int] = deque()  # left by a worker that was told to end by others
        self._alone: deque[int] = deque()  # left by one that died
        self._tries: dict[int, int] = {}
        self._failed_starts = 0
        self._stopping = False

    def results(self) -> Iterator[tuple[int, Any]]:
        """Do all that `in_processes` does, but for killing the workers."""
        while self._workers or (self._left and not self._stopping):
            if not self._stopping and self._asked_to_stop():
                self._stop()
            if not self._stopping:
                self._hand_out()
            for worker in self._heard():
                yield from self._messages(worker)

    def kill(self) -> None:
        """Kill the workers that there are."""
        for worker in self._workers:
            worker.process.kill()
        while self._workers:
            worker = self._workers.pop()
            worker.process.wait()
            worker.pipe.close()

    def _stop(self) -> None:
        self._stopping = True
        for worker in self._workers:
            if worker.ready:
                worker.close(STOP)
            else:
                worker.process.kill()

    def _hand_out(self) -> None:
        if not self._left:
            for worker in self._workers:
                if not worker.ready:
                    worker.process.kill()
                elif not worker.closing:
                    worker.close(LAST)
            return
        without = sum(not worker.items and not worker.closing for worker in self._workers)
        for _ in range(min(self._waiting() - without, self._most - len(self._workers))):
            self._start()
        for worker in self._workers:
            self._give(worker)

    def _waiting(self) -> int:
        """Return how many items are in no worker."""
        return len(self._items) - self._next + len(self._again) + len(self._alone)

    def _start(self) -> None:
        ours, theirs = Pipe()
        code = _MAIN.format(kind=type(theirs).__name__)
        with theirs, signals_held_back(*HELD_BACK):
            process = subprocess.Popen(
                # -P: no module of the current folder is taken for one of Python's.
                [sys.executable, "-P", "-c", code, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=self._environment,
                **_inheriting(theirs.fileno()),
            )
            worker = _Worker(process, ours)
            self._workers.append(worker)
        with contextlib.suppress(OSError):
            worker.pipe.send(sys.path)
            worker.pipe.send(self._serve)

    def _give(self, worker: _Worker) -> None:
        """Hand a worker the items that it should have."""
        if not worker.ready or worker.closing or self._stopping:
            return
        if not worker.items:
            worker.since = time.monotonic()
        given = []
        while (position := self._item_for(worker)) is not None:
            worker.items.append(position)
            given.append(self._items[position])
        if given:
            worker.send(ITEMS, given)

    def _item_for(self, worker: _Worker) -> int | None:
        if self._alone and not worker.items:
            worker.alone = True
            return self._alone.popleft()
        most = worker.window(self._window)
        if len(self._workers) > 1:  # the last items are for those who are done first
            most = min(most, math.ceil(self._waiting() / len(self._workers)))
        if worker.alone or len(worker.items) >= most:
            return None
        if self._again:
            return self._again.popleft()
        if self._next == len(self._items):
            return None
        self._next += 1
        return self._next - 1

    def _heard(self) -> list[_Worker]:
        """Wait for workers that have something to say; or that say nothing, being dead."""
        if not self._workers:
            return []
        talking = wait([worker.pipe for worker in self._workers], _TICK)
        if talking:
            return [worker for worker in self._workers if worker.pipe in talking]
        # A pipe may be held open by a process that the worker has started.
        return [worker for worker in self._workers if worker.process.poll() is not None]

    def _messages(self, worker: _Worker) -> Iterator[tuple[int, Any]]:
        """Read what a worker has said; yield the results."""
        ended = worker.process.poll() is not None  # asked first: then all that it has said is in the pipe
        while worker.pipe.poll():
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, OSError):
                break
            if kind == RESULTS:
                positions = worker.answered(len(value))
                self._left -= len(value)
                self._give(worker)
                yield from zip(positions, value, strict=True)
            elif kind == READY:
                worker.ready = True
                self._failed_starts = 0
            elif kind == RAISED:
                raise WorkerError(f"a worker failed:\n{value}")
            elif kind == ENDED and worker.items:
                raise WorkerError("a worker failed: it ended before its items")
            else:
                worker.closing = True
        else:
            if not ended:
                return
        self._workers.remove(worker)
        yield from self._buried(worker, worker.death())

    def _buried(self, worker: _Worker, reason: str) -> Iterator[tuple[int, Lost]]:
        """See to the items of a worker that has ended; yield those that are lost."""
        if self._stopping or not self._left:
            return
        if worker.closing:
            self._again.extend(worker.items)
            return
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts == _STARTS:
                raise WorkerError(f"workers do not start: {reason}")
        alone = len(worker.items) == 1
        for position in worker.items:
            tries = self._tries[position] = self._tries.get(position, 0) + 1
            if alone and tries > self._retries:
                self._left -= 1
                yield position, Lost(reason, tries)
            else:
                self._alone.append(position)


def _inheriting(handle: int) -> dict[str, Any]:
    """Return the arguments of `subprocess.Popen` that let the process have a handle (elsewhere: a descriptor)."""
    if sys.platform != "win32":
        return {"pass_fds": (handle,)}
    os.set_handle_inheritable(handle, True)  # until it is closed here
    return {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})}
