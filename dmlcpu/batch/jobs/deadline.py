"""The time that an item may take in a worker process, which ends when that is over: a kernel cannot be interrupted."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

_LOOK = 60.0  # seconds between looks at the time, at most: systems do not wait for any number of seconds

_compiled: Callable[[], float] = lambda: 0.0  # noqa: E731  seconds that this process has compiled
_tell: Connection | None = None


def begin(tell: Connection, compiled: Callable[[], float]) -> None:
    """Begin a worker process: what is late is told to its coordinator. Compilation is not counted."""
    global _tell, _compiled
    _tell, _compiled = tell, compiled


@contextlib.contextmanager
def at_most(seconds: float, item: int) -> Iterator[None]:
    """Tell the coordinator of an item, and end this process, if a block takes longer."""
    over = threading.Event()

    def spent() -> float:
        return time.monotonic() - _compiled()

    def watch() -> None:
        end = spent() + seconds
        while not over.wait(min(max(end - spent(), 0.01), _LOOK)):
            if spent() >= end:
                with contextlib.suppress(OSError):  # of a coordinator that is gone
                    if _tell is not None:
                        _tell.send(item)
                os._exit(1)

    thread = threading.Thread(target=watch, name="dmlcpu-deadline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
