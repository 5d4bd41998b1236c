"""SCATTER_ND: a copy of the input in which index tuples say where updates overwrite, or reduce into, elements."""

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.errors import BindingError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.kernels.grid import Grid, make_grid
from dmlcpu.kernels.scatter_nd import combine, resolve
from dmlcpu.operators.arguments import (
    Array,
    as_array,
    check_apart,
    check_choice,
    check_output,
    same_memory,
)
from dmlcpu.runtime.memory import scratch, word_strides, words
from dmlcpu.runtime.threads import Budget, budget

_log = logging.getLogger("dmlcpu")

_MODES = {"raise": resolve.RAISE, "drop": resolve.DROP, "clip": resolve.CLIP}
_REDUCTIONS = {
    "none": combine.OVERWRITE,
    "add": combine.ADD,
    "mul": combine.MULTIPLY,
    "min": combine.MINIMUM,
    "max": combine.MAXIMUM,
}
# On bytes that are 0 or 1, or is the maximum and and the minimum.
_BOOL_REDUCTIONS = {**_REDUCTIONS, "add": combine.MAXIMUM, "mul": combine.MINIMUM}
_COMPLEX_REDUCTIONS = {"add": combine.ADD, "mul": combine.MULTIPLY_COMPLEX}

# What elements are computed as; everything not named here can be overwritten but not reduced.
_COMPUTED_AS = {
    "bool": "uint8",
    "float16": "uint16",
    "bfloat16": "uint16",
    "complex64": "float32",
    "complex128": "float64",
    **{name: name for name in ("float32", "float64", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)))},
}
_HALVES = {"float16": combine.FLOAT16, "bfloat16": combine.BFLOAT16}


def scatter_nd(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    reduction: str = "none",
    mode: str = "raise",
    out: Array | None = None,
) -> Array:
    """Copy x, then write updates at the places that index tuples name.

    Updates are applied in index order, whatever the number of threads: without a reduction the last update of an
    element wins, with one the result is that of a plain loop.

    Parameters
    ----------
    x : array_like, shape (d0, d1, ...)
        Any type of fixed size; with a reduction, any numeric type (bool, integers, float16, bfloat16, float32,
        float64; complex for "add" and "mul").
    indices : array_like of integers, shape (..., T)
        Index tuples into the first T dimensions of x, 0 <= T <= x.ndim. Negative indices count from the end. With
        T == 0 each update replaces the whole of x.
    updates : array_like of x's type, shape indices.shape[:-1] + x.shape[T:]
        One element, or slice, a tuple. Updates are not broadcast.
    reduction : {"none", "add", "mul", "min", "max"}
        How an update meets the element that is there. Integers wrap; for bool, add is or and mul is and; min and max
        propagate NaN; float16 and bfloat16 are rounded after every update. A NaN that a sum or product gives is the
        quiet NaN without payload.
    mode : {"raise", "drop", "clip"}
        What to do about an index out of range: refuse all, before anything is written; skip that update; or clamp
        each coordinate to its dimension.
    out : ndarray, optional
        Where to write the result: of x's shape and type, any strides. It may be `x` itself (then nothing is copied),
        and shares no memory with the arguments otherwise.

    Returns
    -------
    ndarray
        A new array like x, or `out`.

    Raises
    ------
    IndexOutOfRangeError
        If an index is out of range and `mode` is "raise"; `out` is as it was.
    DmlError
        If an argument does not fit; nothing has been written then.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    The semantics are those of DirectML's ``DML_SCATTER_ND_OPERATOR_DESC``, with the reductions of ONNX ScatterND 18,
    and the modes of `numpy.take`. DirectML leaves duplicates undefined; here they are defined.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> dmlcpu.scatter_nd([1, 2, 3, 4, 5, 6, 7, 8], [[4], [3], [1], [7]], [9, 10, 11, 12])
    array([ 1, 11,  3, 10,  9,  6,  7, 12])
    >>> bins = np.zeros(3, np.int64)
    >>> dmlcpu.scatter_nd(bins, [[0], [2], [2]], [1, 1, 1], reduction="add", out=bins)
    array([1, 0, 2])
    """
    x, indices, updates = check(x, indices, updates, reduction, mode)
    result = allocate(x, indices, updates, out)
    execute(x, indices, updates, result, reduction=reduction, mode=mode)
    return result


