"""Hand items in chunks to an executor's workers; an item is blamed for a worker's death only if it ran alone."""

import contextlib
import math
import os
import pickle
import queue
import re
import threading
import time
import traceback
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from dmlcpu.common.secrets import without_secrets

# Yields one result for each item, in order, in lists of several that are finished together. When the second argument
# returns True, it yields the results that are finished, and ends.
Serve = Callable[[Iterator[Any], Callable[[], bool]], Iterator[list[Any]]]

_TICK = 0.1  # seconds between looks at stopping() while no chunk ends
_CHUNK = 0.4  # seconds that a chunk should take: much more than an executor's few milliseconds for each
_LONGEST = 1.0  # seconds after which a chunk returns its results, and leaves its other items to later chunks
_MOST = 512  # items in a chunk
_CHUNKS = 2  # in flight for each worker: one runs, one waits
_LOOK = 1.0  # seconds between looks at the time an item takes, at most
# A look that is late by more than _PAUSE, while the process computes less than _BUSY of the time, comes after a pause:
# the process was stopped, as by Ctrl+Z or a container's freezer. (One that computes may keep other threads waiting.)
_PAUSE, _BUSY = 1.0, 0.1
_CAUSES = 5  # items in a row, each of which may kill its workers as often as it is tried, before no more are tried

# In a worker: the runs that were asked to stop; whether a chunk has run; where late items are reported; the seconds
# that were spent compiling.
_stopped: set[str] = set()
_settled = threading.Event()
_coordinator: Connection | None = None
_compiled: Callable[[], float] = lambda: 0.0  # noqa: E731


class Lost(NamedTuple):
    """The result of an item that killed its workers, or was late."""

    reason: str
    seconds: float = 0.0


class WorkerError(RuntimeError):
    """Workers do not start or have died, or one raised an error that no job caused: the message has its traceback."""


class Workers(AbstractContextManager["Workers"]):
    """An executor and how a dispatcher uses it. This class has a program's executor, which it leaves open."""

    settling = 0.0  # seconds that the first chunk in a process waits

    def __init__(self, executor: Any, count: int) -> None:
        self.run = uuid.uuid4().hex
        self.executor = executor
        self._count = count

    def __exit__(self, *_: object) -> None:
        self.stop()

    def count(self) -> int:
        """Return how many chunks can run at the same time."""
        return self._count

    def look(self) -> set[int]:
        """Look after the workers, ten times a second; return the items that are late: their workers have ended."""
        return set()

    def stop(self) -> None:
        """Have the chunks return after the items at hand. Here only threads see this; processes go on for a second."""
        stop_chunks(self.run)

    def renew(self, reason: str) -> None:
        """Replace a broken executor. A program's executor cannot be replaced."""
        raise WorkerError(f"the executor is broken: {reason}")


# What a chunk returns: the pickled results of the first items; seconds; the traceback if `serve` raised.
_Done = tuple[bytes, float, str | None]


def _serve_chunk(run: str, pickled: bytes, settling: float, limit: tuple[float, int] | None) -> _Done:
    """Serve items in a worker; limit: the seconds that it may take, and the item that is late then."""
    if settling and not _settled.is_set():
        time.sleep(settling)
    _settled.set()
    start = time.monotonic()
    results: list[Any] = []

    def stopping() -> bool:
        return run in _stopped or (bool(results) and time.monotonic() - start > _LONGEST)

    try:
        serve, items = pickle.loads(pickled)
        with at_most(*limit) if limit else contextlib.nullcontext():
            for some in serve(iter(items), stopping):
                results.extend(some)
        return pickle.dumps(results), time.monotonic() - start, None
    except Exception:
        return b"", 0.0, traceback.format_exc()


def begin_process(coordinator: Connection | None, compiled: Callable[[], float]) -> None:
    """Begin a worker process, which sends the items that are late to its coordinator. Compilation is not counted."""
    global _coordinator, _compiled
    _coordinator, _compiled = coordinator, compiled


