"""The parts of a call of argmax or argmin: the key of its plan, its array, its output."""

from typing import Any

from dmlcpu.common.arguments import Array, as_integer, check_apart, check_output
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.prepared import Prepared, Request


def request(operator: str, x: Any, axis: Any, select_last: Any, keepdims: Any, index_dtype: Any, out: Any) -> Request:
    """Return the key of a prepared call, without the budget, and the array that it reads."""
    x, form = formed(operator, "x", x)
    if isinstance(axis, tuple | list):  # within a tuple of a key, True would be 1
        axis = tuple([as_integer(operator, f"axis[{i}]", each) for i, each in enumerate(axis)])
    elif axis is not None:
        axis = _as_axis(operator, axis)
    return (operator, form, strides_of(out), axis, select_last, keepdims, index_dtype), (x,)


def _as_axis(operator: str, axis: Any) -> int:
    """Return an axis that is neither None nor a tuple as an int."""
    try:
        return as_integer(operator, "axis", axis)
    except TypeError:
        raise TypeError(f"{operator}: axis is {axis!r}; allowed: None, an integer or a tuple of integers") from None


def allocate(prepared: Prepared, arrays: tuple[Array], out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    if out is None:
        return prepared.new[0]()
    result = check_output(prepared.operator, "out", out, *prepared.results[0])
    check_apart(prepared.operator, "out", result, {"x": arrays[0]})
    return result
