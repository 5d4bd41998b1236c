"""Copies of kernels and helpers in which some global names mean something else, in their helpers as well.

One text of a product then serves every microkernel and every epilogue. The helpers that reach a replaced name are
copied too; the others are shared, and compiled once.
"""

import types
from collections.abc import Callable
from typing import Any

from dmlcpu.runtime.jit import compile_helper
from dmlcpu.runtime.kernel import Kernel


def variant(function: Callable[..., Any], name: str, **names: Any) -> Kernel:
    """Return a kernel of a function of (part, parts, ...), with `names` replaced in it and in its helpers.

    Raise NameError if neither the function nor a helper of it uses one of the names.
    """
    _refuse_unused(f"variant {name}", function, names)
    copy = _copy(function, names, {})
    copy.__code__ = copy.__code__.replace(co_name=name)
    copy.__name__ = copy.__qualname__ = name
    return Kernel(copy)


def specialized(helper: Any, **names: Any) -> Any:
    """Return a copy of a helper, compiled in the same way, with `names` replaced in it and in its helpers.

    Raise NameError as `variant` does.
    """
    _refuse_unused("specialized", _function_of(helper), names)
    return _copy(helper, names, {})


def _refuse_unused(what: str, function: Any, names: dict[str, Any]) -> None:
    unused = [each for each in names if not _reaches(function, {each}, set())]
    if unused:
        raise NameError(f"{what}: nothing in {function.__name__} is called {', '.join(unused)}")


def _copy(helper: Any, names: dict[str, Any], made: dict[Any, Any]) -> Any:
    """Return a copy of a helper or function, compiled in the same way, with other globals. made: copies of helpers."""
    function = _function_of(helper)
    scope: dict[str, Any] = {**function.__globals__, **names}
    for name in function.__code__.co_names:
        used: Any = scope.get(name)
        inner = _function_of(used)
        if name not in names and inner is not None and _reaches(inner, names.keys(), set()):
            if used not in made:
                made[used] = _copy(used, names, made)
            scope[name] = made[used]
    copy = types.FunctionType(function.__code__, scope, function.__name__, None, function.__closure__)
    copy.__qualname__, copy.__doc__, copy.__module__ = function.__qualname__, function.__doc__, function.__module__
    if helper is function:
        return copy
    options = {option: value for option, value in helper.targetoptions.items() if option != "nopython"}
    return compile_helper(copy, **options)


def _reaches(function: Any, names: Any, seen: set[Any]) -> bool:
    """Return whether a function, or a helper of it, uses one of these names."""
    if function in seen:
        return False
    seen.add(function)
    used = function.__code__.co_names
    if not names.isdisjoint(used):
        return True
    inner = [_function_of(function.__globals__.get(name)) for name in used]
    return any(_reaches(helper, names, seen) for helper in inner if helper is not None)


def _function_of(value: Any) -> Any:
    """Return the Python function of a helper, which without compilation is the helper itself; else None."""
    return getattr(value, "py_func", value if isinstance(value, types.FunctionType) else None)
