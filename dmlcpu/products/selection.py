"""Selection: the k best scores of each row of a product, by kernels that never write the others."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlcpu import reference
from dmlcpu.annotations import Mode, Nan
from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import regions_of, tile_of
from dmlcpu.common.forms import Form, Shape, form_of
from dmlcpu.common.prepared import ByFunction, Prepared, nothing
from dmlcpu.common.regions import Region, Tensor
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.candidates import HEADER, LEAST
from dmlcpu.kernels.gemm.finish import finish_cells
from dmlcpu.kernels.gemm.pack import LAYOUT
from dmlcpu.kernels.gemm.table import COLUMN_MAJOR, UNPACKED
from dmlcpu.kernels.gemm.work import COUNTER, NARROW, SHARES, WORK, Problem
from dmlcpu.products.arguments import BYTE, flat_of
from dmlcpu.products.blocks import packed_part, part_of
from dmlcpu.products.packing import PackedMatrix, unpack
from dmlcpu.products.plan import NO_BIAS, NO_BYTES, NO_CELLS, array_fields, cut_for, kernel_for, size_fields, words_of
from dmlcpu.runtime.memory import Workspace, frombuffer, words
from dmlcpu.runtime.records import CELL, record_of
from dmlcpu.runtime.threads import REFERENCE, Budget, plan_for_now

_log = logging.getLogger("dmlcpu")

Rhs = Array | PackedMatrix

_OPERATOR = "matmul_top_k"
_LINE = 16  # keys that are looked at together
# Up to this k the candidates of a row are kept in order. For 512 rows and 100,000 columns, k 64 takes 25.0 ms so, k 100
# 28.1; with lists that are cut back 25.9 and 26.2 (Zen 5).
_SORTED = 64
# Candidates of a row beyond twice k. With fewer, lists are cut back more often; with more, more scores are candidates.
_SPARE = 32
# Bytes of the candidates of all shares. More rows are selected one block after the other, of LEAST_ROWS at least: each
# block reads b again.
MOST_BYTES, LEAST_ROWS = 16 << 20, 64
_ONE, _ALL, _NO_SUM, _NO_ZERO = np.ones(1, np.float32), np.ones(1, BYTE), np.zeros(1, np.float32), np.zeros(1, BYTE)
_FLOAT, _INT, INDEX = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64)


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


class Call(NamedTuple):
    """What is selected, all of it checked."""

    a: Form  # matrices, as b is
    b: Form  # of a packed matrix all strides are 0
    layout: str  # of b: as packed, UNPACKED or COLUMN_MAJOR
    is_exact: bool  # it is known that no pair of b's bytes saturates
    parameters: tuple[Shape | None, ...]  # of a_scale, a_zero_point, b_scale, b_zero_point, as matrices
    bias: Shape | None
    order: Order
    rows: Shape  # of the result without k
    results: tuple[Tensor, ...]  # with the dimensions that 1-D operands drop left out


def call_of(operands: Operands, order: Order, rows: Shape) -> Call:
    """Return what is selected of operands. rows: the shape of the result without k."""
    a, b, *parameters, bias, _ = operands
    b_form = Form(b.shape, b.dtype, (0,) * b.ndim) if isinstance(b, PackedMatrix) else Form(*form_of(b))
    layout, is_exact = (b.layout, b.saturating == 0) if isinstance(b, PackedMatrix) else (rhs_layout(b_form), False)
    shapes = tuple([None if each is None else each.shape for each in parameters])
    own = None if bias is None else bias.shape
    return Call(Form(*form_of(a)), b_form, layout, is_exact, shapes, own, order, rows, ())


def rhs_layout(b: Form) -> str:
    """Return the layout of a matrix that is not packed: COLUMN_MAJOR if its columns are contiguous, and apart."""
    return COLUMN_MAJOR if b.steps[-2] == 1 and b.steps[-1] >= b.shape[-2] else UNPACKED


def select(operands: Operands, order: Order, values: Array, indices: Array) -> None:
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
    """
    call = call_of(operands, order, values.shape[:-1])
    plan_for_now(plan, (call,)).run(*arrays_of(operands), values, indices)


def arrays_of(operands: Operands) -> tuple[Any, ...]:
    """Return what a prepared selection reads: a, b, the flat parameters, the bias and the mask."""
    a, b, *parameters, bias, mask = operands
    # Absent scales are numbers, too: for other types the kernel would be compiled again.
    numbers = [
        (_ONE if place % 2 == 0 else _NO_ZERO) if each is None else flat_of(each)
        for place, each in enumerate(parameters)
    ]
    return a, b, numbers, None if bias is None else np.ascontiguousarray(bias).reshape(-1), mask


