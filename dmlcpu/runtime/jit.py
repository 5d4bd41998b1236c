"""Numba's decorators, applied only here: how functions are compiled, and found in the cache."""

import functools
import hashlib
import logging
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.extending import register_jitable

from dmlcpu.runtime.cache import KernelCache
from dmlcpu.runtime.uninterrupted import say, uninterrupted

Function = TypeVar("Function", bound=Callable[..., Any])

# A function compiled for a caller gets that caller's options unless it has its own, and the cache serves all callers.
OWN_OPTIONS: dict[str, Any] = {"fastmath": False, "forceinline": False}
# nogil: Python threads that call operators run side by side. error_model: 0 / 0 is NaN, as in NumPy.
_OPTIONS: dict[str, Any] = {**OWN_OPTIONS, "nogil": True, "error_model": "numpy"}
# Nothing in a kernel counts references to arrays: its caller holds them until it returns. Counting took a tenth of a
# small call, and more than a third of a small product's time.
_KERNEL_OPTIONS = {**_OPTIONS, "_nrt": False}
# For functions that Python alone calls: without a wrapper for calls by address.
PYTHON_ONLY = {"_nrt": False, "no_cfunc_wrapper": True}
# A helper has no wrappers for calls from Python, which would take a third of the compile time.
_HELPER_OPTIONS = {**_KERNEL_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a helper, which kernels link. It gets no separate machine code, which would never run.

    Numba would make that: a seventh of the time of a first call.
    """

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Where Numba puts the environment of machine code: here, as there is none."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Ignore the environment: only code that works with Python objects needs it."""


class _KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler without passes that took a fifteenth of the compile time and find nothing in kernels."""

    def define_pipelines(self) -> Any:
        """Return Numba's passes but those for closures, `with`, array expressions, mixed tuples and parallel loops."""
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [each for each in pipeline.passes if each[0].__name__ not in _UNUSED_PASSES]
        return pipelines


_UNUSED_PASSES = {
    "DumpParforDiagnostics",
    "FindLiterallyCalls",
    "InlineClosureLikes",
    "LiteralPropagationSubPipelinePass",
    "LiteralUnroll",
    "MakeFunctionToJitFunction",
    "NoPythonSupportedFeatureValidation",
    "NopythonRewrites",
    "WithLifting",
}


class _HelperCompiler(_KernelCompiler):
    """The compiler of kernels, but for the library in which the code of a helper is."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile a helper."""
        self.state.library = _LinkedLibrary(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)


def device(function: Callable[..., Any]) -> Any:
    """Make a helper that kernels call. It is compiled into them and not cached by itself; Python cannot call it."""
    return compile_helper(function, **_HELPER_OPTIONS)


def inlined(function: Callable[..., Any]) -> Any:
    """Make a `device` helper that becomes part of its caller's text before the caller is compiled.

    Use it for single expressions, and for helpers with one caller or two. LLVM optimizes any other helper by itself,
    then again in each of its callers, and in their callers.
    """
    return compile_helper(function, **_HELPER_OPTIONS, inline="always")


def compile_helper(function: Callable[..., Any], **options: Any) -> Any:
    """Make a helper that is compiled with these Numba options."""
    return njit(**options, pipeline_class=_HelperCompiler)(function)


def shared(function: Function) -> Function:
    """Make a function for plans and for kernels: plans call it as Python, kernels compile it."""
    registered: Function = register_jitable(**_HELPER_OPTIONS, pipeline_class=_HelperCompiler)(function)
    return registered


def compile_kernel(function: Callable[..., Any]) -> Any:
    """Make a compiled function of (part, parts, ...); it is compiled at its first call, and cached on disk."""
    return compile_lazily(function, **_KERNEL_OPTIONS)


def compile_lazily(function: Callable[..., Any], **options: Any) -> Any:
    """Make a function that Python calls; it is compiled at its first call, and cached on disk."""
    compiled = uninterrupted(_make, function, options)
    # What Numba's compiled code calls when it is given arguments of new types, and what Python calls.
    for method in ("_compile_for_args", "compile"):
        setattr(compiled, method, functools.partial(uninterrupted, getattr(compiled, method)))
    return compiled


def _make(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Make a function that Numba compiles and caches."""
    # Numba names a cache entry by file, qualified name and line, and looks at neither helpers nor options. So a digest
    # of these goes into the name.
    options = {**_OPTIONS, **options}
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__qualname__ = f"{function.__qualname__}_{digest(function, options)}"
    copy.__doc__ = function.__doc__
    copy.__module__ = function.__module__
    compiled = njit(**options, pipeline_class=_KernelCompiler)(copy)
    try:
        compiled._cache = KernelCache(copy)  # where cache=True puts Numba's own
    except RuntimeError as error:  # a read-only installation, and no writable home
        _tell_once(str(error))
    return compiled


@functools.cache
def _tell_once(reason: str) -> None:
    say(logging.WARNING, "compiled kernels cannot be cached (%s); set NUMBA_CACHE_DIR to a writable folder", reason)


def digest(function: Callable[..., Any], options: dict[str, Any] = _KERNEL_OPTIONS) -> str:
    """Hash the code and options of `function` and of all helpers of its package that it reaches, and constants."""
    hashed = hashlib.sha256(repr(sorted(options.items())).encode())
    package = function.__module__.partition(".")[0]
    seen: dict[Any, int] = {}  # functions, not code objects, which copies with other globals share
    pending = [function]
    while pending:
        here = pending.pop()
        if here in seen:
            hashed.update(f"again {seen[here]}".encode())
            continue
        seen[here] = len(seen)
        hashed.update(here.__module__.encode())  # cached code imports the modules of its helpers
        values = [("a default", value) for value in here.__defaults__ or ()]
        values += zip(here.__code__.co_freevars, [cell.cell_contents for cell in here.__closure__ or ()], strict=True)
        for code in _with_inner(here.__code__):
            constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
            hashed.update(code.co_code + repr((code.co_names, constants)).encode())
            values += [(name, here.__globals__.get(name)) for name in code.co_names]
        for name, value in values:
            pending += _hash(hashed, name, value, package)
    return hashed.hexdigest()[:12]


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of the functions within it; `repr` of these shows an address."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _hash(hashed: Any, name: str, value: Any, package: str) -> list[Any]:
    """Hash a constant, or return the functions to hash instead of it."""
    if isinstance(value, functools.partial):
        value = (value.func, *value.args, *value.keywords.items())
    if isinstance(value, tuple):
        own_type = [] if type(value) is tuple else [type(value)]  # a NamedTuple's methods
        return [function for member in (*own_type, *value) for function in _hash(hashed, name, member, package)]
    # The function of a helper, of an intrinsic, of a property.
    inner = [getattr(value, attribute, None) for attribute in ("py_func", "_defn", "fget")]
    if any(inner):
        hashed.update(repr(sorted(getattr(value, "targetoptions", {}).items())).encode())  # inlining is one
        return [function for function in inner if function]
    is_ours = str(getattr(value, "__module__", "")).partition(".")[0] == package
    if isinstance(value, type):
        # Cached code imports the type; a NamedTuple is filled by position.
        hashed.update(repr((value.__module__, getattr(value, "_fields", ()))).encode())
        members = vars(value).items() if is_ours else ()
        counting = [(each, member) for each, member in members if isinstance(member, _COUNT_IN_CLASSES)]
        return [function for each, member in counting for function in _hash(hashed, each, member, package)]
    if isinstance(value, types.FunctionType):  # of an intrinsic
        return [value] if is_ours else []
    if isinstance(value, np.ndarray):  # its text leaves elements out
        hashed.update(f"{name}={value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, ir.Type) or not (isinstance(value, types.ModuleType) or callable(value)):
        hashed.update(f"{name}={value!r}".encode())
    return []


_COUNT_IN_CLASSES = (types.FunctionType, property, int, float, np.generic, np.dtype, ir.Type)
