"""The only place where Numba's decorators are applied.

A *kernel* is a function ``f(parts, ...)`` whose outermost loop is ``for part in prange(parts)``. It is compiled
twice, lazily: a serial twin, which costs 0.2 us a call, and a parallel one, which costs 1.5 to 120 us to launch. The
plan decides how many parts the work is worth; one part runs the serial twin. Results never depend on `parts`.
"""

import functools
import hashlib
import logging
import os
import threading
import types
from collections.abc import Callable
from typing import Any

import numba
from numba import njit

_log = logging.getLogger("dmlcpu")

# nogil: Python threads that call operators run side by side. error_model: 0 / 0 is NaN, as in NumPy.
_OPTIONS = {"nogil": True, "error_model": "numpy"}

# The workqueue layer aborts the process when two Python threads enter it: whoever finds the lock taken runs serially.
_launch = threading.Lock()

# A child forked from a process whose OpenMP threads run is killed when it starts its own: children stay serial.
_forked = False


def _after_fork_in_child() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Kernel:
    """One kernel as two compiled twins; calling it runs the one that `parts` asks for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__

    @functools.cached_property
    def serial(self) -> Any:
        """The twin whose ``prange`` is a plain loop."""
        return _compile_lazily(self.function, "serial")

    @functools.cached_property
    def parallel(self) -> Any:
        """The twin whose ``prange`` runs on Numba's threads."""
        return _compile_lazily(self.function, "parallel")

    def twin(self, parts: int) -> Callable[..., Any]:
        """Return what to call for so many parts: for one the serial twin itself, which spares a call between."""
        return self if parts > 1 else self.serial

    def __call__(self, parts: int, *args: Any) -> Any:
        """Run with the work cut into `parts` shares."""
        if parts > 1 and not _forked and _launch.acquire(blocking=False):
            try:
                return self._run_parallel(parts, *args)
            finally:
                _launch.release()
        return self.serial(parts, *args)

    def _run_parallel(self, parts: int, *args: Any) -> Any:
        active = numba.get_num_threads()
        if parts >= active:
            return self.parallel(parts, *args)
        # Fewer shares than threads: wake no more threads than there are shares. The setting is this thread's own
        # and is put back, so nobody else sees it.
        numba.set_num_threads(parts)
        try:
            return self.parallel(parts, *args)
        finally:
            numba.set_num_threads(active)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Make a kernel of a function of (parts, ...)."""
    return Kernel(function)


def device(function: Callable[..., Any]) -> Any:
    """Make a helper that kernels call; it is compiled into them and not cached by itself."""
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)


def _compile_lazily(function: Callable[..., Any], twin: str) -> Any:
    # Numba names a cache entry by file, qualified name and line, and forgets both the target options and the source
    # of helpers; so the twin and a digest of everything the function calls go into the name.
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__qualname__ = f"{function.__qualname__}_{twin}_{_digest(function)}"
    copy.__doc__ = function.__doc__
    copy.__module__ = function.__module__
    options = {**_OPTIONS, "parallel": twin == "parallel"}
    if _can_cache:
        try:
            return njit(cache=True, **options)(copy)
        except RuntimeError as error:  # a read-only installation, and no writable home
            _give_up_caching(error)
    return njit(**options)(copy)


_can_cache = True


def _give_up_caching(error: RuntimeError) -> None:
    global _can_cache
    _can_cache = False
    _log.debug("compiled kernels cannot be cached (%s); set NUMBA_CACHE_DIR to a writable folder", error)


def _digest(function: Callable[..., Any]) -> str:
    """Hash the code of `function`, of every helper it reaches and the constants they use."""
    digest = hashlib.sha256()
    seen = set()
    pending = [function]
    while pending:
        current = pending.pop()
        code = current.__code__
        if code in seen:
            continue
        seen.add(code)
        digest.update(code.co_code + repr((code.co_consts, code.co_names)).encode())
        for name in code.co_names:
            value: Any = current.__globals__.get(name)
            if hasattr(value, "py_func"):
                pending.append(value.py_func)
            elif not isinstance(value, types.ModuleType | type) and not callable(value):
                digest.update(f"{name}={value!r}".encode())  # a constant
    return digest.hexdigest()[:12]
