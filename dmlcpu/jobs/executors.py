"""The executors that jobs run on: loky's processes, a Dask cluster, or one that a program passes."""

import contextlib
import io
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Self

from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.imports import optional
from dmlcpu.jobs.dispatch import WorkerError, Workers, begin_process, death_of, stop_chunks
from dmlcpu.jobs.signals import signals_held_back

_STARTS = 3  # executors in a row whose workers die before they are ready
_PATIENCE = 10.0  # seconds for a scheduler to answer
_SILENCE = 30.0  # seconds without an answer, after which a scheduler counts as lost
_CENSUS = 1.0  # seconds between looks at how many workers a cluster has
_COMPILING = "compiling"  # what a worker reports; all else that it reports is an item that is late

# The environment of loky's processes. They import nothing from the current folder; a worker that holds large arrays is
# not replaced for that; one that dies prints nothing.
_OF_LOKY = {"PYTHONSAFEPATH": "1", "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18", "PYTHONFAULTHANDLER": ""}


def begin_worker(run: str, going: Connection, alive: Connection, coordinator: Connection) -> None:
    """Begin a process of loky's: leave standard input and output to the coordinator, and watch it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it cannot be held back
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)

    def watch() -> None:
        going.poll(None)
        stop_chunks(run)
        alive.poll(None)
        os._exit(1)  # no process is left that could record an outcome

    def say() -> None:
        with contextlib.suppress(OSError):  # of a coordinator that is gone
            coordinator.send(_COMPILING)

    threading.Thread(target=watch, name="dmlcpu-watch", daemon=True).start()
    from dmlcpu.runtime.compilation import watch_process  # imports Numba: while that takes, the coordinator is watched

    begin_process(coordinator, watch_process(say).total)


class Processes(Workers):
    """loky's processes on this machine.

    loky's workers survive a coordinator that is killed, and cannot be asked to stop. So `begin` starts a thread in each
    that waits for the ends of two pipes, which the system also closes when the coordinator dies.
    """

    def __init__(
        self,
        count: int,
        environment: Mapping[str, str],
        compiling: Callable[[], None] | None = None,  # called once, when a worker begins to compile
        begin: Callable[..., None] = begin_worker,
    ) -> None:
        super().__init__(None, count)
        self._environment = {**_OF_LOKY, **environment}
        self._compiling = compiling
        self._begin = begin
        self._reports, self._to_report = multiprocessing.Pipe(duplex=False)
        self._going, self._until_stopped = multiprocessing.Pipe(duplex=False)
        self._alive, self._until_closed = multiprocessing.Pipe(duplex=False)

    def __enter__(self) -> Self:
        with OnFailure(self.__exit__):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.executor is not None:
                self.executor.shutdown(kill_workers=True)
        finally:
            pipes = (self._until_stopped, self._until_closed, self._going, self._alive, self._reports, self._to_report)
            for pipe in pipes:
                pipe.close()

    def _start(self) -> None:
        loky = check_loky()
        while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass  # a pipe to a worker could take the number of a standard stream that is closed
        os.close(file)
        _start_trackers()
        for _ in range(_STARTS):
            self.executor = loky.ProcessPoolExecutor(
                self._count,
                env=self._environment,
                initializer=self._begin,
                initargs=(self.run, self._going, self._alive, self._to_report),
            )
            # Workers inherit that signals are held back: Ctrl+C reaches all, and this process decides what follows.
            # loky flushes the streams, which need not be there.
            streams = redirect_stdout(sys.stdout or io.StringIO()), redirect_stderr(sys.stderr or io.StringIO())
            with signals_held_back(signal.SIGINT, signal.SIGTERM), streams[0], streams[1]:
                ready = self.executor.submit(os.getpid)
            try:
                ready.result()
                return
            except BrokenExecutor as error:
                reason = death_of(error)
                self.executor.shutdown(kill_workers=True)
        raise WorkerError(f"workers do not start: {reason}")

    def look(self) -> set[int]:
        """Say if a worker compiles; return the items that are late: their workers have ended."""
        late = set()
        while self._reports.poll():
            report = self._reports.recv()
            if report != _COMPILING:
                late.add(report)
            elif self._compiling:
                self._compiling()
                self._compiling = None
        return late

    def stop(self) -> None:
        """Have the chunks return after the items at hand."""
        self._until_stopped.close()

    def renew(self, _: str) -> None:
        """Start new processes."""
        self.executor.shutdown(kill_workers=True)
        self._start()


def check_loky() -> ModuleType:
    """Return loky, or raise ImportError."""
    return optional("loky", "several processes need", "cli")


def _start_trackers() -> None:
    """Start the processes that clean up after loky and multiprocessing, before signals are held back.

    Starting one lets signals in again. They import nothing from the current folder, and print nothing: when a run is
    interrupted, what they clean up may be gone already, and loky's tracker would print a traceback.
    """
    from loky.backend import resource_tracker as tracker_of_loky  # type: ignore[import-untyped]

    variables = {"PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "ignore"}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        if sys.platform != "win32":
            resource_tracker.ensure_running()
        tracker_of_loky.ensure_running()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nothing)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class Cluster(Workers):
    """A Dask cluster at an address."""

    settling = 0.5  # Dask's nanny does not replace a worker that dies while it starts

    def __init__(self, address: str) -> None:
        super().__init__(None, 0)
        self._address = address
        self._threads = 0  # of all workers
        self._counted = -_CENSUS
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        distributed, enter, address = check_cluster(self._address), self._open.enter_context, self._address
        with OnFailure(self._open.close):
            # The run reports workers that die; Dask need not log it.
            enter(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
            try:
                self._client = enter(distributed.Client(address, set_as_default=False, timeout=_PATIENCE))
            except (OSError, ValueError) as error:
                raise WorkerError(f"no scheduler at {address}: {error}") from None
            self.executor = self._client.get_executor(pure=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def count(self) -> int:
        """Return how many threads all workers have."""
        now = time.monotonic()
        if now - self._counted > _CENSUS:
            with _scheduler_there():
                threads = self._client.nthreads(callback_timeout=_SILENCE)
                self._threads, self._counted = sum(threads.values()), now
        return self._threads

    def stop(self) -> None:
        """Have the chunks return after the items at hand."""
        with _scheduler_there():
            self._client.run(_stop_chunks, self.run, wait=False, on_error="ignore")


async def _stop_chunks(run: str) -> None:
    """Call `stop_chunks`."""  # a coroutine: the client need not wait for it
    stop_chunks(run)


def check_cluster(address: str) -> ModuleType:
    """Return Dask's package, or refuse a cluster: ImportError without that, WorkerError without a scheduler."""
    distributed = optional("distributed", "a cluster needs", "cluster")
    addressing = distributed.comm.addressing
    try:  # a client that cannot connect may hang at exit
        protocol, place = addressing.parse_address(address)
        if protocol in ("tcp", "tls"):
            socket.create_connection(addressing.parse_host_port(place), _PATIENCE).close()
    except (OSError, ValueError) as error:
        raise WorkerError(f"no scheduler at {address}: {error}") from None
    return distributed


@contextlib.contextmanager
def _scheduler_there() -> Iterator[None]:
    """Raise WorkerError if the scheduler does not answer."""
    try:
        yield
    except TimeoutError:
        raise WorkerError(f"the cluster's scheduler has not answered for {_SILENCE:.0f} seconds") from None
    except OSError as error:
        raise WorkerError(f"the cluster's scheduler is gone: {error}") from None
