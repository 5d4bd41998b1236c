"""The only place where Numba's decorators are applied.

A *kernel* is a function ``f(part, parts, ...)`` that does one share of the work. It is compiled once, lazily. The plan
decides how many parts the work is worth: for one, Python calls the kernel, which costs 0.2 us. For more, the one
function here that has a ``prange`` gets the kernel's address and calls it for every part, which costs 1.5 to 120 us to
launch. Results never depend on `parts`.

A parallel twin of every kernel would do the same. Numba compiles twins from the source on, though, and passes the
parallel one's body through LLVM three times: that was half of all the time that compiling took.
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
import numpy as np
from llvmlite import ir
from numba import njit, prange

from dmlcpu.runtime.cache import KernelCache
from dmlcpu.runtime.intrinsics import call

_log = logging.getLogger("dmlcpu")

# nogil: Python threads that call operators run side by side. error_model: 0 / 0 is NaN, as in NumPy.
_OPTIONS = {"nogil": True, "error_model": "numpy"}
# A helper has no wrappers to be called by from Python, which would take a third of the compile time. Nor does it count
# references to the arrays it is given: the atomic operations took more than a third of a small product's time.
_HELPER_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}

# The workqueue layer aborts the process when two Python threads enter it: whoever finds the lock taken runs serially.
_launching = threading.Lock()
_making = threading.RLock()  # a signal handler or a finalizer may need a kernel while this thread makes one

# A child forked from a process whose OpenMP threads run is killed when it starts its own: children stay serial.
_forked = False


def _after_fork_in_child() -> None:
    global _forked, _making
    _forked = True
    _making = threading.RLock()  # a thread that was left behind may have held the other


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Kernel:
    """One kernel; calling it with (0, parts, ...) does all shares of the work, on threads if there are several."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self._share: Any = None
        self._compiled: dict[tuple[Any, ...], tuple[int, Any]] = {}

    @property
    def share(self) -> Any:
        """The compiled function of (part, parts, ...)."""
        if self._share is None:
            with _making:  # or threads that come first together would each have their own
                self._share = self._share or _compile_lazily(self.function)
        return self._share

    def for_parts(self, parts: int) -> Callable[..., Any]:
        """Return what to call with (0, parts, ...): for one part `share` itself, which spares a call between."""
        return self if parts > 1 else self.share

    def __call__(self, _first: int, parts: int, *args: Any) -> None:
        """Run with the work cut into `parts` shares."""
        if parts > 1 and not _forked and _launching.acquire(blocking=False):
            try:
                _run_in_parallel(self.address(args), parts, args)
            finally:
                _launching.release()
        else:
            for part in range(parts):
                self.share(part, parts, *args)

    def address(self, args: tuple[Any, ...]) -> int:
        """Return where the machine code for arguments of these types is."""
        # What Numba's types follow from: to ask it for them would take 8 us an argument.
        kinds = tuple([(x.dtype.num, x.ndim, x.flags.num) if isinstance(x, np.ndarray) else type(x) for x in args])
        found = self._compiled.get(kinds)
        if found is None:
            share = self.share
            signature = (numba.intp, numba.intp, *map(share.typeof_pyval, args))
            share.compile(signature)
            result = share.overloads[signature]
            address = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
            found = self._compiled[kinds] = address, result  # which keeps the code where it is
        return found[0]


def _launch(address, parts, args):  # type: ignore[no-untyped-def]
    """Call the kernel at an address for every part. This is the loop that runs on Numba's threads."""
    for part in prange(parts):
        call(address, part, parts, args)


@functools.cache
def launcher() -> Any:
    """Return the compiled function that launches kernels on threads."""
    return _compile_lazily(_launch, parallel=True)


def _run_in_parallel(address: int, parts: int, args: tuple[Any, ...]) -> None:
    active = numba.get_num_threads()
    if parts >= active:
        launcher()(address, parts, args)
        return
    # Fewer shares than threads: wake no more threads than there are shares. The setting is this thread's own
    # and is put back, so nobody else sees it.
    numba.set_num_threads(parts)
    try:
        launcher()(address, parts, args)
    finally:
        numba.set_num_threads(active)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Make a kernel of a function of (part, parts, ...) that returns nothing."""
    return Kernel(function)


def variant(function: Callable[..., Any], name: str, **names: Any) -> Kernel:
    """Make a kernel of a function in which some global names mean something else."""
    copy = types.FunctionType(function.__code__.replace(co_name=name), {**function.__globals__, **names}, name)
    copy.__qualname__, copy.__doc__, copy.__module__ = name, function.__doc__, function.__module__
    return Kernel(copy)


def device(function: Callable[..., Any]) -> Any:
    """Make a helper that kernels call; it is compiled into them, is not cached by itself and not called from Python.

    It counts no references, so it must not call a `viewer`: what that returns would never be given back.
    """
    return njit(**_HELPER_OPTIONS)(function)


def viewer(function: Callable[..., Any]) -> Any:
    """Make a helper that returns arrays, which are views of those it is given: it has to count references."""
    return njit(**{**_HELPER_OPTIONS, "_nrt": True})(function)


def _compile_lazily(function: Callable[..., Any], *, parallel: bool = False) -> Any:
    # Numba names a cache entry by file, qualified name and line, and forgets the source of helpers; so a digest of
    # everything the function calls goes into the name.
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__qualname__ = f"{function.__qualname__}_{_digest(function)}"
    copy.__doc__ = function.__doc__
    copy.__module__ = function.__module__
    compiled = njit(**_OPTIONS, parallel=parallel)(copy)
    if _can_cache:
        try:
            compiled._cache = KernelCache(copy)  # where cache=True puts Numba's own
        except RuntimeError as error:  # a read-only installation, and no writable home
            _give_up_caching(error)
    return compiled


_can_cache = True


def _give_up_caching(error: RuntimeError) -> None:
    global _can_cache
    _can_cache = False
    _log.debug("compiled kernels cannot be cached (%s); set NUMBA_CACHE_DIR to a writable folder", error)


def _digest(function: Callable[..., Any]) -> str:
    """Hash the code of `function`, of every helper it reaches and the constants they use."""
    digest = hashlib.sha256(repr(_HELPER_OPTIONS).encode())
    seen = set()
    pending = [(function.__code__, function.__globals__)]
    while pending:
        code, names = pending.pop()
        if code in seen:
            continue
        seen.add(code)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):  # a function within; its text tells where it lies in memory
                pending.append((constant, names))
            else:
                digest.update(repr(constant).encode())
        digest.update(code.co_code + repr(code.co_names).encode())
        values = [(name, names.get(name)) for name in code.co_names]
        while values:
            name, value = values.pop(0)
            helper: Any = getattr(value, "py_func", None) or getattr(value, "_defn", None)  # a function, an intrinsic
            if isinstance(value, types.FunctionType) and value.__module__.startswith("dmlcpu."):
                helper = value  # of an intrinsic
            if isinstance(value, type) and value.__module__.startswith("dmlcpu."):
                values += [(name, member) for name, member in vars(value).items() if callable(member)]
            if helper is not None:
                pending.append((helper.__code__, helper.__globals__))
                closure = zip(helper.__code__.co_freevars, helper.__closure__ or (), strict=True)
                values += [(free, cell.cell_contents) for free, cell in closure]
            elif isinstance(value, tuple):
                values += [(name, member) for member in value]
            elif isinstance(value, ir.Type) or not (isinstance(value, types.ModuleType | type) or callable(value)):
                digest.update(f"{name}={value!r}".encode())  # a constant
    return digest.hexdigest()[:12]
