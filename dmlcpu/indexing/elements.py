"""Checks of calls in which each index replaces one coordinate of its position, and the error about an index."""

from collections.abc import Collection
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_axis, check_choice
from dmlcpu.common.forms import Form, Shape
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.indexing.ranges import is_out, range_of


def check_elements(operator: str, x: Form, indices: Form, given_axis: Any, mode: Any, modes: Collection[str]) -> int:
    """Return the axis, counted from the first; refuse x, indices, axis or mode if they do not fit."""
    check_choice(operator, "mode", mode, modes)
    if not x.shape:
        raise DmlError(operator, "x.ndim", "0", "at least 1")
    axis = as_axis(operator, "axis", given_axis, "x", len(x.shape))
    if indices.dtype.kind not in "iu":
        raise UnsupportedError(operator, "indices.dtype", str(indices.dtype), "any integer type")
    if len(indices.shape) != len(x.shape):
        raise BindingError(operator, "indices.shape", str(indices.shape), f"{len(x.shape)} dimensions, as x has")
    if any(mine > n for d, (mine, n) in enumerate(zip(indices.shape, x.shape, strict=True)) if d != axis):
        allowed = f"at most {x.shape} (x.shape) except along axis {axis}; indices are not broadcast"
        raise BindingError(operator, "indices.shape", str(indices.shape), allowed)
    if mode == "clip" and 0 not in indices.shape and x.shape[axis] == 0:
        allowed = f"none: axis {axis} has 0 elements"
        raise IndexOutOfRangeError(operator, "indices", "clipped into an empty dimension", allowed)
    return axis


def is_refused(call: Any, indices: Array) -> bool:
    """Return whether a call of scatter_elements or gather_elements refuses an index."""
    return call.mode == "raise" and bool(is_out(indices, (call.x.shape[call.axis],)).any())


def check_indices(operator: str, indices: Array, axis: int, size: int, field: str = "indices") -> None:
    """Refuse the first index that is out of range, if any; size: of x along the axis."""
    bad = is_out(indices, (size,))
    if bad.any():
        where = tuple(map(int, np.unravel_index(int(bad.argmax()), bad.shape)))
        raise out_of_range(operator, where, indices[where], indices.dtype, axis, size, field)


def out_of_range(
    operator: str, where: Shape, value: Any, dtype: np.dtype[Any], axis: int, size: int, field: str = "indices"
) -> IndexOutOfRangeError:
    """Return the error about an index at a position in the indices; dtype: of the indices."""
    allowed = f"{range_of(dtype, size)} (axis {axis} has {size} elements)"
    return IndexOutOfRangeError(operator, f"{field}[{', '.join(map(str, where))}]", str(value), allowed)
