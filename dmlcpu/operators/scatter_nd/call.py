"""What a call of scatter_nd is, all of it checked, and the errors about its indices."""

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, check_choice, type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.forms import Form, Shape
from dmlcpu.errors import BindingError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.kernels.scatter_nd import reduction as reductions
from dmlcpu.kernels.scatter_nd.work import CLIP, DROP, RAISE

NAME = "scatter_nd"
MODES = {"raise": RAISE, "drop": DROP, "clip": CLIP}
REDUCTIONS = {
    "none": reductions.OVERWRITE,
    "add": reductions.ADD,
    "mul": reductions.MULTIPLY,
    "min": reductions.MINIMUM,
    "max": reductions.MAXIMUM,
}
# On bytes that are 0 or 1, "or" is the maximum, and "and" is the minimum.
_BOOL_REDUCTIONS = {**REDUCTIONS, "add": reductions.MAXIMUM, "mul": reductions.MINIMUM}
_COMPLEX_REDUCTIONS = {"add": reductions.ADD, "mul": reductions.MULTIPLY_COMPLEX}
# What elements are computed as; a type that is not here can be overwritten but not reduced.
COMPUTED_AS = {row.name: row.computed_as for row in DATA_TYPES.values() if row.computed_as}


class Call(NamedTuple):
    """What is computed, all of it checked but the values of indices."""

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
    """Return what is computed, or refuse it.

    forms: of x, indices and updates, and out's strides; options: of a Call, in its order.
    """
    x, indices, updates = [Form(*form) for form in forms[:3]]
    reduction, mode, *_ = options
    check_choice(NAME, "reduction", reduction, REDUCTIONS)
    check_choice(NAME, "mode", mode, MODES)
    reduction_of(x.dtype, reduction)
    if indices.dtype.kind not in "iu":
        raise UnsupportedError(NAME, "indices.dtype", str(indices.dtype), "any integer type")
    sizes, outer = x.shape, indices.shape
    if not outer:
        raise BindingError(NAME, "indices.ndim", "0", "at least 1 (the last dimension holds a tuple)")
    coordinates = outer[-1]
    if coordinates > len(sizes):
        allowed = f"0 to {len(sizes)} (x has {len(sizes)} dimensions)"
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


def reduction_of(dtype: np.dtype[Any], reduction: str) -> int:
    """Return what the kernels do for a reduction on a type."""
    if reduction == "none":
        return reductions.OVERWRITE
    name = type_name(dtype)
    known = _BOOL_REDUCTIONS if name == "bool" else _COMPLEX_REDUCTIONS if dtype.kind == "c" else REDUCTIONS
    if name in COMPUTED_AS and reduction in known:
        return known[reduction]
    allowed = "a type whose values are ordered" if name in COMPUTED_AS else ", ".join(COMPUTED_AS)
    raise UnsupportedError(NAME, f"x.dtype with reduction {reduction!r}", str(dtype), allowed)


def is_out(indices: Array, sizes: Shape) -> Array:
    """Return which coordinates point outside their dimension."""
    if indices.dtype.kind == "u" and indices.itemsize >= 4:
        return np.asarray(indices >= np.array(sizes, np.uint64))
    limits = np.array(sizes, np.int64)
    return np.asarray((indices < -limits) | (indices >= limits))


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
    lowest = 0 if dtype.kind == "u" and dtype.itemsize >= 4 else -size  # shorter ones are read as int64
    allowed = f"{lowest} to {size - 1}" if size else "none"
    return IndexOutOfRangeError(
        operator,
        f"{field}[{', '.join(map(str, where))}]",
        str(value),
        f"{allowed} (coordinate {coordinate} of tuple {number}; that dimension has {size} elements)",
    )