def check(x: Any, indices: Any, updates: Any, reduction: Any, mode: Any) -> tuple[Array, Array, Array]:
    """Return the array arguments as arrays that fit together, or refuse them."""
    x = as_array("scatter_nd", "x", x)
    check_choice("scatter_nd", "reduction", reduction, tuple(_REDUCTIONS))
    check_choice("scatter_nd", "mode", mode, tuple(_MODES))
    _operation(x.dtype, reduction)
    indices = as_array("scatter_nd", "indices", indices)
    if indices.dtype.kind not in "iu":
        raise UnsupportedError("scatter_nd", "indices.dtype", str(indices.dtype), "any integer type")
    if indices.ndim == 0:
        raise BindingError("scatter_nd", "indices.ndim", "0", "at least 1 (the last dimension holds a tuple)")
    coordinates = indices.shape[-1]
    if coordinates > x.ndim:
        allowed = f"0 to {x.ndim} (x has {x.ndim} dimensions)"
        raise BindingError("scatter_nd", "indices.shape[-1]", str(coordinates), allowed)
    updates = _as_updates(updates, x.dtype)
    shape = indices.shape[:-1] + x.shape[coordinates:]
    if updates.shape != shape:
        allowed = f"{shape} (indices.shape[:-1] + x.shape[{coordinates}:]; updates are not broadcast)"
        raise BindingError("scatter_nd", "updates.shape", str(updates.shape), allowed)
    return x, indices, updates


def allocate(x: Array, indices: Array, updates: Array, out: Array | None) -> Array:
    """Return the array the result is written to: a new one, or `out` if it fits."""
    if out is None:
        return np.empty(x.shape, x.dtype)
    out = check_output("scatter_nd", "out", out, x.shape, x.dtype)
    check_apart("scatter_nd", "out", out, {"indices": indices, "updates": updates})
    if not same_memory(x, out):
        check_apart("scatter_nd", "out", out, {"x (it may be x itself, but not a part of it)": x})
    return out


@dataclass(frozen=True, slots=True)
class Plan:
    """How one set of shapes and layouts is worked on: plain integers."""

    count: int  # updates
    space: int  # places they can go to
    sizes: NDArray[np.int64]  # of the indexed dimensions
    tuples: Grid  # strides of indices
    targets: Grid  # the indexed dimensions: strides of out
    sources: Grid  # strides of updates from one slice to the next
    slices: Grid  # runs within a slice: strides of out and updates
    run: tuple[int, int, int]  # a run's length, and its steps in out and updates
    resolve_parts: int
    apply_parts: int


@functools.lru_cache(maxsize=1024)
def plan(
    shape: tuple[int, ...],
    words_an_element: int,
    indices_shape: tuple[int, ...],
    strides: tuple[Sequence[int], Sequence[int], Sequence[int]],
    limits: Budget,
) -> Plan:
    """Cut the work. strides: of out, indices and updates, in words of their own."""
    out_strides, indices_strides, updates_strides = strides
    coordinates = indices_shape[-1]
    outer = len(indices_shape) - 1
    count = math.prod(indices_shape[:-1])
    space = math.prod(shape[:coordinates])
    slices = make_grid(
        (*shape[coordinates:], words_an_element),
        (*out_strides[coordinates:], 1),
        (*updates_strides[outer:], 1),
    )
    length, out_step, updates_step = map(int, slices[:, -1])
    inner = math.prod(shape[coordinates:]) * words_an_element
    chosen = Plan(
        count=count,
        space=space,
        sizes=np.array(shape[:coordinates], np.int64),
        tuples=make_grid(indices_shape[:-1], indices_strides[:-1]),
        targets=make_grid(shape[:coordinates], out_strides[:coordinates]),
        sources=make_grid(indices_shape[:-1], updates_strides[:outer]),
        slices=slices[:, :-1].copy() if slices.shape[1] > 1 else make_grid((), (), ()),
        run=(length, out_step, updates_step),
        resolve_parts=limits.parts(work=count * max(coordinates, 1), most=count),
        apply_parts=limits.parts(work=count * inner, most=space),
    )
    _log.debug("scatter_nd: %d updates of %d words into %s: %d parts", count, inner, shape, chosen.apply_parts)
    return chosen


