"""How products of bytes are carried out: which kernel, and how the work is cut."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm import skinny
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.work import HEAD, NARROW, WORK, groups_of, lhs_cells, panels_of, share_cells
from dmlcpu.kernels.registry import Entry, Product
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.operators.packing import broadcast_strides, flip_to_signed, flip_to_unsigned
from dmlcpu.runtime.compilation import in_python
from dmlcpu.runtime.memory import Workspace, first_word, second_level_cache, word_strides
from dmlcpu.runtime.records import fill
from dmlcpu.runtime.threads import Budget

_log = logging.getLogger("dmlcpu")

# Panels of a block at most: more gain nothing, and what is kept of each column takes space.
_LARGEST_BLOCK = 32
# Bytes of a's rows that are kept packed from one block of columns to the next; more of them are packed every time.
_KEPT_LHS = 4 << 20
# Bytes of the sums that a few rows are multiplied into: they stay near while b passes (16 KiB are slower, 256 alike).
_SKINNY_SUMS = 64 << 10
# Into how many tasks the work of a thread is cut, so that a fast core can take what a slow one does not get to.
_TASKS = 4
_PARAMETERS = ("a_scale", "a_zero", "b_scale", "b_zero", "y_scale", "y_zero")


class Layout(NamedTuple):
    """What a plan has to know of an array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: np.dtype[Any]


class Shape(NamedTuple):
    """What the cut of the work follows from."""

    batches: int
    rows: int
    columns: int
    depth: int


class Cut(NamedTuple):
    """How the work is cut; see the kernels' work record."""

    threads: int
    row_parts: int
    column_parts: int
    NC: int
    slots: int
    cells: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How one set of shapes and layouts is worked on."""

    run: Callable[..., Any]  # the kernel, to be called with (0, parts, ...)
    parts: int
    work: NDArray[np.int64]  # what it is told
    workspace: Workspace


@functools.lru_cache(maxsize=1024)
def plan(
    operator: str,
    a: Layout,
    b: Layout,
    out: Layout,
    parameters: tuple[tuple[int, ...] | None, ...],
    packed: bool,
    limits: Budget,
    kernel: str | None,
) -> Plan:
    """Choose the kernel and cut the work. parameters: the shapes of scales and zero points, in the kernels' order."""
    *batch, rows, columns = out.shape
    shape = Shape(math.prod(batch), rows, columns, a.shape[-1])
    entry, product = _kernel_for(operator, shape, b.strides[-1], packed, kernel)
    cut = _cut_skinny(shape, limits) if product.is_skinny else _cut_tiles(product, shape, packed, limits)
    _log.debug("%s: %s by %s: %s, %d parts", operator, a.shape, b.shape, entry.name, cut.threads)
    return Plan(
        entry.kernel.for_parts(cut.threads),
        cut.threads,
        fill(WORK, **_sizes(shape, cut, out.dtype), **_arrays(a, b, out, parameters, packed)),
        Workspace(HEAD + cut.threads * cut.cells),
    )


def _kernel_for(operator: str, shape: Shape, column_step: int, packed: bool, name: str | None) -> tuple[Entry, Product]:
    """Return the kernel that suits a product best, or the one of that name if it can do it."""
    able = [
        (entry, entry.product)
        for entry in registry.available(operator, "dot")
        if name in (None, entry.name)
        and entry.product is not None
        and (entry.supports is None or (not packed and entry.supports(*shape[1:], column_step)))
    ]
    if not able:
        raise LookupError(f"no kernel {name} for this product on this machine")
    return max(able, key=lambda pair: (pair[1].is_skinny, pair[0].isa.rank))  # those for few rows come first


