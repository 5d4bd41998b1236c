"""The time that an item may take in a worker process, which ends when that is over: a kernel cannot be interrupted."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

_LOOK = 60.0  # seconds between looks at the time, at most: systems do not wait for any number of seconds

_compiled: Callable[[], float] = lambda: 0.0  # noqa: E731  seconds that this process has compiled
_coordinator: Connection | None = None


def begin(coordinator: Connection | None, compiled: Callable[[], float]) -> None:
    """Begin a worker process, which sends the items that are late to its coordinator. Compilation is not counted."""
    global _coordinator, _compiled
    _coordinator, _compiled = coordinator, compiled


@contextlib.contextmanager
def at_most(seconds: float, item: int) -> Iterator[None]:
    """Send an item to the coordinator, and end this process, if a block takes longer."""
    over = threading.Event()

    def spent() -> float:
        return time.monotonic() - _compiled()

    def watch() -> None:
        end = spent() + seconds
        while not over.wait(min(max(end - spent(), 0.01), _LOOK)):
            if spent() < end:
                continue
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
