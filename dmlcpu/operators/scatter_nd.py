"""SCATTER_ND: a copy of the input in which index tuples say where updates overwrite, or reduce into, elements."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.errors import BindingError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.kernels.brief import Brief
from dmlcpu.kernels.grid import make_grid
from dmlcpu.kernels.scatter_nd import combine, resolve
from dmlcpu.kernels.scatter_nd.brief import BLOCK_CELLS, Layout, make_brief
from dmlcpu.kernels.scatter_nd.buckets import PAIRS
from dmlcpu.operators.arguments import (
    Array,
    as_array,
    as_array_like,
    check_apart,
    check_choice,
    check_output,
    same_memory,
    type_name,
)
from dmlcpu.runtime.memory import (
    C_CONTIGUOUS,
    F_CONTIGUOUS,
    borrow,
    first_word,
    give_back,
    second_level_cache,
    word_strides,
    words,
)
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
_WORDS = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}
INDEX_WORD = np.dtype(np.uint32)
_CONTIGUOUS = C_CONTIGUOUS | F_CONTIGUOUS
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
    in_place = out is not None and same_memory(x, result)
    execute(result if in_place else x, indices, updates, result, reduction=reduction, mode=mode)
    return result


def check(x: Any, indices: Any, updates: Any, reduction: Any, mode: Any) -> tuple[Array, Array, Array]:
    """Return the array arguments as arrays that fit together, or refuse them."""
    x = as_array("scatter_nd", "x", x)
    check_choice("scatter_nd", "reduction", reduction, _REDUCTIONS)
    check_choice("scatter_nd", "mode", mode, _MODES)
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
    updates = as_array_like("scatter_nd", "updates", updates, "x", x.dtype)
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


# Many single elements are sorted by region first, where that pays. Measured with 4,000,000 float32, two threads, ns an
# update, sorted and not: into 16 MB 4.9 and 4.3, 64 MB 5.8 and 6.8, as float64 into 128 MB 6.2 and 11.5; with 1,000,000
# float64 into 128 MB 16 and 17, with fewer it does not pay.
_SORTED_UPDATES = 1 << 20  # at least so many
_SORTED_CACHES = 32  # in an output of at least so many second caches
_MOST_BUCKETS = 256  # more would not find room in the caches while they are filled
_LEAST_BUCKETS = 16  # for shares to take turns with


@dataclass(frozen=True, slots=True)
class Plan:
    """How one set of shapes, layouts and types is worked on."""

    survey: Callable[..., Any] | None  # the kernels, to be called with (0, parts, ...); not all work needs this one
    copy: Callable[..., Any]
    apply: Callable[..., Any]
    partition: Callable[..., Any]
    drain: Callable[..., Any]
    parts: int  # shares of the updates
    apply_parts: int  # shares of the output
    fused: bool  # whether the shares of `apply` can copy their regions themselves
    buckets: int  # what updates are sorted into, if they are
    forced: bool  # even if they are not spread over the buckets
    tables: int  # where the buckets' sizes are in the scratch
    ticket: int  # where the number of the next bucket is
    brief: Brief  # what all kernels are told
    count: int  # updates
    element: np.dtype[Any]  # what the updates are seen as
    scratch: int  # cells


@functools.lru_cache(maxsize=1024)
def plan(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    element: np.dtype[Any],
    indices_shape: tuple[int, ...],
    index_type: np.dtype[Any],
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    reduction: str,
    mode: str,
    copied: bool,
    limits: Budget,
    kernel: str | None = None,
) -> Plan:
    """Cut the work. strides: of out, indices and updates; copied: x and out are copied as they lie in memory."""
    width = element.itemsize
    out_strides, updates_strides = word_strides(strides[0], width), word_strides(strides[2], width)
    indices_strides = word_strides(strides[1], INDEX_WORD.itemsize)
    words_an_element = dtype.itemsize // width
    coordinates = indices_shape[-1]
    outer = indices_shape[:-1]
    count = math.prod(outer)
    space = math.prod(shape[:coordinates])
    slices = make_grid(
        (*shape[coordinates:], words_an_element),
        (*out_strides[coordinates:], 1),
        (*updates_strides[len(outer) :], 1),
    )
    layout = Layout(
        sizes=shape[:coordinates],
        steps=out_strides[:coordinates],
        tuples=make_grid(outer, indices_strides[:-1]),
        sources=make_grid(outer, updates_strides[: len(outer)]),
        slices=slices[:, :-1] if slices.shape[1] > 1 else make_grid((), (), ()),
    )
    i_start = first_word(indices_shape, indices_strides) if coordinates else 0
    updates_start = first_word(outer + shape[coordinates:], updates_strides)
    operation, half = _operation(dtype, reduction), _HALVES.get(dtype.name, combine.PLAIN)
    inner = math.prod(shape[coordinates:]) * words_an_element
    # Regions are runs of whole slices where slices lie one after the other, else runs of words.
    in_order = out_strides == tuple(math.prod(shape[d + 1 :]) * words_an_element for d in range(len(shape)))
    span = sum((size - 1) * abs(stride) for size, stride in zip(shape, out_strides, strict=True)) + words_an_element
    regions, unit = (space, inner) if in_order else (span, 1)
    parts = limits.parts(work=count * max(coordinates, 1), most=count)
    nbytes = math.prod(shape) * dtype.itemsize if copied else 0
    apply_parts = max(
        limits.parts(work=count * inner, most=regions),
        limits.parts(work=nbytes // 8, most=regions),  # some 8 bytes a nanosecond
    )
    single = inner == 1 and layout.sources.shape[1] == 1 and count > 0
    if kernel not in (None, "apply", "drain") or (kernel == "drain" and not single):
        raise LookupError(f"no kernel {kernel} for {count} updates of {inner} words")
    worth = count >= _SORTED_UPDATES and span * width >= _SORTED_CACHES * second_level_cache()
    buckets, shift = _buckets(span, width) if single and (worth if kernel is None else kernel == "drain") else (0, 0)
    # The scratch: reports of `survey`, blocks of all kernels, tables, the ticket, sorted places and values.
    tables = max(parts, apply_parts) * (1 + BLOCK_CELLS)
    ticket = tables + parts * 3 * (buckets + 1)
    near = ticket + 8 - ticket % 8  # they start cache lines
    pairs = near + parts * buckets * 2 * PAIRS
    brief = make_brief(
        (
            *(i_start, indices_strides[-1] if coordinates else 0, index_type.itemsize == 8, index_type.kind == "i"),
            *(_MODES[mode], first_word(shape, out_strides), count),
        ),
        (updates_start, *map(int, slices[:, -1]), operation, half, regions, unit),
        (buckets, shift, parts, span, tables, ticket, near, pairs),
        layout,
    )
    _log.debug("scatter_nd: %d updates of %d words into %s: %d parts, %d buckets", count, inner, shape, parts, buckets)
    kernels = {entry.name: entry.kernel for entry in registry.available("scatter_nd")}
    return Plan(
        survey=kernels["survey"].for_parts(parts) if count and (mode == "raise" or buckets) else None,
        copy=kernels["copy"],
        apply=kernels["apply"].for_parts(apply_parts),
        partition=kernels["partition"].for_parts(parts),
        drain=kernels["drain"].for_parts(parts),
        parts=parts,
        apply_parts=apply_parts,
        fused=in_order,
        buckets=buckets,
        forced=kernel == "drain",
        tables=tables,
        ticket=ticket,
        brief=brief,
        count=count,
        element=element,
        scratch=pairs + (count + parts * buckets * PAIRS if buckets else 0) * (2 if width == 8 else 1),
    )


def _buckets(span: int, width: int) -> tuple[int, int]:
    """Return how many buckets an output of `span` words is cut into, and the bits of a place within one.

    Those are at most 32, up to 2**40 words.
    """
    shift = (second_level_cache() // 4 // width).bit_length() - 1
    shift = max(min(shift, (span // _LEAST_BUCKETS).bit_length() - 1), 0)
    while (span - 1 >> shift) >= _MOST_BUCKETS:
        shift += 1
    return (span - 1 >> shift) + 1, shift


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
    kernel: str | None = None,
) -> None:
    """Run on checked arrays of any strides, in place if x is out; errors about an index name `operator` and `field`.

    `kernel` asks for one of the two that write, "apply" or "drain" (which takes single elements alone).
    """
    if mode == "clip" and indices.size and 0 in x.shape[: indices.shape[-1]]:
        raise IndexOutOfRangeError(
            operator, field, "clipped into an empty dimension", f"none: dimension {x.shape.index(0)} has 0 elements"
        )
    if indices.itemsize < 4:
        indices = indices.astype(np.int64)
    element = _element_type(x, updates, out, reduction)
    copied = x is not out and x.flags.num & out.flags.num & _CONTIGUOUS != 0
    strides = (out.strides, indices.strides, updates.strides)
    # fmt: off
    chosen = plan(x.shape, x.dtype, element, indices.shape, indices.dtype, strides, reduction, mode, copied, budget(),
                  kernel)
    # fmt: on
    # T == 0: there are no indices, and each update goes to the one place there is. No updates: none is read.
    flat_indices = words(indices, INDEX_WORD) if indices.size else np.zeros(2, INDEX_WORD)
    flat_out = words(out, element) if out.size else np.zeros(1, element)
    flat_updates = words(updates, element) if updates.size else flat_out
    flat_x = words(x, element) if copied and x.size else flat_out[:0]
    unlike = None if copied or x is out else (out, x)
    place = run(chosen, flat_x, flat_indices, flat_updates, flat_out, unlike=unlike)
    if place != resolve.GOOD:
        raise out_of_range(indices, place, x.shape, operator, field)


def run(
    chosen: Plan, x: Array, indices: Array, updates: Array, out: Array, *, unlike: tuple[Array, Array] | None = None
) -> int:
    """Carry out a plan on the words of the arrays; return where the first bad index is, or GOOD.

    x: empty if it is out, or if it is laid out unlike out: then `unlike` are out and x themselves.
    """
    scratch = borrow(chosen.scratch)
    try:
        if chosen.survey:
            chosen.survey(0, chosen.parts, indices, chosen.brief, scratch)
            for part in range(chosen.parts):
                place = int(scratch[part])
                if place != resolve.GOOD:
                    return place
        if unlike is not None:
            np.copyto(*unlike)
        if chosen.buckets and (chosen.forced or _spread(chosen, scratch)):
            chosen.partition(0, chosen.parts, indices, updates, chosen.brief, scratch)
            scratch[chosen.ticket] = 0
            chosen.drain(0, chosen.parts, x, out, chosen.brief, scratch)
            return resolve.GOOD
        if not chosen.fused and chosen.apply_parts > 1 and x.size:
            chosen.copy(0, chosen.apply_parts, x, out)
            x = x[:0]
        chosen.apply(0, chosen.apply_parts, x, indices, updates, out, chosen.brief, scratch)
    finally:
        give_back(scratch)
    return resolve.GOOD


def _spread(chosen: Plan, scratch: Array) -> bool:
    """Tell whether the updates are so spread over the buckets that no thread waits long for the fullest."""
    tables = scratch[chosen.tables : chosen.ticket].reshape(chosen.parts, 3, chosen.buckets + 1)
    counts = tables[:, 0, :-1].sum(axis=0)
    return bool(counts.max() * 2 * max(chosen.parts, 2) <= 3 * chosen.count)


def _operation(dtype: np.dtype[Any], reduction: str) -> int:
    """Return the kernel's operation for a reduction on a type."""
    if reduction == "none":
        return combine.OVERWRITE
    name = type_name(dtype)
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


