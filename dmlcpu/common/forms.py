"""Forms: what a plan may know about an array."""

import math
from typing import Any, NamedTuple

from dmlcpu.common.arguments import NDARRAY, Array, as_array
from dmlcpu.runtime.memory import ALIGNED, PLAIN, packed_strides

Shape = tuple[int, ...]


class Form(NamedTuple):
    """What a plan may know about an array. A plain tuple of the same items equals it and is faster to create."""

    shape: Shape
    dtype: Any
    strides: Shape | None = None  # in bytes; None: packed in C order, aligned and writeable

    @property
    def steps(self) -> Shape:
        """The strides in bytes."""
        return packed_strides(self.shape, self.dtype.itemsize) if self.strides is None else self.strides

    @property
    def is_packed(self) -> bool:
        """Whether it is packed in C order; the stride of a dimension of size 1, as ``x[None]`` has, does not matter."""
        packed = packed_strides(self.shape, self.dtype.itemsize)
        return all(n == 1 or own == step for n, own, step in zip(self.shape, self.steps, packed, strict=True))

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def part(self, cut: tuple[slice, ...]) -> "Form":
        """Return the form of a part; cut: slices of step 1 in the first dimensions."""
        sizes = [len(range(*each.indices(n))) for each, n in zip(cut, self.shape, strict=False)]
        return Form((*sizes, *self.shape[len(sizes) :]), self.dtype, self.steps)


AnyForm = tuple[Shape, Any, Shape | None]  # a Form, or a plain tuple that equals it


def form_of(array: Array) -> AnyForm:
    """Return the form of an array that kernels read directly."""
    return array.shape, array.dtype, None if array.flags.num & PLAIN == PLAIN else array.strides


def formed(operator: str, field: str, value: Any) -> tuple[Any, AnyForm]:
    """Return an argument as an array of fixed-size elements in native byte order, and its form; a Form is kept."""
    if type(value) is NDARRAY:
        dtype, flags = value.dtype, value.flags.num
        if flags & ALIGNED and dtype.isnative and not dtype.hasobject:  # most arrays
            return value, (value.shape, dtype, None if flags & PLAIN == PLAIN else value.strides)
    if type(value) is Form:  # of an array that is read later
        return value, value
    array = as_array(operator, field, value)
    return array, form_of(array)


def fitting(strides: Shape | None, shape: Shape) -> Shape | None:
    """Return the strides of an output; None if its dimensions differ from the shape's, which is refused later."""
    return strides if strides is None or len(strides) == len(shape) else None


def strides_of(array: Any) -> Shape | None:
    """Return the strides of an array for a form; None also for an `out` that is no array."""
    return array.strides if isinstance(array, NDARRAY) and array.flags.num & PLAIN != PLAIN else None