def block_of(rows: Shape, k: int, columns: int, threads: int) -> Shape:
    """Return how many rows are selected at a time; rows: the shape of the result without k."""
    row_bytes = CELL * threads * (HEADER + capacity_of(k, columns))
    return tile_of(rows, max(MOST_BYTES // row_bytes, LEAST_ROWS))


def capacity_of(k: int, columns: int) -> int:
    """Return how many candidates a row has at most."""
    most = k if k <= _SORTED else min(2 * k + _SPARE, columns)
    return -(-most // _LINE) * _LINE


@functools.lru_cache(maxsize=1024)
def plan(call: Call, budget: Budget) -> Prepared:
    """Return how a selection is carried out: by blocks of rows if its candidates would take too much memory."""
    named: dict[str, Any] = {"operator": _OPERATOR, "results": call.results}
    order = call.order
    if 0 in (*call.rows, order.k):
        return ByFunction(**named, kernel="none", function=nothing)
    if budget == REFERENCE:
        return ByFunction(**named, kernel="reference", function=functools.partial(_refer, call))
    block = block_of(call.rows, order.k, call.b.shape[-1], budget.threads)
    if block == call.rows:
        return _plan(call, budget)
    first = next(regions_of(call.rows, block))
    largest = _plan(call._replace(**_part(call, first)), budget)
    function = functools.partial(_select_blocks, call, block, budget)
    return ByFunction(
        **named, kernel=largest.kernel, is_single=largest.is_single, workspace=largest.workspace, function=function
    )


def _part(call: Call, region: Region) -> dict[str, Any]:
    """Return the forms and shapes of a block of rows."""
    scores = (*region, slice(0, call.b.shape[-1]))

    def sizes(shape: Shape | None) -> Shape | None:
        return shape and tuple([each.stop - each.start for each in part_of(shape, scores)])

    a, b = call.a.part(part_of(call.a.shape, scores, -1)), call.b.part(part_of(call.b.shape, scores, -2))
    own = {"parameters": tuple(map(sizes, call.parameters)), "bias": sizes(call.bias)}
    return {"a": a, "b": b, **own, "rows": tuple([each.stop - each.start for each in region])}


def _select_blocks(call: Call, block: Shape, budget: Budget, *arrays: Any) -> None:
    """Select in one block of rows after the other."""
    a, b, numbers, bias, mask, values, indices = arrays
    shaped = [each if own is None else each.reshape(own) for each, own in zip(numbers, call.parameters, strict=True)]
    shaped_bias = bias if bias is None else bias.reshape(call.bias)
    for region in regions_of(call.rows, block):
        scores = (*region, slice(0, call.b.shape[-1]))
        of_b = part_of(call.b.shape, scores, -2)
        parts = [
            each if own is None else flat_of(each[part_of(own, scores)])
            for each, own in zip((*shaped, shaped_bias), (*call.parameters, call.bias), strict=True)
        ]
        _plan(call._replace(**_part(call, region)), budget).run(
            a.reshape(call.a.shape)[part_of(call.a.shape, scores, -1)],
            packed_part(b, of_b) if isinstance(b, PackedMatrix) else b[of_b],
            parts[:-1],
            parts[-1],
            mask,
            values.reshape(*call.rows, -1)[region],
            indices.reshape(*call.rows, -1)[region],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """One kernel selects, another merges what the shares have selected."""

    select: Callable[..., Any]
    finish: Callable[..., Any]
    work: NDArray[np.int64]
    header: NDArray[np.int64]  # of the candidates of a row, at the start
    start: int  # the cells of all candidates
    stop: int
    row_cells: int
    no_bias: Array
    is_plain: bool  # a and b are packed arrays with elements, or b is a packed matrix

    def run(self, a: Array, b: Any, numbers: Any, bias: Any, mask: Any, *out: Array) -> None:
        """Run on arrays of any strides."""
        values, indices = out
        view = frombuffer if self.is_plain else words_of
        rhs = (NO_BYTES, b.panels, b.sums) if type(b) is PackedMatrix else (view(b, BYTE), NO_CELLS, NO_CELLS)
        y_bias = self.no_bias if bias is None else bias.view(_FLOAT)
        allowed = _ALL if mask is None else words(mask, BYTE)
        if not values.flags.c_contiguous or not indices.flags.c_contiguous:
            values, indices = np.empty(values.shape, values.dtype), np.empty(indices.shape, INDEX)
        scratch = self.workspace.take()
        scratch[COUNTER] = 0
        scratch[self.start : self.stop].reshape(-1, self.row_cells)[:, : self.header.size] = self.header
        self.select(view(a, BYTE), *rhs, *numbers, _ONE, allowed, y_bias, scratch, self.work, scratch)
        self.finish(frombuffer(values, _INT), frombuffer(indices, INDEX), self.work, scratch)
        self.workspace.give_back(scratch)
        if values is not out[0]:
            np.copyto(out[0], values)
            np.copyto(out[1], indices)


@functools.lru_cache(maxsize=1024)
def _plan(call: Call, budget: Budget) -> Plan:
    """Choose the kernel and cut the work."""
    a, b, order, rows = call.a, call.b, call.order, call.rows
    columns = b.shape[-1]
    problem = Problem(math.prod(rows[:-1]), rows[-1], columns, a.shape[-1], b.steps[-1])
    product, reason = kernel_for(_OPERATOR, problem, call.layout, budget.kernel)
    is_packed = call.layout == LAYOUT
    threads, row_parts, column_parts, cut = cut_for(
        product, problem, is_packed, product.has_forms and not call.is_exact, budget, by_rows=True
    )
    _log.debug("%s: %s by %s: %s (%s), %d parts", _OPERATOR, a.shape, b.shape, product.name, reason, threads)
    added = None if call.bias is None else Form(call.bias, _FLOAT)
    count = math.prod(rows)
    finishers = budget.parts(count * (100 * threads + 20 * order.k), most=count)
    start = SHARES + threads * cut.share_cells
    selection = _selection_fields(order, count, columns, threads, start)
    is_wide = problem.depth > NARROW and order.is_scaled
    scores = Form((*rows, columns), _INT)
    work = record_of(
        WORK,
        **size_fields(problem, threads, row_parts, column_parts, cut, _INT),
        **array_fields(a, b, scores, (*call.parameters, None, None), added, is_packed, is_wide),
        is_exact=call.is_exact,
        selection=selection,
    )
    return Plan(
        operator=_OPERATOR,
        results=call.results,
        kernel=product.name,
        is_single=threads == finishers == 1,
        workspace=Workspace(selection["finish_start"] + finishers * selection["finish_cells"]),
        select=product.kernel.for_parts(threads),
        finish=registry.find(_OPERATOR, "finish").kernel.for_parts(finishers),
        work=work,
        header=_empty_list(selection),
        start=start,
        stop=selection["finish_start"],
        row_cells=selection["row_cells"],
        no_bias=NO_BIAS if order.is_scaled else _NO_SUM,
        is_plain=not (a.strides or problem.depth == 0 or (b.strides and not is_packed)),
    )


def _refer(call: Call, *arrays: Any) -> None:
    """Run by the reference: by all scores of one row after the other if there is a mask or a shift."""
    a, b, numbers, bias, mask, values, indices = arrays
    order, b = call.order, unpack(b) if isinstance(b, PackedMatrix) else b
    kinds = (_FLOAT, call.a.dtype, _FLOAT, call.b.dtype)
    parameters: list[Any] = [
        each.view(kind).reshape(own or (1, 1)) if order.is_scaled or kind is not _FLOAT else None
        for each, kind, own in zip(numbers, kinds, call.parameters, strict=True)
    ]
    a, values, indices = a.reshape(call.a.shape), values.reshape(*call.rows, -1), indices.reshape(*call.rows, -1)
    bias = bias if bias is None else bias.reshape(call.bias)
    if mask is None and not order.shift:
        mode: Mode = "largest" if order.is_largest else "smallest"
        nan: Nan = "last" if order.nan_last else "greatest"
        named = dict(zip(("a_scale", "a_zero_point", "b_scale", "b_zero_point"), parameters, strict=True))
        reference.matmul_top_k(a, b, order.k, **named, bias=bias, mode=mode, nan=nan, out=(values, indices))
        return
    a_scale, _, b_scale, _ = parameters
    allowed = np.arange(b.shape[1]) if mask is None else np.flatnonzero(mask)
    values[...], indices[...] = fill_value(order), -1
    count = min(order.k, len(allowed))
    for row in range(len(a)):
        scores = reference.matmul_integer(a[row : row + 1], None, b, None) << order.shift
        if order.is_scaled:
            scores = scores.astype(np.float32) * (a_scale[row % len(a_scale)] * b_scale)
        scores = scores if bias is None else scores + bias
        found = reference.top_k(scores[0, allowed], count, largest=order.is_largest)
        values[row, :count], indices[row, :count] = found.values, allowed[found.indices]


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
