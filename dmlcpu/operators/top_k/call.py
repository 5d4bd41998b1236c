"""The checks of top_k's arguments."""

from typing import Any, NamedTuple, get_args

import numpy as np

from dmlcpu.annotations import Array, Mode, Nan
from dmlcpu.common.arguments import (
    as_array,
    as_array_like,
    as_axis,
    as_dtype,
    as_integer,
    check_choice,
    check_flag,
    check_type,
    type_name,
)
from dmlcpu.common.data_types import DATA_TYPES, INDICES, NUMBERS
from dmlcpu.errors import BindingError, DmlError, UnsupportedError

# Dictionaries: a look-up takes less time than in a tuple.
_TYPES = dict.fromkeys(NUMBERS)
_HIGHEST = {name: DATA_TYPES[name].highest for name in INDICES}
_INT64 = np.dtype(np.int64)
_MODES, _NANS = get_args(Mode), get_args(Nan)


class Call(NamedTuple):
    """The arguments of a call in their plain forms, but for the outputs."""

    x: Array
    k: int  # the greatest of counts, if there are any
    counts: Array | None  # a number for each sequence, of x's shape without the axis
    axis: int
    index_dtype: np.dtype[Any]
    largest: bool
    sorted: bool = True
    nan_last: bool = False
    fill: Array | None = None  # what is written behind the winners of a sequence, if there are counts

    def winners(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the winners of a block of x."""
        return (*shape[: self.axis], self.k, *shape[self.axis + 1 :])


def check(
    x: Any, k: Any, axis: Any, mode: Any, largest: Any, sorted: Any, nan: Any, fill_value: Any, index_dtype: Any
) -> Call:
    """Return the arguments in their plain forms, or refuse them."""
    is_largest = True if mode is None and largest is None else _direction(mode, largest)
    x = as_array("top_k", "x", x)
    check_type("top_k", "x", x.dtype, _TYPES)
    shape = x.shape
    if not shape:
        raise DmlError("top_k", "x.ndim", "0", "at least 1")
    axis = as_axis("top_k", "axis", axis, "x", len(shape))
    counts = None if type(k) is int else _counts(k, x, axis)
    if type(k) is not int:
        k = as_integer("top_k", "k", k) if counts is None else int(counts.max(initial=0))
    n = shape[axis]
    if not 0 <= k <= n:
        raise DmlError("top_k", "k", str(k), f"0 to {n} (the elements along axis {axis})")
    index_type = _INT64
    if index_dtype is not np.int64:
        index_type = as_dtype("top_k", "index_dtype", index_dtype, _HIGHEST)
        if n - 1 > _HIGHEST[type_name(index_type)]:
            raise DmlError("top_k", "index_dtype", str(index_type), f"a type that holds {n - 1}")
    is_sorted = sorted is True or check_flag("top_k", "sorted", sorted)
    if nan != "greatest":
        check_choice("top_k", "nan", nan, _NANS)
    if counts is None:
        return Call(x, k, None, axis, index_type, is_largest, is_sorted, nan == "last")
    counts = np.broadcast_to(counts, (*shape[:axis], *shape[axis + 1 :]))
    fill = _fill(fill_value, x.dtype, is_largest)
    return Call(x, k, counts, axis, index_type, is_largest, True, nan == "last", fill)


def _direction(mode: Any, largest: Any) -> bool:
    """Return whether the largest elements are selected."""
    if mode is None:
        return check_flag("top_k", "largest", largest)
    if largest is not None:
        raise TypeError("top_k: mode and largest are both given; allowed: one of them, as they say the same")
    check_choice("top_k", "mode", mode, _MODES)
    return bool(mode == "largest")


def _counts(k: Any, x: Array, axis: int) -> Array | None:
    """Return an array of k that broadcasts to the sequences, or None if it is no array."""
    if not isinstance(k, list | tuple | range) and not hasattr(k, "__array__"):
        return None
    counts = as_array("top_k", "k", k)
    if counts.ndim == 0:
        return None
    if counts.dtype.kind not in "iu" and counts.size:
        raise UnsupportedError("top_k", "k.dtype", str(counts.dtype), "an integer type")
    n, sequences = x.shape[axis], (*x.shape[:axis], *x.shape[axis + 1 :])
    # Not np.broadcast_shapes, which takes no more than 32 dimensions.
    sizes = zip(reversed(counts.shape), reversed(sequences), strict=False)
    if counts.ndim > len(sequences) or any(size not in (1, wanted) for size, wanted in sizes):
        allowed = f"a shape that broadcasts to {sequences} (x.shape without axis {axis})"
        raise BindingError("top_k", "k.shape", str(counts.shape), allowed)
    bad = (counts < 0) | (counts > n)
    if bad.any():
        where = tuple(map(int, np.unravel_index(int(bad.argmax()), bad.shape)))
        place = ", ".join(map(str, where))
        raise DmlError("top_k", f"k[{place}]", str(counts[where]), f"0 to {n} (the elements along axis {axis})")
    return counts


def places_beyond(counts: Array, k: int, axis: int) -> Array:
    """Return which of k places along the axis lie behind the last winner of their sequence."""
    places = np.arange(k).reshape(-1, *[1] * (counts.ndim - axis))
    return np.asarray(np.expand_dims(counts, axis) <= places)


def fill_behind(out: tuple[Array, Array], fill: Array | None, beyond: Array) -> None:
    """Write what stands behind the last winners of sequences, in the places `beyond`."""
    values, indices = out
    np.copyto(values, fill, where=beyond)  # type: ignore[arg-type]  # there is one where there are counts
    np.copyto(indices, np.array(-1).astype(indices.dtype), where=beyond)


def _fill(fill_value: Any, dtype: np.dtype[Any], is_largest: bool) -> Array:
    """Return what is written behind the winners of a sequence."""
    if fill_value is not None:
        fill = as_array_like("top_k", "fill_value", fill_value, "x", dtype)
        if fill.ndim:
            raise BindingError("top_k", "fill_value.ndim", str(fill.ndim), "0")
        return fill.copy()
    data_type = DATA_TYPES[type_name(dtype)]
    if data_type.kind == "f":
        return np.array(-np.inf if is_largest else np.inf).astype(dtype)
    return np.array(data_type.lowest if is_largest else data_type.highest, dtype)
