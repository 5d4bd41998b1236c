"""Calls that no signal handler interrupts: the main thread, in which Python runs handlers, waits for another one.

An exception in the middle of Numba's compiler or of an import (Ctrl-C) may leave both unusable, and a handler that
calls an operator would enter them a second time. Here a handler interrupts the wait alone. If it raises, the other
thread finishes what it does, and later calls find it done. If it calls an operator, that call waits for the other
thread as any call does.
"""

import atexit
import contextvars
import os
import sys
import threading
import traceback
from _thread import start_new_thread  # `Thread.start` takes a lock, which an interrupted main thread may hold
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from numba.core import event
from numba.core.compiler_lock import global_compiler_lock

_closed = False


def uninterrupted(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a call that is made where no signal handler runs, one at a time."""
    if not _is_interruptible():
        return function(*args)
    done: Future[Any] = Future()
    context = contextvars.copy_context()  # `numpy.errstate`, for instance

    def work() -> None:
        try:
            with global_compiler_lock:
                # The interpreter ends if it is closed: nobody waits for the result.
                result = None if _closed else context.run(function, *args)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    try:
        start_new_thread(work, ())
    except RuntimeError:  # the system has no more threads
        return function(*args)
    return done.result()


def _is_interruptible() -> bool:
    """Return whether a signal handler could interrupt this thread, and another thread could work for it.

    It could not while this one has Numba's lock (an operator within a compiled caller), or the lock of a module (an
    operator that is called while a module is imported): it may need them.
    """
    return not (
        _closed
        or _is_other_thread()
        or sys.is_finalizing()
        or global_compiler_lock.is_locked()  # by this thread
        or any(frame.f_code.co_filename == _IMPORTS for frame, _ in traceback.walk_stack(sys._getframe()))
    )


_IMPORTS = "<frozen importlib._bootstrap>"


class _Stop(event.Listener):  # type: ignore[misc]
    """Ends what other threads compile, before the next pass of Numba's compiler: nobody waits for it any more."""

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
