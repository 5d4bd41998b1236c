"""`bind` binds an operator's function to memory."""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.common.arguments import convert
from dmlcpu.common.bound import BoundOperator, are_used, own_view
from dmlcpu.operators.table import OPERATORS, Operator
from dmlcpu.runtime.threads import plan_for_now


def bind(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> BoundOperator:
    """Bind an operator's function to its arguments, for repeated calls on the same memory.

    Arguments are checked once. Each call of the bound operator runs the kernel on the current values of the arrays.

    Parameters
    ----------
    function : function
        The function of an operator, for instance ``dmlcpu.top_k``.
    *args, **kwargs
        Its arguments. Arrays are bound: their memory is read at each call. Numbers, lists, options and packed matrices
        are constants. With `out`, calls write to its arrays; otherwise new arrays are allocated once.

    Returns
    -------
    BoundOperator
        Call it without arguments. It returns the same arrays each time.

    Raises
    ------
    DmlError
        If an argument is not valid, as for a call of the function.
    TypeError
        If `function` is not the function of an operator, or an argument has the wrong Python type.

    Notes
    -----
    An array that the kernels cannot read directly (another byte order, a float64 scale) is converted at each call,
    which then takes as long as a call of the function. An object that NumPy cannot view without a copy is a constant.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.array([3.0, 1.0, 2.0])
    >>> best = dmlcpu.bind(dmlcpu.top_k, x, 1)
    >>> best()
    TopK(values=array([3.]), indices=array([0]))
    >>> x[1] = 4
    >>> best()
    TopK(values=array([4.]), indices=array([1]))
    >>> best() is best.outputs
    True
    """
    operator = _operator_of(function)
    calls = operator.calls
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{operator.name}() {error}") from None
    bound.apply_defaults()
    out = bound.arguments.pop("out")
    arguments = {name: _own(operator.name, name, value) for name, value in bound.arguments.items()}
    key, arrays = calls.request(*arguments.values(), out)
    outputs = calls.allocate(plan_for_now(calls.prepare, key), arrays, out)
    own = _own_views(outputs)
    given = [value for value in arguments.values() if isinstance(value, np.ndarray)]
    # Each call makes all checks if it has to read an array that is no operand, or that must be converted first.
    is_prepared = are_used(given, arrays) and _is_hashable(key)
    all_own = own if isinstance(own, tuple) else (own,)
    return BoundOperator(
        operator.name,
        outputs,
        lambda: function(**arguments, out=own),
        [*arguments.values(), *all_own],
        functools.partial(calls.prepare, *key) if is_prepared else None,
        (*arrays, *all_own),
    )


def _operator_of(function: Any) -> Operator:
    """Return the operator of a function."""
    operator = OPERATORS.get(getattr(function, "__name__", ""))
    if operator is None or operator.function is not function:
        raise TypeError(f"bind: function is {function!r}; allowed: dmlcpu.{', dmlcpu.'.join(OPERATORS)}")
    return operator


def _own(operator: str, name: str, value: Any) -> Any:
    """Return a view of an array, or a constant."""
    if isinstance(value, np.ndarray):
        return own_view(value)
    if isinstance(value, list | tuple):
        return copy.deepcopy(value)
    return convert(operator, name, value) if _is_array(value) else value


def _is_array(value: Any) -> bool:
    """Return whether a value may change, and NumPy can make a view of it."""
    if isinstance(value, np.generic | type | bytes):
        return False
    if any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__array_struct__", "__dlpack__")):
        return True
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _own_views(outputs: Any) -> Any:
    if isinstance(outputs, tuple):
        return type(outputs)._make(map(own_view, outputs))  # type: ignore[attr-defined]  # a named tuple
    return own_view(outputs)