@contextlib.contextmanager
def at_most(seconds: float, item: int) -> Iterator[None]:
    """Send an item to the coordinator, and end this process, if a block takes longer: no kernel can be interrupted."""
    over = threading.Event()

    def watch() -> None:
        left = seconds
        while left > 0:
            wait = max(0.01, min(left, _LOOK))
            looked, computed, compiled = time.monotonic(), time.process_time(), _compiled()
            if over.wait(wait):
                return
            passed = time.monotonic() - looked
            late = passed - wait
            if late > _PAUSE and time.process_time() - computed < _BUSY * late:
                passed = wait
            left -= passed - (_compiled() - compiled)
        if _coordinator is not None:
            with contextlib.suppress(OSError):  # of a coordinator that is gone
                _coordinator.send(item)
        os._exit(1)

    thread = threading.Thread(target=watch, name="dmlcpu-deadline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def stop_chunks(run: str) -> None:
    """Have the chunks of a run in this process finish the items at hand and return."""
    _stopped.add(run)


@dataclass(slots=True)
class Dispatcher:
    """Hands items to workers in chunks. `serve`, items and results are pickled.

    When a worker dies, any item in flight may be the cause. So each chunk in flight is tried again while no other runs.
    If its worker dies again, each of its items is tried alone, up to `retries` times. Only an item that was alone is
    given up. Workers that die repeatedly while no item is finished are a WorkerError.

    An item that takes longer than `timeout` seconds is given up, and the worker ends: only `Processes` can do that. It
    is not tried again; what other workers had in hand is. Each chunk then has one item.
    """

    serve: Serve
    items: Sequence[Any]
    workers: Workers
    retries: int
    stopping: Callable[[], bool]  # once it returns True, workers finish the items at hand; others get no result
    timeout: float | None = None
    waiting: deque[int] = field(default_factory=deque)
    late: set[int] = field(default_factory=set)  # items for which the executor is broken
    suspects: deque[tuple[int, ...]] = field(default_factory=deque)  # chunks during which a worker died
    tries: Counter[int] = field(default_factory=Counter)
    in_flight: dict[Future[_Done], tuple[tuple[int, ...], bool]] = field(default_factory=dict)  # positions; if alone
    ended: queue.SimpleQueue[Future[_Done]] = field(default_factory=queue.SimpleQueue)
    pace: float = math.inf  # seconds that an item takes
    broken: str = ""  # why the executor takes no chunks any more
    deaths: int = 0  # of the executor in a row, while no item was finished
    stopped: bool = False

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield the position and the result of each item as they come."""
        self.waiting.extend(range(len(self.items)))
        while self.in_flight or ((self.waiting or self.suspects) and not self.stopped):
            if not self.stopped and self.stopping():
                self.stopped = True
                self.workers.stop()
            if not self.stopped:
                self._hand_out()
            self.late |= self.workers.look()
            try:
                future = self.ended.get(timeout=_TICK)
            except queue.Empty:
                continue
            yield from self._results_of(future)

    def _hand_out(self) -> None:
        if self.broken:
            if self.in_flight:  # these end at once
                return
            self.deaths = 0 if self.late else self.deaths + 1
            most = _CAUSES * (self.retries + 2)
            if self.deaths >= most:
                found = f"workers died {most} times in a row ({self.broken}), and no job was finished meanwhile"
                allowed = "; allowed: more memory, or fewer workers" if "SIGKILL" in self.broken else ""
                raise WorkerError(found + allowed)
            self.workers.renew(self.broken)
            self.broken = ""
            self.late.clear()
        most = _CHUNKS * self.workers.count()
        while self.waiting and len(self.in_flight) < most and not self.broken:
            share = math.ceil(len(self.waiting) / most)
            size = 1 if self.timeout else max(1, min(int(_CHUNK / self.pace), share, _MOST))
            self._submit(tuple(self.waiting.popleft() for _ in range(min(size, len(self.waiting)))), alone=False)
        if self.suspects and not self.waiting and not self.in_flight and not self.broken:
            self._submit(self.suspects.popleft(), alone=True)

    def _submit(self, positions: tuple[int, ...], *, alone: bool) -> None:
        # Pickled here: Dask would look for tasks and futures in it.
        pickled = pickle.dumps((self.serve, [self.items[position] for position in positions]))
        limit = (self.timeout, positions[0]) if self.timeout else None
        arguments = (self.workers.run, pickled, self.workers.settling, limit)
        try:
            future = self.workers.executor.submit(_serve_chunk, *arguments)
        except RuntimeError as error:  # of an executor that is broken, or was shut down
            self.broken = death_of(error) or str(error)
            self._put_back(positions, alone=alone)
            return
        self.in_flight[future] = positions, alone
        future.add_done_callback(self.ended.put)

    def _put_back(self, positions: tuple[int, ...], *, alone: bool) -> None:
        self.suspects.appendleft(positions) if alone else self.waiting.extendleft(reversed(positions))

    def _results_of(self, future: Future[_Done]) -> Iterator[tuple[int, Any]]:
        positions, alone = self.in_flight.pop(future)
        if future.cancelled():
            raise WorkerError("the workers' scheduler is gone")
        if error := future.exception():
            reason = death_of(error)
            if reason is None:
                raise WorkerError(f"a worker failed: {type(error).__name__}: {error}")
            if isinstance(error, BrokenExecutor):
                self.broken = reason
            yield from self._lost(positions, reason, alone=alone)
            return
        pickled, seconds, raised = future.result()
        if raised is not None:
            raise WorkerError(f"a worker failed:\n{without_secrets(raised)}")
        results = pickle.loads(pickled)
        if not results and not self.stopped:
            raise WorkerError("a worker failed: it ended before its items")
        if results:
            self.deaths = 0
            pace = max(seconds / len(results), 1e-6)
            self.pace = pace if self.pace == math.inf else (self.pace + pace) / 2
        self.waiting.extendleft(reversed(positions[len(results) :]))
        if not self.stopped:
            self._hand_out()  # before the results are dealt with: no worker waits meanwhile
        yield from zip(positions, results, strict=False)

    def _lost(self, positions: tuple[int, ...], reason: str, *, alone: bool) -> Iterator[tuple[int, Lost]]:
        """Have the items of a dead worker's chunk tried again; yield the item that is given up."""
        self.late |= self.workers.look()
        if positions[0] in self.late:
            yield positions[0], Lost(f"took longer than {self.timeout:g} s", self.timeout or 0.0)
            return
        if self.late:  # another item is to blame
            self._put_back(positions, alone=alone)
            return
        self.tries.update(positions)
        if not alone:
            self.suspects.append(positions)
        elif len(positions) > 1:
            self.suspects.extendleft((position,) for position in reversed(positions))
        elif self.tries[positions[0]] > self.retries:
            yield positions[0], Lost(reason)
        else:
            self.suspects.appendleft(positions)


def death_of(error: BaseException) -> str | None:
    """Return how a worker died; None if an error is not about that."""
    # Dask's. It raises the second if a worker dies between its looks at the result and at the status of a chunk.
    if type(error).__name__ == "KilledWorker" or (isinstance(error, AttributeError) and error.name == "with_traceback"):
        return "worker of the cluster died"
    if not isinstance(error, BrokenExecutor):
        return None
    # loky's message has "The exit codes of the workers are {SIGKILL(-9), EXIT(3)}".
    match = re.search(r"workers are {(?P<name>[^(]*)\((?P<signal>-?)(?P<code>\d+)\)", str(error))
    if not match:
        return "worker died"
    if not match["signal"]:
        return f"worker exited with code {match['code']}"
    return f"worker killed by {match['name'] if match['name'].startswith('SIG') else 'signal ' + match['code']}"
