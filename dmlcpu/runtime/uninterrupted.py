"""Calls that no signal handler interrupts: the main thread, in which Python runs handlers, waits for another one.

An exception in the middle of Numba's compiler or of an import (Ctrl-C) may leave both unusable, and a handler that
calls an operator would enter them a second time. Here a handler interrupts the wait alone. If it raises, the other
thread finishes what it does, and later calls find it done. If it calls an operator, that call waits for the other
thread as any call does.
"""

import atexit
import contextlib
import contextvars
import logging
import os
import queue
import sys
import threading
import traceback
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import event
from numba.core.compiler_lock import global_compiler_lock

_log = logging.getLogger("dmlcpu")
_lines: queue.SimpleQueue[tuple[int, str, tuple[object, ...]]] = queue.SimpleQueue()
_worker = 0  # the thread that another one waits for
_closed = False


def uninterrupted(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a call that is made where no signal handler runs, one at a time."""
    if not _is_interruptible():
        return function(*args)
    result, error = None, None
    context = contextvars.copy_context()  # `numpy.errstate`, for instance
    # Not a thread or a future of Python's own: those have locks that an interrupted main thread may hold, and gevent
    # may have replaced them since.
    working = allocate_lock()
    working.acquire()

    def work() -> None:
        nonlocal function, args, result, error
        try:
            with global_compiler_lock, _waited_for():
                # The interpreter ends if it is closed: the result is not needed then.
                result = None if _closed else context.run(function, *args)
        except BaseException as raised:
            error = raised
        finally:
            del function, args  # the thread may end a moment after the call, and would keep arrays in memory
            working.release()

    try:
        start_new_thread(work, ())
    except RuntimeError:  # the system has no more threads
        work()
    while not working.acquire(timeout=_LOOK):
        _log_lines()
    _log_lines()
    try:
        if error is not None:
            raise error
        return result
    finally:
        error = None  # it would keep itself, and the arguments, in memory


@contextlib.contextmanager
def _waited_for() -> Iterator[None]:
    """Note that another thread waits for this one."""
    global _worker
    before, _worker = _worker, threading.get_ident()
    try:
        yield
    finally:
        _worker = before


def say(level: int, text: str, *args: object) -> None:
    """Log a line, but not in a thread that the main one waits for: a log handler's lock may be the main thread's."""
    _lines.put((level, text, args))
    if threading.get_ident() != _worker:
        _log_lines()


def _log_lines() -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            level, text, args = _lines.get_nowait()
            _log.log(level, text, *args)


def _is_interruptible() -> bool:
    """Return whether a signal handler could interrupt this thread, and another thread could work for it.

    It could not while this one has Numba's lock (an operator within a compiled caller), or the lock of a module (an
    operator that is called while a module is imported): it may need them. Nor could it if the process gives its threads
    too little stack.
    """
    return not (
        _closed
        or _is_other_thread()
        or sys.is_finalizing()
        or 0 < threading.stack_size() < _STACK
        or global_compiler_lock.is_locked()  # by this thread
        or any(frame.f_code.co_filename == _IMPORTS for frame, _ in traceback.walk_stack(sys._getframe()))
    )


# In seconds. A signal that comes just before a wait is handled after it; on Windows, any signal.
_LOOK = 0.1
_IMPORTS = "<frozen importlib._bootstrap>"
_STACK = 1 << 20  # in bytes. With 64 KiB LLVM ends the process; with 256 KiB it compiles `top_k`.


class _Stop(event.Listener):  # type: ignore[misc]
    """Ends what other threads compile, before the next pass of Numba's compiler: its result is not needed."""

    def on_start(self, _event: Any) -> None:
        if _is_other_thread():
            raise SystemExit

    def on_end(self, _event: Any) -> None:
        pass


def _close() -> None:
    """Wait until nothing is compiled, which must not run while the process ends."""
    global _closed
    _closed = True
    event.register("numba:run_pass", _Stop())
    with global_compiler_lock:
        pass


def _is_other_thread() -> bool:
    return threading.get_ident() != threading.main_thread().ident


def _release() -> None:
    if global_compiler_lock.is_locked():  # not if an interrupt ended the wait for it
        global_compiler_lock.release()


atexit.register(_close)
if hasattr(os, "register_at_fork"):  # not on Windows
    # A child has none of the other threads: what they were compiling would never be done there, nor its lock released.
    os.register_at_fork(before=global_compiler_lock.acquire, after_in_parent=_release, after_in_child=_release)
