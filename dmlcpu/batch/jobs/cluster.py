"""Items handed to the workers of a Dask cluster, on this machine or on many."""

import contextlib
import logging
import math
import multiprocessing
import pickle
import queue
import signal
import socket
import sys
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from dmlcpu.batch.jobs.limits import LOCAL
from dmlcpu.batch.jobs.signals import signals_held_back
from dmlcpu.batch.jobs.workers import Lost, Serve, WorkerError
from dmlcpu.common.extras import optional

T = TypeVar("T")
R = TypeVar("R")

_TICK = 0.1  # seconds between looks at stopping() while nothing comes
_TASK = 0.2  # seconds that a task is to take: beside them, the few milliseconds that Dask needs for one are little
_LONGEST = 1.0  # after so many seconds a task returns what it has, and others do the rest
_MOST = 256  # items in a task
_TASKS = 2  # for each thread of the cluster: one that runs, one that waits
_PATIENCE = 10.0  # seconds for a scheduler to answer
_CENSUS = 1.0  # seconds between looks at how many workers there are

_GONE = "the cluster's scheduler is gone"

# In a worker: the runs that were told to stop.
_stopped: set[str] = set()


class _Done(NamedTuple):
    """What a task returns: results of its first items; how long it took; the traceback, if `serve` raised."""

    results: list[Any]
    seconds: float
    fault: str | None


def _task(run: str, pickled: bytes) -> _Done:
    """Serve items in a worker of the cluster."""
    start = time.monotonic()
    results: list[Any] = []

    def stopping() -> bool:
        return run in _stopped or (bool(results) and time.monotonic() - start > _LONGEST)

    try:
        serve, items = pickle.loads(pickled)
        for some in serve(iter(items), stopping):
            results.extend(some)
        pickle.dumps(results)
    except Exception:
        return _Done([], 0.0, traceback.format_exc())
    return _Done(results, time.monotonic() - start, None)


async def _stop(run: str) -> None:
    """Note, in a worker, that a run is to stop."""  # a coroutine: only these need not be waited for
    _stopped.add(run)


def check(address: str) -> None:
    """Raise what is known to be in the way of `on_cluster`, before anything is done.

    Raises
    ------
    ImportError
        If Dask's scheduler is not installed.
    WorkerError
        If nobody answers at the address.
    RuntimeError
        If this process is a worker of a local cluster that imports the script which is to start it.
    """
    distributed = _distributed()
    if address != LOCAL:
        _check_there(distributed, address)
    # Such a worker has yet to be told by multiprocessing what it is for.
    if address == LOCAL and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a script that starts a local cluster is imported by each of its workers: "
            'start it under `if __name__ == "__main__":`'
        )


def _check_there(distributed: ModuleType, address: str) -> None:
    """Raise WorkerError if nobody answers at an address. A client that cannot connect may hang at exit."""
    try:
        protocol, place = distributed.comm.addressing.parse_address(address)
        if protocol in ("tcp", "tls"):
            socket.create_connection(distributed.comm.addressing.parse_host_port(place), _PATIENCE).close()
    except (OSError, ValueError) as error:
        raise WorkerError(f"no scheduler at {address}: {error}") from None


def on_cluster(
    serve: Serve[T, R],
    items: Sequence[T],
    *,
    address: str,
    workers: int,
    retries: int,
    stopping: Callable[[], bool],
) -> Iterator[tuple[int, R | Lost]]:
    """Hand items to the workers of a Dask cluster, and yield results as they come.

    Small items go many to a task. The items of a task whose worker died are tried again, each by itself.

    Parameters
    ----------
    serve : callable
        See `dmlcpu.batch.jobs.workers.Serve`. It runs in a thread that is not the main thread of its process.
    items : sequence
        What to hand out, in this order.
    address : str
        Of the scheduler, as ``tcp://host:8786``; or ``local``, for a cluster of this run's own on this machine.
    workers : int
        How many processes, of one thread each, a local cluster has.
    retries : int
        How often an item is tried again after a worker died of it. A scheduler elsewhere tries a task several times
        (its setting ``distributed.scheduler.allowed-failures``) before that counts as one try. An item of which it is
        not sure that the worker died of it is tried once more in any case.
    stopping : callable
        Looked at about ten times a second. Once it says True, workers finish the items that they are at; the others
        get no result.

    Yields
    ------
    tuple
        The position of an item, and its result, or `Lost`.

    Raises
    ------
    ImportError
        If Dask's scheduler is not installed.
    WorkerError
        If `serve` raises, there is no scheduler at the address, or it is gone before the items are done.
    """
    check(address)
    if not items:
        return
    with _quiet(), _client(address, min(workers, len(items))) as client:
        yield from _Tasks(client, serve, items, retries, stopping).results()


