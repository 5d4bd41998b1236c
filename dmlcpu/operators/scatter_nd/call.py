"""What a call of scatter_nd is, all of it checked, and the errors about its indices."""

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, check_choice
from dmlcpu.common.forms import Form, Shape
from dmlcpu.errors import BindingError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.indexing.ranges import is_out, range_of
from dmlcpu.indexing.reductions import MODES, REDUCTIONS, reduction_of

NAME = "scatter_nd"


class Call(NamedTuple):
    """A call, checked except for the values of indices."""

    x: Form
    indices: Form
    updates: Form
    out: Form
    reduction: str = "none"
    mode: str = "raise"
    in_place: bool = False  # x is out
    width: int = 0  # bytes of the words that elements consist of; 0: their type says it

    @property
    def coordinates(self) -> int:
        """The number of coordinates of an index tuple."""
        return self.indices.shape[-1]

    @property
    def number(self) -> int:
        """The number of updates."""
        return math.prod(self.indices.shape[:-1])

    @property
    def slice_bytes(self) -> int:
        """The size of an update."""
        return math.prod(self.x.shape[self.coordinates :]) * int(self.x.dtype.itemsize)


def check(forms: tuple[Any, ...], options: tuple[Any, ...]) -> Call:
    """Return the checked call, or refuse it.

    forms: of x, indices and updates, and out's strides; options: of a Call, in its order.
    """
    x, indices, updates = [Form(*form) for form in forms[:3]]
    reduction, mode, *_ = options
    check_choice(NAME, "reduction", reduction, REDUCTIONS)
    check_choice(NAME, "mode", mode, MODES)
    reduction_of(NAME, x.dtype, reduction)
    if indices.dtype.kind not in "iu":
        raise UnsupportedError(NAME, "indices.dtype", str(indices.dtype), "any integer type")
    sizes, outer = x.shape, indices.shape
    if not outer:
        raise BindingError(NAME, "indices.ndim", "0", "at least 1 (the last dimension holds a tuple)")
    coordinates = outer[-1]
    if updates.shape != outer[:-1] + sizes[coordinates:] and sizes and updates.shape == outer + sizes[1:]:
        allowed = f"{(*outer, 1)}: the last axis holds the coordinates of a tuple, as in indices[..., None]"
        raise BindingError(NAME, "indices.shape", str(outer), allowed)
    if coordinates > len(sizes):
        allowed = f"0 to {len(sizes)} (x has {len(sizes)} dimension{'s' * (len(sizes) != 1)})"
        raise BindingError(NAME, "indices.shape[-1]", str(coordinates), allowed)
    if updates.dtype != x.dtype:
        raise BindingError(NAME, "updates.dtype", str(updates.dtype), f"{x.dtype} (x's type)")
    shape = outer[:-1] + sizes[coordinates:]
    if updates.shape != shape:
        allowed = f"{shape} (indices.shape[:-1] + x.shape[{coordinates}:]; updates are not broadcast)"
        raise BindingError(NAME, "updates.shape", str(updates.shape), allowed)
    if mode == "clip" and math.prod(outer) and 0 in sizes[:coordinates]:
        allowed = f"none: dimension {sizes.index(0)} has 0 elements"
        raise IndexOutOfRangeError(NAME, "indices", "clipped into an empty dimension", allowed)
    return Call(x, indices, updates, Form(x.shape, x.dtype, forms[3]), *options)


def check_index(indices: Array, place: int, shape: Shape, operator: str = NAME, field: str = "indices") -> None:
    """Refuse the coordinate at a place in C order, if it is out of range. shape: of x."""
    value, coordinate = indices.flat[place], place % indices.shape[-1]
    if is_out(np.array([value], indices.dtype), shape[coordinate : coordinate + 1]).any():
        raise out_of_range(value, place, (indices.shape, indices.dtype), shape, operator, field)


def out_of_range(
    value: int,
    place: int,
    indices: tuple[Shape, np.dtype[Any]],
    shape: Shape,
    operator: str = NAME,
    field: str = "indices",
) -> IndexOutOfRangeError:
    """Return the error about a coordinate and its place in C order. indices: their shape and type; shape: of x."""
    outer, dtype = indices
    number, coordinate = divmod(place, outer[-1])
    where = (*map(int, np.unravel_index(number, outer[:-1])), coordinate)
    size = shape[coordinate]
    return IndexOutOfRangeError(
        operator,
        f"{field}[{', '.join(map(str, where))}]",
        str(value),
        f"{range_of(dtype, size)} (coordinate {coordinate} of tuple {number}; that dimension has {size} elements)",
    )
