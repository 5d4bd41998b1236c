"""matmul_top_k on matrices that are read, and results that are written, a block at a time."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import cut_within, extent, read_blocks, regions_of
from dmlcpu.common.regions import Estimate, Region, Sink, Tensor
from dmlcpu.common.stand_ins import bind, stand_in, strides_of
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.operators.matmul_top_k.function import Call, MatmulTopK, check, execute, matmul_top_k
from dmlcpu.operators.table import OPERATORS
from dmlcpu.products.blocks import as_matrices, nbytes_of, packed_part, parameter_bytes, part_of
from dmlcpu.products.operands import Rhs
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.selection import Operands, Plan, block_of, plan_for, rows_of
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.records import CELL

SOURCES = ("a", "b")

_NAME = "matmul_top_k"
_INDEX = np.dtype(np.int64)
# Columns and rows of a block, at least, if there is memory: with fewer the kernels are slower.
_COLUMNS, _ROWS = 256 * NR, 192
# Bytes for each selected score of blocks whose results are merged: those of two blocks, both behind one another, what
# is selected of them, and NumPy's temporaries.
_MERGING = 96


class Cut(NamedTuple):
    """How many rows, and columns of b, are multiplied at a time."""

    rows: int
    columns: int


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    call = check(**bind(matmul_top_k, arguments, SOURCES))
    chosen = _plan(call.operands, call) if can_compile() else None
    a, b, *parameters = call.operands
    results = {"values": Tensor(call.shape, call.dtype), "indices": Tensor(call.shape, _INDEX)}
    return Estimate(
        results,
        sum(map(nbytes_of, (a, b)))
        + parameter_bytes(parameters)
        + sum(each.nbytes for each in results.values())
        + _workspace(chosen),
        lambda: min(map(partial(_needs, call), _cuts(call))),
        chosen.kernel.name if chosen else "none" if can_compile() else "reference",
    )


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write what is selected of blocks of rows; of blocks of columns, what is selected is merged."""
    call = check(**bind(matmul_top_k, arguments, SOURCES))
    if 0 in call.shape:
        return
    cut = cut_within(_NAME, memory, _cuts(call), partial(_needs, call))
    left, right = _Blocks(call.operands.a, -1), _Blocks(call.operands.b, -2)
    rows = left.read(arguments["a"], _regions(call, cut), stopping)
    columns = right.read(arguments["b"], _regions(call, cut), stopping)
    best: MatmulTopK | None = None
    for region in _regions(call, cut):
        found = _select(call, region, left.at(region, rows), right.at(region, columns))
        best = found if region[-1].start == 0 or best is None else _merged(call, best, found)
        if region[-1].stop == call.operands.b.shape[-1]:
            kept = (*region[: len(call.shape) - 1], slice(0, call.order.k))
            for name, array in best._asdict().items():
                sinks[name].write(kept, array.reshape(extent(kept)))


class _Blocks:
    """The blocks of an operand, each for all regions in a row that need it. whole: the axis that is not cut."""

    def __init__(self, operand: Rhs, whole: int) -> None:
        self._operand, self._whole = operand, whole
        self._before: Region | None = None
        self._block: Rhs = operand

    def read(self, given: Any, regions: Iterator[Region], stopping: Callable[[], bool]) -> Iterator[Rhs]:
        """Yield the blocks that some regions of the scores need, each once."""
        operand = self._operand
        wanted = (part_of(operand.shape, region, self._whole) for region in regions)
        each = (region for region, _ in itertools.groupby(wanted))
        if isinstance(operand, PackedMatrix):
            yield from (packed_part(operand, region) for region in each)
        else:
            yield from (block for _, block in read_blocks(as_matrices(given, operand), each, stopping))

    def at(self, region: Region, blocks: Iterator[Rhs]) -> Any:
        """Return the block that a region needs: the one before, or the next."""
        needed = part_of(self._operand.shape, region, self._whole)
        if needed != self._before:
            self._before, self._block = needed, next(blocks)
        return self._block


