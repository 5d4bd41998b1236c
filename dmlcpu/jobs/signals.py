"""Signals: the first Ctrl+C or SIGTERM asks to stop, the second stops at once."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """Yield an event that the first signal sets, in the main thread; a second one raises KeyboardInterrupt."""
    asked = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        say(f"{signal.Signals(number).name}: finishing the running jobs; send it again to stop at once")

    with _handlers({signal.SIGINT: handle, signal.SIGTERM: handle}):
        yield asked


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM do what Ctrl+C does: call its handler, and raise KeyboardInterrupt."""
    interrupt = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        if callable(interrupt):
            interrupt(number, frame)
        raise KeyboardInterrupt

    with _handlers({signal.SIGTERM: handle}):
        yield


@contextmanager
def signals_held_back(*signals: signal.Signals) -> Iterator[None]:
    """Block signals for this thread and for the processes that it starts, which inherit that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handlers(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Set handlers of signals for a while, if this is the main thread, which gets the signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
