"""The only place where Numba's decorators are applied: how functions are compiled, and found in the cache."""

import hashlib
import logging
import types
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit

from dmlcpu.runtime.cache import KernelCache

_log = logging.getLogger("dmlcpu")

# nogil: Python threads that call operators run side by side. error_model: 0 / 0 is NaN, as in NumPy.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
# Nothing in a kernel counts references to arrays: its caller holds them until it returns. Counting took a tenth of a
# small call, and more than a third of a small product's time.
_KERNEL_OPTIONS = {**_OPTIONS, "_nrt": False}
# A helper has no wrappers to be called by from Python, which would take a third of the compile time.
_HELPER_OPTIONS = {**_KERNEL_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def device(function: Callable[..., Any]) -> Any:
    """Make a helper that kernels call; it is compiled into them, is not cached by itself and not called from Python."""
    return njit(**_HELPER_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Make a `device` helper that becomes part of its caller's text before that is compiled.

    It is for what is called from one place: LLVM works on a helper once more in each of its callers, and in theirs.
    """
    return njit(**_HELPER_OPTIONS, inline="always")(function)


viewer = device


def compile_kernel(function: Callable[..., Any]) -> Any:
    """Make a compiled function of (part, parts, ...), which is compiled when it is first called and kept on disk."""
    return compile_lazily(function, **_KERNEL_OPTIONS)


def compile_lazily(function: Callable[..., Any], **options: Any) -> Any:
    """Make a compiled function that Python calls; it is compiled when it is first called, and kept on disk."""
    # Numba names a cache entry by file, qualified name and line, and forgets the source of helpers; so a digest of
    # everything the function calls goes into the name.
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__qualname__ = f"{function.__qualname__}_{digest(function)}"
    copy.__doc__ = function.__doc__
    copy.__module__ = function.__module__
    compiled = njit(**{**_OPTIONS, **options})(copy)
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


def digest(function: Callable[..., Any]) -> str:
    """Hash the code of `function`, of every helper it reaches and the constants they use."""
    hashed = hashlib.sha256(repr(_HELPER_OPTIONS).encode())
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
                hashed.update(repr(constant).encode())
        hashed.update(code.co_code + repr(code.co_names).encode())
        values = [(name, names.get(name)) for name in code.co_names]
        while values:
            name, value = values.pop(0)
            helper: Any = getattr(value, "py_func", None) or getattr(value, "_defn", None)  # a function, an intrinsic
            if isinstance(value, types.FunctionType) and value.__module__.startswith("dmlcpu."):
                helper = value  # of an intrinsic
            if isinstance(value, type) and value.__module__.startswith("dmlcpu."):
                values += [(name, member) for name, member in vars(value).items() if callable(member)]
                hashed.update(f"{name}={getattr(value, '_fields', ())}".encode())  # a NamedTuple is built by position
            if helper is not None:
                pending.append((helper.__code__, helper.__globals__))
                closure = zip(helper.__code__.co_freevars, helper.__closure__ or (), strict=True)
                values += [(free, cell.cell_contents) for free, cell in closure]
            elif isinstance(value, tuple):
                values += [(name, member) for member in value]
            elif isinstance(value, ir.Type) or not (isinstance(value, types.ModuleType | type) or callable(value)):
                hashed.update(f"{name}={value!r}".encode())  # a constant
    return hashed.hexdigest()[:12]
