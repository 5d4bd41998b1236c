"""How selections are carried out: which kernel, how the work is cut, and the lists of candidates."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlcpu import reference
from dmlcpu.annotations import Mode, Nan
from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import regions_of, tile_of
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.prepared import ByFunction, Prepared, nothing
from dmlcpu.common.regions import Region
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.cut import MOST_DOT_ROWS
from dmlcpu.kernels.gemm.pack import LAYOUT
from dmlcpu.kernels.gemm.work import COUNTER, NARROW, SHARES, WORK, Problem
from dmlcpu.kernels.selection.candidates import HEADER
from dmlcpu.kernels.selection.finish import finish_cells
from dmlcpu.kernels.selection.work import SELECTION, TILE_CELLS
from dmlcpu.products.arguments import BYTE, flat_of
from dmlcpu.products.blocks import packed_part, part_of
from dmlcpu.products.packing import PackedMatrix, unpack
from dmlcpu.products.plan import NO_BYTES, NO_CELLS, array_fields, cut_for, kernel_for, size_fields, words_of
from dmlcpu.runtime.memory import Workspace, frombuffer, words
from dmlcpu.runtime.records import CELL, record_of
from dmlcpu.runtime.threads import REFERENCE, Budget, plan_for_now
from dmlcpu.selection.call import INDEX, ONE, Call, Operands, Order, arrays_of, call_of, fill_value

_log = logging.getLogger("dmlcpu")

_OPERATOR = "matmul_top_k"
_LINE = 16  # keys that are looked at together
# Up to this k the candidates of a row are kept in order. For 512 rows and 100,000 columns, k 64 takes 25.0 ms so, k 100
# 28.1; with lists that are cut back 25.9 and 26.2 (Zen 5).
_SORTED = 64
# Candidates of a row beyond twice k. With fewer, lists are cut back more often; with more, more scores are candidates.
_SPARE = 32
# Bytes of the candidates of all shares, and of one if there are many. More rows are selected one block after the other,
# of LEAST_ROWS at least: each block reads b again.
MOST_BYTES, MOST_SHARE, LEAST_ROWS = 16 << 20, 1 << 20, 64
_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)
# What kernels read of what is absent: a bias of 0 would change sums of -0.
_ALL, _NO_SUM, _NO_BIAS = np.ones(1, BYTE), np.zeros(1, _INT), np.full(1, -0.0, _FLOAT).view(_INT)


def select(operands: Operands, order: Order, values: Array, indices: Array) -> None:
    """Write the k best scores of each row, best first, and their columns: what `top_k` gives of the product.

    The scores are a @ b less zero points. Scaled ones are float32(sum) * (a_scale * b_scale) + bias, or with a row_bias
    (float32(sum) * a_scale + row_bias) * b_scale + bias, each operation rounded; the others (sum << shift) + bias,
    modulo 2**32. If fewer than k columns may be selected, the last indices are -1, and their scores -inf or the least
    int32 (inf or the greatest, if the smallest come first).

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


def saturates(rows: int) -> bool:
    """Return whether products with this many rows of bytes take longer if pairs of products may saturate."""
    product, *_ = registry.available(_OPERATOR, "dot")
    return rows > MOST_DOT_ROWS and product.has_forms


