"""Selection: the k best scores of each row of a product, by kernels that never write the others."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import regions_of, tile_of
from dmlcpu.common.regions import Region
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.candidates import HEADER, LEAST
from dmlcpu.kernels.gemm.finish import finish_cells
from dmlcpu.kernels.gemm.pack import LAYOUT
from dmlcpu.kernels.gemm.table import COLUMNS, Product
from dmlcpu.kernels.gemm.work import COUNTER, NARROW, SHARES, WORK, Problem
from dmlcpu.products.blocks import packed_part, part_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.plan import (
    BYTE,
    NO_BIAS,
    Layout,
    array_fields,
    bytes_of,
    cut_for,
    flat,
    form_of,
    kernel_for,
    rhs,
    size_fields,
)
from dmlcpu.runtime.memory import Workspace, packed_strides, words
from dmlcpu.runtime.records import CELL, fill
from dmlcpu.runtime.threads import Budget, budget

_log = logging.getLogger("dmlcpu")

Rhs = Array | PackedMatrix
Shape = tuple[int, ...]

_OPERATOR = "matmul_top_k"
_LINE = 16  # keys that are looked at together
# Up to this k the candidates of a row are kept in order. For 512 rows and 100,000 columns, k 64 takes 25.0 ms so, k 100
# 28.1; with lists that are cut back 25.9 and 26.2 (Zen 5).
_SORTED = 64
# Candidates of a row beyond twice k. With fewer, lists are cut back more often; with more, more scores are candidates.
_SPARE = 32
# Bytes of the candidates of all shares. More rows are selected one block after the other, of _LEAST_ROWS at least: each
# block reads b again.
_MOST_BYTES, _LEAST_ROWS = 16 << 20, 64
_ONE, _ALL, _NO_SUM = np.ones(1, np.float32), np.ones(1, BYTE), np.zeros(1, np.float32)
_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)


class Order(NamedTuple):
    """Which scores come first, and what they are."""

    k: int
    is_scaled: bool  # float32, else int32
    is_largest: bool = True
    nan_last: bool = False
    shift: int = 0  # of sums to the left, before the bias is added
    has_mask: bool = False


class Operands(NamedTuple):
    """What is multiplied and added, all of it checked. Matrices have the dimensions of the result's batch or fewer."""

    a: Array
    b: Rhs
    a_scale: Array | None  # float32, as (..., M, 1); scales and zero points as those of a product
    a_zero_point: Array | None
    b_scale: Array | None
    b_zero_point: Array | None
    bias: Array | None = None  # float32 if scores are scaled, else int32: (..., 1, N)
    mask: Array | None = None  # bytes, (N,)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a selection is carried out: one kernel selects, another merges what the shares have selected."""

    kernel: Product
    run: Callable[..., Any]
    finish: Callable[..., Any]
    work: NDArray[np.int64]
    workspace: Workspace
    header: NDArray[np.int64]  # of the candidates of a row, at the start
    start: int  # the cells of all candidates
    stop: int
    row_cells: int


def select(operands: Operands, order: Order, values: Array, indices: Array, *, most_threads: int | None = None) -> None:
    """Write the k best scores of each row, best first, and their columns: what `top_k` gives of the product.

    The scores are a @ b less zero points. Scaled ones are float32(sum) * (a_scale * b_scale) + bias, each operation
    rounded; the others (sum << shift) + bias, modulo 2**32. If fewer than k columns are allowed by the mask, the last
    indices are -1, and the scores beside them -inf or the least int32 (inf or the greatest, if the smallest come
    first).

    b may be packed or any view. Up to 4 rows of a, the transpose of vectors (N, K) in C order is read as it lies, once
    and in the order of memory, so it may lie in a mapped file; a packed matrix is as fast. For more rows a packed
    matrix is fastest. The transpose of vectors is packed block by block then, which takes as long as about 10 rows.

    Parameters
    ----------
    operands, order
        Checked.
    values : ndarray of float32 or int32, shape (..., M, k)
        Any strides.
    indices : ndarray of int64, shape (..., M, k)
        Any strides.
    most_threads : int, optional
        At most so many.
    """
    if values.size == 0:
        return
    spent, rows = budget(most_threads), values.shape[:-1]
    block = block_of(rows, order.k, operands.b.shape[-1], spent.threads)
    if block == rows:
        _select_rows(operands, order, values, indices, spent)
        return
    for region in regions_of(rows, block):
        _select_rows(rows_of(operands, region), order, values[region], indices[region], spent)


