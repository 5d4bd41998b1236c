"""What runs in a worker process: items come through a pipe, results go back through it.

The process is a plain ``python -c`` and not one of ``multiprocessing``'s, so a worker never imports the program's main
module: a script needs no ``if __name__ == "__main__"``. No lock is shared, and there is no process beside the workers.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import Any

# The first of each message from the coordinator...
ITEMS, LAST, STOP = "items", "last", "stop"
# ...and of each from a worker. STOPPED is as ENDED, but the items that have no result are for others to do.
READY, RESULTS, ENDED, STOPPED, RAISED = "ready", "results", "ended", "stopped", "raised"

# Signals that wait, in a worker that starts, until it can answer them.
HELD_BACK = (signal.SIGINT, signal.SIGTERM)


class _Inbox:
    """What has come through the pipe; a thread reads it, so the coordinator never waits to send."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._stopping = False
        threading.Thread(target=self._receive, name="dmlcpu-items", daemon=True).start()

    def _receive(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                # The coordinator is gone: nobody can record what would come of the item at hand.
                os._exit(1)
            except BaseException as error:  # an item that cannot be unpickled
                message = (RAISED, error)
            if message[0] == STOP:
                self.stop()
            elif message[0] == ITEMS:
                for item in message[1]:
                    self._messages.put((ITEMS, item))
            else:
                self._messages.put(message)

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Give out no more items."""
        self._stopping = True
        self._messages.put((STOP, None))  # wakes who waits for an item; safe in a signal handler

    def stopping(self) -> bool:
        """Say whether no more items are given out."""
        return self._stopping

    def would_wait(self) -> bool:
        """Say whether the next item has yet to come."""
        return self._messages.empty()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """Wait for an item, and give it out."""
        kind, value = self._messages.get()
        if kind == RAISED:
            raise value
        if kind != ITEMS or self._stopping:
            self._messages.put((STOP, None))  # for whoever asks again
            raise StopIteration
        return value


def work(pipe: Connection) -> None:
    """Receive the function that serves, then items; send back results until the items end.

    Parameters
    ----------
    pipe : multiprocessing.connection.Connection
        The way to the coordinator.
    """
    try:
        _work(pipe)
    except (EOFError, OSError):  # the coordinator is gone: there is nobody to tell
        sys.exit(1)


def _work(pipe: Connection) -> None:
    try:
        serve = pipe.recv()
    except (EOFError, OSError):
        raise
    except BaseException:
        pipe.send((RAISED, traceback.format_exc()))
        return
    inbox = _Inbox(pipe)
    signal.signal(signal.SIGTERM, inbox.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all; the coordinator decides what becomes of it
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
    pipe.send((READY, None))
    pipe.send(_ending(serve, inbox, pipe))


def _ending(
    serve: Callable[[Iterator[Any], Callable[[], bool]], Iterator[list[Any]]], inbox: _Inbox, pipe: Connection
) -> tuple[str, str | None]:
    """Send the results; return the last message."""
    try:
        for results in serve(inbox, inbox.stopping):
            pipe.send((RESULTS, results))
    except BaseException:
        return RAISED, traceback.format_exc()
    return (STOPPED if inbox.stopping() else ENDED), None
