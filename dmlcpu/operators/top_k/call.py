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
from dmlcpu.common.forms import AnyForm, Form, Shape
from dmlcpu.errors import BindingError, DmlError, UnsupportedError

INT64 = np.dtype(np.int64)
_MODES, _NANS = get_args(Mode), get_args(Nan)


class Call(NamedTuple):
    """A checked call."""

    x: Form
    k: int
    axis: int
    index_dtype: np.dtype[Any]
    largest: bool
    sorted: bool = True
    nan_last: bool = False

    def winners(self, shape: Shape) -> Shape:
        """Return the shape of the winners of a block of x."""
        return (*shape[: self.axis], self.k, *shape[self.axis + 1 :])


def check(form: AnyForm, options: tuple[Any, ...]) -> Call:
    """Return the checked call, or refuse it.

    form: of x; options: k, as an integer, and axis, mode, largest, sorted, nan and index_dtype as they were passed.
    """
    k, axis, mode, largest, sorted, nan, index_dtype = options
    is_largest = True if mode is None and largest is None else _direction(mode, largest)
    x = Form(*form)
    check_type("top_k", "x", x.dtype, NUMBERS)
    if not x.shape:
        raise DmlError("top_k", "x.ndim", "0", "at least 1")
    axis = as_axis("top_k", "axis", axis, "x", len(x.shape))
    n = x.shape[axis]
    if not 0 <= k <= n:
        raise DmlError("top_k", "k", str(k), f"0 to {n} (the elements along axis {axis})")
    index_type = as_dtype("top_k", "index_dtype", index_dtype, INDICES)
    if n - 1 > DATA_TYPES[type_name(index_type)].highest:
        raise DmlError("top_k", "index_dtype", str(index_type), f"a type that holds {n - 1}")
    is_sorted = check_flag("top_k", "sorted", sorted)
    check_choice("top_k", "nan", nan, _NANS)
    return Call(x, k, axis, index_type, is_largest, is_sorted, nan == "last")


def _direction(mode: Any, largest: Any) -> bool:
    """Return whether the largest elements are selected."""
    if mode is None:
        return check_flag("top_k", "largest", largest)
    if largest is not None:
        raise TypeError("top_k: mode and largest are both given; allowed: one of them, as they say the same")
    check_choice("top_k", "mode", mode, _MODES)
    return bool(mode == "largest")


def read_counts(
    form: AnyForm, k: Any, options: tuple[Any, ...], fill_value: Any
) -> tuple[int, tuple[()] | tuple[Array, Array]]:
    """Return (k, nothing); if k is an array, (the greatest k, (a k for each sequence, what fills the rest)).

    Arrays are copies: `bind` reads an array of k again at each call. form: of x; options: those of `check`, without k.
    """
    is_array = isinstance(k, list | tuple | range) or hasattr(k, "__array__")
    counts = as_array("top_k", "k", k) if is_array and not isinstance(k, np.generic) else None
    if counts is None or counts.ndim == 0:
        return as_integer("top_k", "k", k), ()
    call = check(form, (0, *options))
    shape, dtype, axis = call.x.shape, call.x.dtype, call.axis
    sequences = (*shape[:axis], *shape[axis + 1 :])
    if counts.dtype.kind not in "iu" and counts.size:
        raise UnsupportedError("top_k", "k.dtype", str(counts.dtype), "an integer type")
    own = counts.copy()
    of_all = own if own.shape == sequences else _broadcast(own, sequences, axis)
    return _greatest(own, shape[axis], axis), (of_all, _fill(fill_value, dtype, call.largest))


def _broadcast(counts: Array, sequences: Shape, axis: int) -> Array:
    """Return a k for each sequence, or refuse an array whose shape does not broadcast to theirs."""
    # Not by np.broadcast_shapes, which accepts at most 32 dimensions.
    sizes = zip(reversed(counts.shape), reversed(sequences), strict=False)
    if counts.ndim > len(sequences) or any(size not in (1, wanted) for size, wanted in sizes):
        allowed = f"a shape that broadcasts to {sequences} (x.shape without axis {axis})"
        raise BindingError("top_k", "k.shape", str(counts.shape), allowed)
    return np.broadcast_to(counts, sequences)


def _greatest(counts: Array, n: int, axis: int) -> int:
    """Return the greatest of an array of k, or refuse the first one that is not from 0 to n."""
    bad = (counts < 0) | (counts > n)
    if bad.any():
        where = tuple(map(int, np.unravel_index(int(bad.argmax()), bad.shape)))
        place = ", ".join(map(str, where))
        raise DmlError("top_k", f"k[{place}]", str(counts[where]), f"0 to {n} (the elements along axis {axis})")
    return int(counts.max(initial=0))


def _fill(fill_value: Any, dtype: np.dtype[Any], is_largest: bool) -> Array:
    """Return what is written after the winners of a sequence."""
    if fill_value is not None:
        fill = as_array_like("top_k", "fill_value", fill_value, "x", dtype)
        if fill.ndim:
            raise BindingError("top_k", "fill_value.ndim", str(fill.ndim), "0")
        return fill.copy()
    data_type = DATA_TYPES[type_name(dtype)]
    if data_type.kind == "f":
        return np.array(-np.inf if is_largest else np.inf).astype(dtype)
    return np.array(data_type.lowest if is_largest else data_type.highest, dtype)


def rest_of(counts: Array, places: int, axis: int) -> Array:
    """Return which places along the axis come after the last winner of each sequence. counts: winners of each."""
    numbers = np.arange(places).reshape(-1, *[1] * (counts.ndim - axis))
    return np.asarray(counts[(slice(None),) * axis + (None,)] <= numbers)


def fill_rest(values: Array, indices: Array, rest: Array, fill: Array) -> None:
    """Fill the places that `rest_of` returns."""
    np.copyto(values, fill, where=rest)
    np.copyto(indices, np.array(-1).astype(indices.dtype), where=rest)