def block_of(rows: Shape, k: int, columns: int, threads: int) -> Shape:
    """Return how many rows are selected at a time; rows: the shape of the result without k."""
    row_bytes = CELL * threads * (HEADER + capacity_of(k, columns))
    return tile_of(rows, max(_MOST_BYTES // row_bytes, _LEAST_ROWS))


def capacity_of(k: int, columns: int) -> int:
    """Return how many candidates a row has at most."""
    most = k if k <= _SORTED else min(2 * k + _SPARE, columns)
    return -(-most // _LINE) * _LINE


def rows_of(operands: Operands, region: Region) -> Operands:
    """Return the operands of a block of rows."""
    a, b, *others = operands
    scores = (*region, slice(0, b.shape[-1]))
    of_b = part_of(b.shape, scores, -2)
    b = packed_part(b, of_b) if isinstance(b, PackedMatrix) else b[of_b]
    parts = [each if each is None else each[part_of(each.shape, scores)] for each in others]
    return Operands(a[part_of(a.shape, scores, -1)], b, *parts)


def plan_for(operands: Operands, order: Order, rows: Shape, strides: Callable[[Array], Shape], spent: Budget) -> Plan:
    """Return the plan for checked operands; rows: the shape of the result without k; strides: of a matrix."""
    a, b, *parameters = operands[:-1]
    shapes = [None if each is None else each.shape for each in parameters]
    b_layout = Layout(b.shape, (0,) * len(b.shape) if isinstance(b, PackedMatrix) else strides(b), b.dtype)
    a_layout = Layout(a.shape, strides(a), a.dtype)
    form = (COLUMNS, False) if _has_columns(b_layout) else form_of(b)
    return plan(a_layout, b_layout, rows, tuple(shapes[:-1]), shapes[-1], order, *form, spent)


def _has_columns(b: Layout) -> bool:
    """Return whether a matrix has contiguous columns, one behind the other; packed ones have not."""
    return b.strides[-2] == 1 and b.strides[-1] >= b.shape[-2]


def _select_rows(operands: Operands, order: Order, values: Array, indices: Array, spent: Budget) -> None:
    """Select in one block of rows."""
    chosen = plan_for(operands, order, values.shape[:-1], attrgetter("strides"), spent)
    a, b, *parameters, bias, mask = operands
    none = NO_BIAS if order.is_scaled else _NO_SUM
    added = none if bias is None else np.ascontiguousarray(bias).reshape(-1).view(_FLOAT)
    allowed = _ALL if mask is None else words(mask, BYTE)
    # Absent scales are numbers, too: for other types the kernel would be compiled again.
    a_scale, a_zero, b_scale, b_zero = [
        _ONE if each is None and i % 2 == 0 else flat(each) for i, each in enumerate(parameters)
    ]
    arrays = (bytes_of(a), *rhs(b), a_scale, a_zero, b_scale, b_zero, _ONE, allowed, added)
    are_packed = values.flags.c_contiguous and indices.flags.c_contiguous
    out = (values, indices) if are_packed else (np.empty(values.shape, values.dtype), np.empty(indices.shape, np.int64))
    run(chosen, arrays, out[0].reshape(-1).view(_INT), out[1].reshape(-1))
    if not are_packed:
        np.copyto(values, out[0])
        np.copyto(indices, out[1])


def run(chosen: Plan, arrays: tuple[Array, ...], values: Array, indices: Array) -> None:
    """Run a plan on what the kernels read and write, all of it flat."""
    scratch = chosen.workspace.take()
    scratch[COUNTER] = 0
    scratch[chosen.start : chosen.stop].reshape(-1, chosen.row_cells)[:, : chosen.header.size] = chosen.header
    chosen.run(*arrays, scratch, chosen.work, scratch)
    chosen.finish(values, indices, chosen.work, scratch)
    chosen.workspace.give_back(scratch)


@functools.lru_cache(maxsize=1024)
def plan(
    a: Layout,
    b: Layout,
    rows: Shape,
    parameters: tuple[Shape | None, ...],
    bias: Shape | None,
    order: Order,
    b_layout: str,
    is_exact: bool,
    budget: Budget,
) -> Plan:
    """Choose the kernel and cut the work. rows: the shape of the result without k; the rest as `plan.plan` has it."""
    columns, batches = b.shape[-1], math.prod(rows[:-1])
    problem = Problem(batches, rows[-1], columns, a.shape[-1], b.strides[-1])
    product, reason = kernel_for(_OPERATOR, problem, b_layout, budget.kernel)
    is_packed = b_layout == LAYOUT
    threads, row_parts, column_parts, cut = cut_for(
        product, problem, is_packed, product.has_forms and not is_exact, budget, by_rows=True
    )
    _log.debug("%s: %s by %s: %s (%s), %d parts", _OPERATOR, a.shape, b.shape, product.name, reason, threads)
    all_scores = (*rows, columns)
    out = Layout(all_scores, packed_strides(all_scores, _INT.itemsize), _INT)
    added = None if bias is None else Layout(bias, packed_strides(bias, _FLOAT.itemsize), _FLOAT)
    count = math.prod(rows)
    finishers = budget.parts(count * (100 * threads + 20 * order.k), most=count)
    start = SHARES + threads * cut.share_cells
    selection = _selection_fields(order, count, columns, threads, start)
    stop = selection["finish_start"]
    is_wide = problem.depth > NARROW and order.is_scaled
    work = fill(
        WORK,
        **size_fields(problem, threads, row_parts, column_parts, cut, _INT),
        **array_fields(a, b, out, (*parameters, None, None), added, is_packed, is_wide),
        is_exact=is_exact,
        selection=selection,
    )
    return Plan(
        product,
        product.kernel.for_parts(threads),
        registry.find(_OPERATOR, "finish").kernel.for_parts(finishers),
        work,
        Workspace(stop + finishers * selection["finish_cells"]),
        _empty_list(selection),
        start,
        stop,
        selection["row_cells"],
    )


def _selection_fields(order: Order, rows: int, columns: int, shares: int, start: int) -> dict[str, int]:
    """Return the fields of the work record about candidates; start: the cell where they begin."""
    capacity = capacity_of(order.k, columns)
    row_cells = HEADER + capacity
    is_nan_first = order.is_largest and not order.nan_last
    return {
        "k": order.k,
        "rows": rows,
        "is_scaled": order.is_scaled,
        "is_smallest": not order.is_largest,
        "has_mask": order.has_mask,
        "shift": order.shift,
        "nan_rank": np.iinfo(np.int32).max if is_nan_first else np.iinfo(np.int32).min,
        "fill": _fill(order),
        "shares": shares,
        "start": start,
        "share_cells": rows * row_cells,
        "row_cells": row_cells,
        "capacity": capacity,
        "is_sorted": order.k <= _SORTED,
        "lowest": _least(order),
        "finish_start": start + shares * rows * row_cells,
        "finish_cells": finish_cells(shares, capacity, order.k),
    }


def _empty_list(selection: dict[str, int]) -> NDArray[np.int64]:
    """Return the cells of a row of a share before there are candidates, or the first of them."""
    cells = np.zeros(selection["row_cells"] if selection["is_sorted"] else HEADER, np.int64)
    cells[LEAST], cells[HEADER - 1] = selection["lowest"], -1
    return cells


def fill_value(order: Order) -> float | int:
    """Return the score beside an index of -1."""
    if order.is_scaled:
        return -math.inf if order.is_largest else math.inf
    limits = np.iinfo(np.int32)
    return int(limits.min if order.is_largest else limits.max)


def _fill(order: Order) -> int:
    """Return the bits of the score beside an index of -1."""
    return int(np.array(fill_value(order), _FLOAT if order.is_scaled else _INT).view(_INT))


def _least(order: Order) -> int:
    """Return what scores are compared with before there are k of them: what all reach."""
    return int(np.float32(-np.inf).view(np.int32)) if order.is_scaled else int(np.iinfo(np.int32).min)