class _Tasks:
    """The tasks of one run."""

    def __init__(
        self, client: Any, serve: Serve[Any, Any], items: Sequence[Any], retries: int, stopping: Callable[[], bool]
    ) -> None:
        self._client = client
        self._serve = serve
        self._items = items
        self._retries = retries
        self._asked_to_stop = stopping
        self._id = uuid.uuid4().hex
        self._waiting = deque(range(len(items)))
        self._alone: deque[int] = deque()  # those of tasks whose worker died
        self._tries: dict[int, int] = {}
        self._tasks: dict[Any, tuple[tuple[int, ...], str | None]] = {}  # futures: their items, and their own worker
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pace = math.inf  # seconds that an item takes
        self._threads: dict[str, int] = {}  # of each worker
        self._counted = -math.inf
        self._stopping = False

    def results(self) -> Iterator[tuple[int, Any]]:
        """Hand out the items, and yield the results."""
        while self._tasks or ((self._waiting or self._alone) and not self._stopping):
            if not self._stopping and self._asked_to_stop():
                self._stopping = True
                with _scheduler_there():
                    self._client.run(_stop, self._id, wait=False, on_error="ignore")
            if not self._stopping:
                self._hand_out()
            try:
                future = self._ended.get(timeout=_TICK)
            except queue.Empty:
                continue
            yield from self._results_of(future)

    def _hand_out(self) -> None:
        now = time.monotonic()
        if now - self._counted > _CENSUS:
            with _scheduler_there():
                self._threads, self._counted = self._client.nthreads(), now
        threads = sum(self._threads.values())
        if self._waiting:
            while self._waiting and len(self._tasks) < _TASKS * threads:
                share = math.ceil(len(self._waiting) / (_TASKS * threads))
                size = min(max(1, int(_TASK / self._pace)), share, _MOST, len(self._waiting))
                self._submit(tuple(self._waiting.popleft() for _ in range(size)), None)
            return
        # The scheduler blames all tasks that a worker has for its death: these have a worker each, while no others run.
        taken = {worker for _, worker in self._tasks.values()}
        free = [] if None in taken else [worker for worker in self._threads if worker not in taken]
        for worker in free[: len(self._alone)]:
            self._submit((self._alone.popleft(),), worker)

    def _submit(self, positions: tuple[int, ...], worker: str | None) -> None:
        # Pickled here: Dask would look for tasks and futures in it.
        pickled = pickle.dumps((self._serve, [self._items[position] for position in positions]))
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        future = self._client.submit(_task, self._id, pickled, pure=False, **where)
        self._tasks[future] = positions, worker
        future.add_done_callback(self._ended.put)

    def _results_of(self, future: Any) -> Iterator[tuple[int, Any]]:
        positions, worker = self._tasks.pop(future)
        if future.status == "cancelled":
            raise WorkerError(_GONE)
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            yield from self._lost(positions, worker)
            return
        if error is not None:
            raise WorkerError(f"a worker failed: {type(error).__name__}: {error}")
        done: _Done = future.result()
        if done.fault is not None:
            raise WorkerError(f"a worker failed:\n{done.fault}")
        if not done.results and not self._stopping:
            raise WorkerError("a worker failed: it ended before its items")
        if done.results:
            pace = max(done.seconds / len(done.results), 1e-6)
            self._pace = pace if self._pace == math.inf else (self._pace + pace) / 2
        self._waiting.extendleft(reversed(positions[len(done.results) :]))
        if not self._stopping:
            self._hand_out()
        yield from zip(positions, done.results, strict=False)

    def _lost(self, positions: tuple[int, ...], worker: str | None) -> Iterator[tuple[int, Lost]]:
        """See to the items of a task whose worker died; yield those that are lost."""
        self._counted = -math.inf  # the worker that takes its place has another address
        for position in positions:
            tries = self._tries[position] = self._tries.get(position, 0) + 1
            if worker is not None and tries > self._retries:
                yield position, Lost("worker of the cluster died", tries)
            else:
                self._alone.append(position)


@contextlib.contextmanager
def _scheduler_there() -> Iterator[None]:
    """Say in plain words that the scheduler does not answer."""
    try:
        yield
    except OSError as error:
        raise WorkerError(f"{_GONE}: {error}") from None


@contextlib.contextmanager
def _client(address: str, workers: int) -> Iterator[Any]:
    """Connect to a cluster; a local one is there as long as the connection."""
    distributed = _distributed()
    with contextlib.ExitStack() as stack:
        if address == LOCAL:
            try:
                cluster = _local_cluster(distributed, workers)
            except RuntimeError as error:
                advice = 'a script has to start them under `if __name__ == "__main__":`'
                raise WorkerError(f"the cluster's workers do not start ({error}); {advice}") from None
            address = stack.enter_context(cluster).scheduler_address
        try:
            client = distributed.Client(address, set_as_default=False, timeout=_PATIENCE)
        except (OSError, ValueError) as error:
            raise WorkerError(f"no scheduler at {address}: {error}") from None
        yield stack.enter_context(client)


def _local_cluster(distributed: ModuleType, workers: int) -> Any:
    """Start a scheduler in this process, and workers that are heard of on this machine only."""
    from dask import config

    # Workers inherit that SIGINT is held back: Ctrl+C reaches all, and this process decides what becomes of it.
    # Python lets it in again when it starts this helper of its processes, so that comes first.
    if sys.platform != "win32":
        resource_tracker.ensure_running()
    with config.set({"distributed.scheduler.allowed-failures": 0}), signals_held_back(signal.SIGINT):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # its web server, which cannot be left out
            memory_limit=0,  # or Dask would kill workers that hold large arrays
            silence_logs=logging.CRITICAL,
        )


def _distributed() -> ModuleType:
    return optional("distributed", "a cluster needs", "'dmlcpu[cluster]'")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Dask logs of workers that die, which is told in other words, off the terminal."""
    _distributed()  # it sets up its loggers
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("distributed", "tornado")]
    loggers = [logging.getLogger(name) for name in names]

    def none(_record: logging.LogRecord) -> bool:
        return False

    for logger in loggers:
        logger.addFilter(none)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(none)