def execute(
    x: Array,
    indices: Array,
    updates: Array,
    out: Array,
    *,
    reduction: str = "none",
    mode: str = "raise",
    operator: str = "scatter_nd",
    field: str = "indices",
) -> None:
    """Run on checked arrays of any strides; errors about an index name `operator` and `field`."""
    operation = _operation(x.dtype, reduction)
    if indices.dtype.itemsize < 4:
        indices = indices.astype(np.int64)
    computed_as = _element_type(out, updates, reduction)
    width = computed_as.itemsize
    limits = budget()
    strides = (
        word_strides(out, width),
        word_strides(indices, indices.dtype.itemsize),
        word_strides(updates, width),
    )
    chosen = plan(x.shape, out.dtype.itemsize // width, indices.shape, strides, limits)
    with scratch((chosen.count, np.int64), (chosen.resolve_parts, np.int64)) as (positions, bad):
        resolve_positions(chosen, indices, mode, positions, bad, operator, field)
        if not same_memory(x, out):
            copy(x, out, limits)
        if chosen.count == 0 or out.size == 0:
            return
        out_words, out_start = words(out, width)
        updates_words, updates_start = words(updates, width)
        # fmt: off
        registry.find("scatter_nd", "apply").kernel(
            chosen.apply_parts, positions, chosen.count, chosen.space,
            out_words.view(computed_as), out_start, chosen.targets,
            updates_words.view(computed_as), updates_start, chosen.sources, chosen.slices, *chosen.run, operation,
            _HALVES.get(out.dtype.name, combine.PLAIN),
        )
        # fmt: on


def resolve_positions(
    chosen: Plan, indices: Array, mode: str, positions: Array, bad: Array, operator: str, field: str
) -> None:
    """Write where each update goes, as a position in the indexed space; negative if it is dropped."""
    if chosen.count == 0:
        return
    if chosen.space == 0 and mode == "clip":
        empty = int(np.argmin(chosen.sizes))
        raise IndexOutOfRangeError(
            operator, field, "clipped into an empty dimension", f"none: dimension {empty} has 0 elements"
        )
    if indices.size:
        index_words, start = words(indices, indices.dtype.itemsize)
        step = indices.strides[-1] // indices.dtype.itemsize
    else:  # T == 0: each update goes to the one place there is
        index_words, start, step = np.zeros(1, np.uint64), 0, 0
    # fmt: off
    registry.find("scatter_nd", "resolve").kernel(
        chosen.resolve_parts, index_words.view(indices.dtype), start, step, chosen.tuples, chosen.count, chosen.sizes,
        _MODES[mode], positions, bad,
    )
    # fmt: on
    found = bad[bad != resolve.GOOD]
    if found.size:
        raise _out_of_range(indices, int(found[0]), chosen.sizes, operator, field)


def copy(x: Array, out: Array, limits: Budget) -> None:
    """Copy x to out, with all threads where both are contiguous."""
    if x.flags.f_contiguous and out.flags.f_contiguous:
        x, out = x.T, out.T
    if not (x.flags.c_contiguous and out.flags.c_contiguous) or x.size == 0:
        np.copyto(out, x)
        return
    parts = limits.parts(work=out.nbytes // 8, most=out.nbytes)  # some 8 bytes a nanosecond
    registry.find("scatter_nd", "copy").kernel(parts, words(x, 1)[0], words(out, 1)[0])


def _as_updates(updates: Any, dtype: np.dtype[Any]) -> Array:
    """Return `updates` as an array of x's type; lists and numbers are converted, arrays have to be of it."""
    if not hasattr(updates, "dtype"):
        return _from_list(updates, dtype)
    updates = as_array("scatter_nd", "updates", updates)
    if updates.dtype != dtype:
        raise BindingError("scatter_nd", "updates.dtype", str(updates.dtype), f"{dtype} (x's type)")
    result: Array = updates
    return result


def _from_list(updates: Any, dtype: np.dtype[Any]) -> Array:
    """Convert lists and numbers to x's type, but not what would lose a fraction, a digit or characters."""
    allowed = f"what {dtype} (x's type) holds"
    try:
        given = np.asarray(updates)
        with np.errstate(all="ignore"):
            array = np.asarray(updates, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise BindingError("scatter_nd", "updates", str(error), allowed) from None
    if given.size and not _converts(given.dtype, dtype):
        raise BindingError("scatter_nd", "updates", f"a list of {given.dtype}", allowed)
    if given.dtype.kind in "fc" and (np.isinf(array) & ~np.isinf(given)).any():
        raise BindingError("scatter_nd", "updates", "a number that overflows", allowed)
    return array


def _converts(given: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether a list of one type may be given for another; whether integers fit is told by their values."""
    if dtype.name == "bfloat16":
        return given.kind in "biuf"
    if given.kind in "iu" and dtype.kind in "iu":
        return True
    if given.kind in "biufc" and dtype.kind in "biufc":
        return np.can_cast(given, dtype, "same_kind")
    return given.kind == dtype.kind and np.can_cast(given, dtype, "safe")


def _operation(dtype: np.dtype[Any], reduction: str) -> int:
    """Return the kernel's operation for a reduction on a type."""
    if reduction == "none":
        return combine.OVERWRITE
    name = dtype.name
    if name not in _COMPUTED_AS:
        raise UnsupportedError(
            "scatter_nd", f"x.dtype with reduction {reduction!r}", str(dtype), ", ".join(_COMPUTED_AS)
        )
    if name == "bool":
        return _BOOL_REDUCTIONS[reduction]
    if dtype.kind == "c":
        if reduction not in _COMPLEX_REDUCTIONS:
            raise UnsupportedError(
                "scatter_nd", f"x.dtype with reduction {reduction!r}", str(dtype), "a type whose values are ordered"
            )
        return _COMPLEX_REDUCTIONS[reduction]
    return _REDUCTIONS[reduction]


def _element_type(out: Array, updates: Array, reduction: str) -> np.dtype[Any]:
    """Return the type the kernel sees: the numbers to compute with, else the widest words all elements consist of."""
    if reduction != "none":
        return np.dtype(_COMPUTED_AS[out.dtype.name])
    places = (out.ctypes.data, updates.ctypes.data, *out.strides, *updates.strides, out.dtype.itemsize, 8)
    multiple = functools.reduce(lambda a, b: a | b, map(abs, places))
    return np.dtype(f"u{multiple & -multiple}")  # the lowest bit set anywhere


def _out_of_range(
    indices: Array, place: int, sizes: NDArray[np.int64], operator: str, field: str
) -> IndexOutOfRangeError:
    number, coordinate = divmod(place, sizes.size)
    where = (*map(int, np.unravel_index(number, indices.shape[:-1])), coordinate)
    size = int(sizes[coordinate])
    lowest = 0 if indices.dtype.kind == "u" else -size
    allowed = f"{lowest} to {size - 1}" if size else "none"
    return IndexOutOfRangeError(
        operator,
        f"{field}[{', '.join(map(str, where))}]",
        str(indices[where]),
        f"{allowed} (coordinate {coordinate} of tuple {number}; that dimension has {size} elements)",
    )