def _sizes(shape: Shape, cut: Cut, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the fields of the work record that say what is multiplied, and how it is cut."""
    limits = np.iinfo(dtype)
    return {
        "M": shape.rows,
        "N": shape.columns,
        "K": shape.depth,
        "groups": in_python(groups_of)(shape.depth),
        "panels": in_python(panels_of)(shape.columns),
        "tasks": shape.batches * cut.row_parts * cut.column_parts,
        "row_parts": cut.row_parts,
        "column_parts": cut.column_parts,
        "NC": cut.NC,
        "slots": cut.slots,
        "cells": cut.cells,
        "is_wide": shape.depth > NARROW and dtype.itemsize == 1,  # sums that are stored as int32 wrap anyway
        "lowest": int(limits.min),
        "highest": int(limits.max),
    }


def _arrays(
    a: Layout, b: Layout, out: Layout, parameters: tuple[tuple[int, ...] | None, ...], packed: bool
) -> dict[str, Any]:
    """Return the fields of the work record that say where things lie."""
    ndim = len(out.shape)
    own = [broadcast_strides(shape or (), ndim) for shape in parameters]
    steps = dict(zip(_PARAMETERS, [strides[-2] or strides[-1] for strides in own], strict=True))
    out_strides = word_strides(out.strides, out.dtype.itemsize)
    b_batch = broadcast_strides(b.shape[:-2], ndim - 2) if packed else _batch_strides(b, ndim - 2)
    sizes, *strides = merge(
        out.shape[:-2], _batch_strides(a, ndim - 2), b_batch, out_strides[:-2], *[strides[:-2] for strides in own]
    )
    return {
        "walk": walk_of(sizes),
        "a": _matrix(a.shape, a.strides, strides[0]),
        "b": _matrix(b.shape, b.strides, strides[1]),
        "y": _matrix(out.shape, out_strides, strides[2]),
        "a_flip": flip_to_unsigned(a.dtype),
        "b_flip": flip_to_signed(b.dtype),
        "b_is_packed": packed,
        "same_a_zero": steps["a_zero"] == 0,
        "same_rows": steps["a_zero"] == steps["y_zero"] == 0,
        "same_multiplier": steps["a_scale"] == steps["y_scale"] == 0,
        **{name: {"step": steps[name], "strides": along} for name, along in zip(_PARAMETERS, strides[3:], strict=True)},
    }


def _matrix(shape: tuple[int, ...], strides: tuple[int, ...], along_batch: list[int]) -> dict[str, Any]:
    return {"start": first_word(shape, strides), "row": strides[-2], "column": strides[-1], "strides": along_batch}


def _batch_strides(layout: Layout, ndim: int) -> tuple[int, ...]:
    """Return the strides of the batch dimensions when they are broadcast to so many."""
    own = layout.strides[:-2]
    pairs = zip(layout.shape, own, strict=False)
    return (0,) * (ndim - len(own)) + tuple(stride if size > 1 else 0 for size, stride in pairs)


def _cut_tiles(product: Product, shape: Shape, packed: bool, limits: Budget) -> Cut:
    """Cut a product of packed operands by rows and by columns."""
    batches, rows, columns, depth = shape
    groups, panels, tiles = in_python(groups_of)(depth), in_python(panels_of)(columns), -(-rows // product.mr)
    reading = columns * depth // (48 if packed else 8)  # and packing, if it is not
    work = batches * (rows * columns * depth // product.rate + reading + rows * depth // 8)
    threads = limits.parts(work, most=batches * tiles * panels)
    row_parts, column_parts = cut(batches, tiles, panels, threads, not packed)
    while threads > 1 and batches * row_parts * column_parts < _TASKS * threads and 2 * column_parts <= panels:
        column_parts *= 2
    in_cache = second_level_cache() // 2 // max(1, 4 * groups * NR)
    block = max(1, min(in_cache, _LARGEST_BLOCK, -(-panels // column_parts)))
    slots = -(-tiles // row_parts)
    if 8 * slots * in_python(lhs_cells)(groups, product.mr) > _KEPT_LHS:
        slots = 1
    cells = share_cells(depth, block, product.mr, slots, not packed)
    return Cut(min(threads, batches * row_parts * column_parts), row_parts, column_parts, block, slots, cells)


def _cut_skinny(shape: Shape, limits: Budget) -> Cut:
    """Cut a product of few rows by columns, and these into blocks whose sums stay in the nearest caches."""
    batches, rows, columns, depth = shape
    pairs = -(-columns // (2 * NR))
    threads = limits.parts(batches * columns * depth * (4 + rows) // 64, most=batches * pairs)
    column_parts = 1
    while threads > 1 and batches * column_parts < _TASKS * threads and 2 * column_parts <= pairs:
        column_parts *= 2
    most = _SKINNY_SUMS // ((rows + 1) * 4 * 2 * NR)
    block = 2 * max(1, min(most, -(-pairs // column_parts)))
    cells = skinny.share_cells(depth, block, rows)
    return Cut(min(threads, batches * column_parts), 1, column_parts, block, 1, cells)


def cut(batches: int, tiles: int, panels: int, threads: int, packs: bool) -> tuple[int, int]:
    """Return into how many parts to cut the rows and the columns of each product, so that all threads finish early.

    Parts of the rows each pack all columns of b again, if it is not packed.
    """

    def time(parts: tuple[int, int]) -> tuple[int, int]:
        tasks = batches * parts[0] * parts[1]
        rows, columns = -(-tiles // parts[0]), -(-panels // parts[1])
        return -(-tasks // threads) * columns * (rows + packs), tasks

    counts = [1]
    while counts[-1] < threads:
        counts.append(min(2 * counts[-1], threads))
    return min(
        ((rows, columns) for rows in counts for columns in counts if rows <= tiles and columns <= panels), key=time
    )