def block_of(rows: Shape, k: int, columns: int, threads: int) -> Shape:
    """Return how many rows are selected at a time; rows: the shape of the result without k."""
    row_bytes = CELL * threads * (HEADER + capacity_of(k, columns))
    return tile_of(rows, max(max(MOST_BYTES, threads * MOST_SHARE) // row_bytes, LEAST_ROWS))


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
    own = {"parameters": tuple(map(sizes, call.parameters)), "bias": sizes(call.bias), "row_bias": sizes(call.row_bias)}
    own["mask"] = (
        call.mask if call.mask is None or call.mask[0] == 1 else (scores[0].stop - scores[0].start, call.mask[1])
    )
    return {"a": a, "b": b, **own, "rows": tuple([each.stop - each.start for each in region])}


def _select_blocks(call: Call, block: Shape, budget: Budget, *arrays: Any) -> None:
    """Select in one block of rows after the other."""
    a, b, numbers, bias, mask, row_bias, least, values, indices = arrays
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
            mask if mask is None or len(mask) == 1 else mask[region[0]],
            *[None if each is None else each[region[0]] for each in (row_bias, least)],
            values.reshape(*call.rows, -1)[region],
            indices.reshape(*call.rows, -1)[region],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """One kernel selects, another merges what the shares have selected."""

    select: Callable[..., Any]
    finish: Callable[..., Any]
    work: NDArray[np.int64]
    no_bias: NDArray[np.int32]
    is_plain: bool  # a and b are packed arrays with elements, or b is a packed matrix

    def run(self, *arrays: Any) -> None:
        """Run on what `arrays_of` returns, the values and the indices, of any strides."""
        a, b, numbers, bias, mask, row_bias, least, *out = arrays
        values, indices = out
        view = frombuffer if self.is_plain else words_of
        rhs = (NO_BYTES, b.panels, b.sums) if type(b) is PackedMatrix else (view(b, BYTE), NO_CELLS, NO_CELLS)
        added = self.no_bias if bias is None else bias.view(_INT)
        allowed = _ALL if mask is None else words(mask, BYTE)
        of_rows = ONE if row_bias is None else row_bias
        if not values.flags.c_contiguous or not indices.flags.c_contiguous:
            values, indices = np.empty(values.shape, values.dtype), np.empty(indices.shape, INDEX)
        scratch = self.workspace.take()
        scratch[COUNTER] = 0
        leasts = _NO_SUM if least is None else words(least, _INT)
        self.select(view(a, BYTE), *rhs, *numbers, added, of_rows, allowed, leasts, self.work, scratch)
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
    selection = selection_fields(call, count, threads, SHARES + threads * cut.share_cells)
    is_wide = problem.depth > NARROW and order.is_scaled
    scores = Form((*rows, columns), _INT)
    arrays = array_fields(a, b, scores, (*call.parameters, None, None), added, is_packed, is_wide)
    arrays["same_rows"] &= call.row_bias is None
    sizes = size_fields(problem, threads, row_parts, column_parts, cut, _INT)
    work = record_of(WORK, **sizes, **arrays, is_exact=call.is_exact)
    return Plan(
        operator=_OPERATOR,
        results=call.results,
        kernel=product.name,
        is_single=threads == finishers == 1,
        workspace=Workspace(selection["finish_start"] + finishers * selection["finish_cells"]),
        select=product.kernel.for_parts(threads),
        finish=registry.find(_OPERATOR, "finish").kernel.for_parts(finishers),
        work=np.concatenate([work, record_of(SELECTION, **selection)]),
        no_bias=_NO_BIAS if order.is_scaled else _NO_SUM,
        is_plain=not (a.strides or problem.depth == 0 or (b.strides and not is_packed)),
    )


def _refer(call: Call, *arrays: Any) -> None:
    """Run the reference: by all scores of one row after the other if something else than products decides."""
    a, b, numbers, bias, mask, row_bias, least, values, indices = arrays
    order, b = call.order, unpack(b) if isinstance(b, PackedMatrix) else b
    kinds = (_FLOAT, call.a.dtype, _FLOAT, call.b.dtype)
    parameters: list[Any] = [
        each.view(kind).reshape(own or (1, 1)) if order.is_scaled or kind is not _FLOAT else None
        for each, kind, own in zip(numbers, kinds, call.parameters, strict=True)
    ]
    a, values, indices = a.reshape(call.a.shape), values.reshape(*call.rows, -1), indices.reshape(*call.rows, -1)
    bias = bias if bias is None else bias.reshape(call.bias)
    bits = None if mask is None else np.unpackbits(mask, axis=1, count=call.b.shape[-1], bitorder="little").astype(bool)
    if row_bias is None and least is None and not order.shift:
        mode: Mode = "largest" if order.is_largest else "smallest"
        nan: Nan = "last" if order.nan_last else "greatest"
        named = dict(zip(("a_scale", "a_zero_point", "b_scale", "b_zero_point"), parameters, strict=True))
        reference.matmul_top_k(a, b, order.k, **named, bias=bias, mode=mode, nan=nan, mask=bits, out=(values, indices))
        return
    a_scale, _, b_scale, _ = parameters
    values[...], indices[...] = fill_value(order), -1
    for row in range(len(a)):
        scores = reference.matmul_integer(a[row : row + 1], None, b, None) << order.shift
        if order.is_scaled:
            scores, own = scores.astype(np.float32), a_scale[row % len(a_scale)]
            scores = scores * (own * b_scale) if row_bias is None else (scores * own + row_bias[row]) * b_scale
        scores = (scores if bias is None else scores + bias)[0]
        own_bits = np.ones(len(scores), bool) if bits is None else bits[row % len(bits)]
        allowed = np.flatnonzero(own_bits if least is None else own_bits & (scores >= least[row]))
        count = min(order.k, len(allowed))
        found = reference.top_k(scores[allowed], count, largest=order.is_largest)
        values[row, :count], indices[row, :count] = found.values, allowed[found.indices]


def selection_fields(call: Call, rows: int, shares: int, start: int) -> dict[str, int]:
    """Return the fields of the record of a selection; start: the cell where its workspace begins."""
    order = call.order
    capacity = capacity_of(order.k, call.b.shape[-1])
    row_cells = HEADER + capacity
    lists = start + shares * TILE_CELLS
    is_nan_first = order.is_largest and not order.nan_last
    return {
        "k": order.k,
        "rows": rows,
        "is_scaled": order.is_scaled,
        "is_smallest": not order.is_largest,
        "has_mask": call.mask is not None,
        "mask_step": 0 if call.mask is None or call.mask[0] == 1 else call.mask[1],
        "has_row_bias": call.row_bias is not None,
        "shift": order.shift,
        "nan_rank": np.iinfo(np.int32).max if is_nan_first else np.iinfo(np.int32).min,
        "fill": _fill(order),
        "shares": shares,
        "tiles_start": start,
        "start": lists,
        "share_cells": rows * row_cells,
        "row_cells": row_cells,
        "capacity": capacity,
        "is_sorted": order.k <= _SORTED,
        "lowest": _least(order),
        "has_least": call.has_least,
        "finish_start": lists + shares * rows * row_cells,
        "finish_cells": finish_cells(shares, capacity, order.k),
    }


def _fill(order: Order) -> int:
    """Return the bits of the score of an index of -1."""
    return int(np.array(fill_value(order), _FLOAT if order.is_scaled else _INT).view(_INT))


def _least(order: Order) -> int:
    """Return what scores are compared with before there are k of them: what all reach."""
    return int(np.float32(-np.inf).view(np.int32)) if order.is_scaled else int(np.iinfo(np.int32).min)