def _matrix(call: Call) -> tuple[int, ...]:
    """Return the shape of all scores, with the dimension that a 1-D operand drops."""
    left, right = call.operands.a.shape, call.operands.b.shape
    return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])


def _regions(call: Call, cut: Cut) -> Iterator[Region]:
    """Yield the regions of all scores: all columns of some rows, then of the next."""
    shape = _matrix(call)
    return regions_of(shape, (*[1] * (len(shape) - 2), cut.rows, cut.columns))


def _select(call: Call, region: Region, a: Array, b: Rhs) -> MatmulTopK:
    """Return what is selected of a region of the scores."""
    own = {
        name: each[part_of(each.shape, region)]
        for name, each in call.operands._asdict().items()
        if isinstance(each, np.ndarray) and name not in SOURCES
    }
    k = min(call.order.k, b.shape[-1])
    shape = (*extent(region)[:-1], k)
    found = MatmulTopK(np.empty(shape, call.dtype), np.empty(shape, _INDEX))
    execute(Call(call.operands._replace(a=a, b=b, **own), call.order._replace(k=k), shape), found)
    np.add(found.indices, region[-1].start, out=found.indices)
    return found


def _merged(call: Call, best: MatmulTopK, found: MatmulTopK) -> MatmulTopK:
    """Return what is selected of two blocks, the first of which has the lower columns."""
    order = call.order
    values, indices = (np.concatenate(both, axis=-1) for both in zip(best, found, strict=True))
    mode, nan = "largest" if order.is_largest else "smallest", "last" if order.nan_last else "greatest"
    top_k = OPERATORS["top_k"].function
    values, places = top_k(values, min(order.k, values.shape[-1]), mode=mode, nan=nan)
    return MatmulTopK(values, np.take_along_axis(indices, places, axis=-1))


def _cuts(call: Call) -> Iterator[Cut]:
    """Yield cuts, the fastest first. Of several blocks of rows, each reads b again."""
    *_, rows, columns = _matrix(call)
    is_packed = isinstance(call.operands.b, PackedMatrix)
    yield Cut(rows, columns)
    for least_columns, least_rows in ((_COLUMNS, _ROWS), (NR, 1), (1, 1)):
        while columns > least_columns and not is_packed:
            columns = max(least_columns, columns // 2)
            yield Cut(rows, columns)
        while rows > least_rows:
            rows = max(least_rows, rows // 2)
            yield Cut(rows, columns)


def _needs(call: Call, cut: Cut) -> int:
    """Return the bytes that `run` takes with such blocks."""
    a, b, *parameters = call.operands
    depth, k = int(a.shape[-1]), min(call.order.k, cut.columns)
    if isinstance(b, PackedMatrix):
        right = nbytes_of(b)
    else:
        several = cut.columns < b.shape[-1] or math.prod(b.shape[:-2]) > 1
        right = (1 + several) * depth * cut.columns
    part = Operands(
        stand_in((cut.rows, depth), a.dtype), stand_in((depth, cut.columns), b.dtype), None, None, None, None
    )
    order = call.order._replace(k=k)
    workspace = _workspace(_plan(part, Call(part, order, (cut.rows, k)))) if can_compile() else 0
    is_merged = cut.columns < b.shape[-1]
    merging = cut.rows * call.order.k * (_MERGING if is_merged else 12)
    return 2 * cut.rows * depth + right + parameter_bytes(parameters) + merging + workspace


def _workspace(chosen: Plan | None) -> int:
    return CELL * chosen.workspace.cells if chosen else 0


def _plan(operands: Operands, call: Call) -> Plan | None:
    """Return the plan of the first block of rows, which is the largest."""
    if 0 in call.shape:
        return None
    spent = threads.most_of_thread()
    a, b = operands.a, operands.b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = (*batch, a.shape[-2])
    block = block_of(rows, call.order.k, b.shape[-1], spent.threads)
    some = operands if block == rows else rows_of(operands, next(regions_of(rows, block)))
    return plan_for(some, call.order, block, strides_of, spent)
