"""Checks of the arguments of argmax and argmin."""

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import as_axis, as_dtype, check_flag, check_type, type_name
from dmlcpu.common.data_types import DATA_TYPES, INDICES, NUMBERS
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import DmlError


class Call(NamedTuple):
    """A checked call."""

    operator: str
    x: Form
    axes: Shape  # the reduced dimensions, ascending
    select_last: bool
    keepdims: bool
    dtype: np.dtype[Any]  # of the positions

    @property
    def size(self) -> int:
        """The number of elements of a set."""
        return math.prod([self.x.shape[d] for d in self.axes])

    @property
    def kept(self) -> Shape:
        """The dimensions that are not reduced."""
        return tuple([d for d in range(len(self.x.shape)) if d not in self.axes])

    @property
    def y(self) -> Tensor:
        """The shape and type of the positions."""
        if self.keepdims:
            return Tensor(tuple([1 if d in self.axes else n for d, n in enumerate(self.x.shape)]), self.dtype)
        return Tensor(tuple([self.x.shape[d] for d in self.kept]), self.dtype)


def check(operator: str, x: Form, axis: Any, select_last: Any, keepdims: Any, index_dtype: Any) -> Call:
    """Return the checked call, or refuse it. The options are as given."""
    check_type(operator, "x", x.dtype, NUMBERS)
    axes = _axes(operator, axis, len(x.shape))
    select_last = check_flag(operator, "select_last", select_last)
    keepdims = check_flag(operator, "keepdims", keepdims)
    dtype = as_dtype(operator, "index_dtype", index_dtype, INDICES)
    call = Call(operator, x, axes, select_last, keepdims, dtype)
    if call.size == 0 and 0 not in call.y.shape:
        along = " and ".join(map(str, axes))
        raise DmlError(operator, "x.shape", str(x.shape), f"at least one element along axis {along}")
    if not fits(call.size, dtype):
        raise DmlError(operator, "index_dtype", str(dtype), f"a type that holds {call.size - 1}")
    return call


def fits(size: int, dtype: np.dtype[Any]) -> bool:
    """Return whether a type holds the last index of a set."""
    return size - 1 <= DATA_TYPES[type_name(dtype)].highest


def _axes(operator: str, axis: Any, dimensions: int) -> Shape:
    """Return the reduced dimensions, ascending."""
    if axis is None:
        return tuple(range(dimensions))
    if not isinstance(axis, tuple):
        return (_axis(operator, "axis", axis, dimensions),)
    if not axis:
        raise DmlError(operator, "axis", "()", "None, an integer, or a tuple of at least one")
    found: list[int] = []
    for i, each in enumerate(axis):
        found.append(_axis(operator, f"axis[{i}]", each, dimensions))
        if found[-1] in found[:-1]:
            raise DmlError(operator, f"axis[{i}]", str(each), "an axis that was not named before")
    return tuple(sorted(found))


def _axis(operator: str, field: str, value: Any, dimensions: int) -> int:
    if dimensions == 0:
        raise DmlError(operator, field, str(value), "None (x has 0 dimensions)")
    return as_axis(operator, field, value, "x", dimensions)
