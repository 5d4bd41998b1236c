"""Kernels and helpers that share their text: in a copy some global names mean something else, in its helpers as well.

One text of a product then serves every microkernel and every epilogue. The helpers that reach a replaced name are made
anew for each copy; the others are shared, and compiled once.
"""

import types
from collections.abc import Callable
from typing import Any

from numba import njit

from dmlcpu.runtime.kernel import Kernel


def variant(function: Callable[..., Any], name: str, **names: Any) -> Kernel:
    """Return a kernel of a function of (part, parts, ...) for which, and for whose helpers, `names` are replaced.

    Raises
    ------
    NameError
        If neither the function nor a helper of it uses one of the names: it would be replaced in vain.
    """
    _refuse_unused(f"variant {name}", function, names)
    copy = _rebound(function, names, {})
    copy.__code__ = copy.__code__.replace(co_name=name)
    copy.__name__ = copy.__qualname__ = name
    return Kernel(copy)


def specialized(helper: Any, **names: Any) -> Any:
    """Return a copy of a helper, compiled in the same way, for which, and for whose helpers, `names` are replaced.

    Raises
    ------
    NameError
        If neither the helper nor a helper of it uses one of the names: it would be replaced in vain.
    """
    function = _function_of(helper)
    _refuse_unused("specialized", function, names)
    return _remade(helper, names, {})


def _refuse_unused(what: str, function: Any, names: dict[str, Any]) -> None:
    unused = [each for each in names if not _reaches(function, {each}, set())]
    if unused:
        raise NameError(f"{what}: nothing in {function.__name__} is called {', '.join(unused)}")


def _remade(helper: Any, names: dict[str, Any], made: dict[Any, Any]) -> Any:
    """Return a copy of a helper, compiled in the same way, with other globals. made: as for `_rebound`."""
    function = _function_of(helper)
    copy = _rebound(function, names, made)
    return copy if helper is function else njit(**_options_of(helper))(copy)


def _rebound(function: Any, names: dict[str, Any], made: dict[Any, Any]) -> Any:
    """Return a copy of a function with other globals. made: the helpers that have been made anew."""
    scope: dict[str, Any] = {**function.__globals__, **names}
    for name in function.__code__.co_names:
        helper: Any = scope.get(name)
        inner = _function_of(helper)
        if name not in names and inner is not None and _reaches(inner, names.keys(), set()):
            if helper not in made:
                made[helper] = _remade(helper, names, made)
            scope[name] = made[helper]
    copy = types.FunctionType(function.__code__, scope, function.__name__, None, function.__closure__)
    copy.__qualname__, copy.__doc__, copy.__module__ = function.__qualname__, function.__doc__, function.__module__
    return copy


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
    """Return the Python function of a helper, which it is itself while compilation is switched off; else None."""
    return getattr(value, "py_func", value if isinstance(value, types.FunctionType) else None)


def _options_of(helper: Any) -> dict[str, Any]:
    return {option: value for option, value in helper.targetoptions.items() if option != "nopython"}