def _element_type(x: Array, updates: Array, out: Array, reduction: str) -> np.dtype[Any]:
    """Return the type the kernel sees: the numbers to compute with, else the widest words all elements consist of."""
    dtype = out.dtype
    if reduction != "none":
        return np.dtype(_COMPUTED_AS[type_name(dtype)])
    if dtype.alignment > 1 or dtype.itemsize == 1:  # aligned arrays: no need to look at addresses
        return _WORDS[min(dtype.alignment, 8)]
    arrays = (x, updates, out)
    places = (dtype.itemsize, 8, *(place for array in arrays for place in (array.ctypes.data, *array.strides)))
    multiple = functools.reduce(lambda a, b: a | b, map(abs, places))
    return _WORDS[multiple & -multiple]  # the lowest bit set anywhere


def out_of_range(indices: Array, place: int, shape: tuple[int, ...], operator: str, field: str) -> IndexOutOfRangeError:
    """Return the error about the coordinate at a place that `run` returned."""
    number, coordinate = divmod(place, indices.shape[-1])
    where = (*map(int, np.unravel_index(number, indices.shape[:-1])), coordinate)
    size = shape[coordinate]
    lowest = 0 if indices.dtype.kind == "u" else -size
    allowed = f"{lowest} to {size - 1}" if size else "none"
    return IndexOutOfRangeError(
        operator,
        f"{field}[{', '.join(map(str, where))}]",
        str(indices[where]),
        f"{allowed} (coordinate {coordinate} of tuple {number}; that dimension has {size} elements)",
    )
