"""How scatter_nd is carried out: what the kernels see elements as, and how the work is cut."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.errors import UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.kernels.brief import Brief
from dmlcpu.kernels.grid import make_grid
from dmlcpu.kernels.scatter_nd import combine, resolve
from dmlcpu.kernels.scatter_nd.brief import BLOCK, BLOCK_CELLS, Layout, make_brief
from dmlcpu.kernels.scatter_nd.buckets import PAIRS
from dmlcpu.operators.arguments import Array, type_name
from dmlcpu.runtime.memory import C_CONTIGUOUS, F_CONTIGUOUS, Workspace, first_word, second_level_cache, word_strides
from dmlcpu.runtime.threads import Budget

_log = logging.getLogger("dmlcpu")

MODES = {"raise": resolve.RAISE, "drop": resolve.DROP, "clip": resolve.CLIP}
REDUCTIONS = {
    "none": combine.OVERWRITE,
    "add": combine.ADD,
    "mul": combine.MULTIPLY,
    "min": combine.MINIMUM,
    "max": combine.MAXIMUM,
}
# On bytes that are 0 or 1, or is the maximum and and the minimum.
_BOOL_REDUCTIONS = {**REDUCTIONS, "add": combine.MAXIMUM, "mul": combine.MINIMUM}
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
CONTIGUOUS = C_CONTIGUOUS | F_CONTIGUOUS
_HALVES = {"float16": combine.FLOAT16, "bfloat16": combine.BFLOAT16}


def operation_of(dtype: np.dtype[Any], reduction: str) -> int:
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
    return REDUCTIONS[reduction]


def element_type(x: Array, updates: Array, out: Array, reduction: str) -> np.dtype[Any]:
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


# Many single elements are sorted by region first, where that pays. Measured with 4,000,000 float32, two threads, ns an
# update, sorted and not: into 16 MB 4.9 and 4.3, 64 MB 5.8 and 6.8, as float64 into 128 MB 6.2 and 11.5; with 1,000,000
# float64 into 128 MB 16 and 17, with fewer it does not pay.
_SORTED_UPDATES = 1 << 20  # at least so many
_SORTED_CACHES = 32  # in an output of at least so many second caches
# Outputs of so many bytes at most are copied and tried on, rather than that all indices are looked at twice.
_TRIED = 1 << 16
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
    checks: bool  # whether `apply` looks for bad indices itself
    trial: bool  # and does so while it writes, so that it is given a copy of out
    buckets: int  # what updates are sorted into, if they are
    forced: bool  # even if they are not spread over the buckets
    tables: int  # where the buckets' sizes are in the scratch
    ticket: int  # where the number of the next bucket is
    brief: Brief  # what all kernels are told
    count: int  # updates
    element: np.dtype[Any]  # what the updates are seen as
    workspace: Workspace


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
    operation, half = operation_of(dtype, reduction), _HALVES.get(dtype.name, combine.PLAIN)
    inner = math.prod(shape[coordinates:]) * words_an_element
    # Regions are runs of whole slices where slices lie one after the other, else runs of words.
    in_order = out_strides == tuple(math.prod(shape[d + 1 :]) * words_an_element for d in range(len(shape)))
    span = sum((size - 1) * abs(stride) for size, stride in zip(shape, out_strides, strict=True)) + words_an_element
    regions, unit = (space, inner) if in_order else (span, 1)
    parts = limits.parts(work=count * max(coordinates, 1), most=count)
    nbytes = math.prod(shape) * dtype.itemsize if copied else 0
    # In nanoseconds: a place, the words there, the copy.
    apply_parts = limits.parts(work=count * (5 + inner // 4) + nbytes // 32, most=regions)
    single = inner == 1 and layout.sources.shape[1] == 1 and count > 0
    if kernel not in (None, "apply", "drain") or (kernel == "drain" and not single):
        raise LookupError(f"no kernel {kernel} for {count} updates of {inner} words")
    worth = count >= _SORTED_UPDATES and span * width >= _SORTED_CACHES * second_level_cache()
    can_check = mode == "raise" and in_order and kernel != "drain"
    # To copy the output must be less than to look at the indices once more; a block is looked at before it is written.
    trial = can_check and count >= span and count > BLOCK and span * width <= _TRIED
    checks = trial or (can_check and 0 < count <= BLOCK)
    buckets, shift = _buckets(span, width) if single and (worth if kernel is None else kernel == "drain") else (0, 0)
    # The scratch: reports of `survey`, blocks of all kernels, tables, the ticket, sorted places and values.
    tables = max(parts, apply_parts) * (1 + BLOCK_CELLS)
    ticket = tables + parts * 3 * (buckets + 1)
    near = ticket + 8 - ticket % 8  # they start cache lines
    pairs = near + parts * (buckets + 1) * 2 * PAIRS
    brief = make_brief(
        (
            *(i_start, indices_strides[-1] if coordinates else 0, index_type.itemsize == 8, index_type.kind == "i"),
            *(MODES[mode], first_word(shape, out_strides), count),
        ),
        (updates_start, *map(int, slices[:, -1]), operation, half, regions, unit, checks),
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
        checks=checks,
        trial=trial,
        buckets=buckets,
        forced=kernel == "drain",
        tables=tables,
        ticket=ticket,
        brief=brief,
        count=count,
        element=element,
        workspace=Workspace(pairs + (count + parts * buckets * PAIRS if buckets else 0) * (2 if width == 8 else 1)),
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
