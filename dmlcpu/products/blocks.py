"""Products of bytes on matrices that are read, and a result that is written, a block at a time."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.blocks import BLOCK, Buffer, as_source, extent, read_blocks, regions_of
from dmlcpu.common.regions import Estimate, Region, Sink, Source, Tensor
from dmlcpu.common.stand_ins import strides_of
from dmlcpu.errors import DmlError
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.table import ROWS
from dmlcpu.products.operands import Rhs, Shape, result_shape
from dmlcpu.products.packing import PackedMatrix, pack_b
from dmlcpu.products.plan import PARAMETERS, Layout, Plan, plan
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.records import CELL

# Rows that a block has at least, as long as there is memory: with fewer the kernels are slower.
_ROWS = 192


class Call(NamedTuple):
    """A product's arguments in their plain forms; a and b are stand-ins if they are Sources."""

    operator: str
    execute: Callable[..., None]  # the operator's, of the operands and out
    operands: dict[str, Any]  # matrices a and b, and their parameters, by the names that the plan has for them
    shape: Shape  # of the result
    matrix: Shape  # the same with the dimensions that 1-D operands drop
    keeps: tuple[bool, bool]  # whether the result has the dimension of rows, and that of columns
    dtype: np.dtype[Any]


class Cut(NamedTuple):
    """How large a block of the result is."""

    rows: int
    columns: int


def call_of(operator: str, execute: Callable[..., None], names: tuple[str, ...], checked: Any) -> Call:
    """Return a call; checked: what the operator's `check` returns; names: of the operands among that."""
    a, b, batch, dtype, operands = checked
    named = dict(zip(names, operands, strict=True))
    matrix = (*batch, named["a"].shape[-2], named["b"].shape[-1])
    keeps = (a.ndim > 1, b.ndim > 1)
    return Call(operator, execute, named, result_shape(a.shape, b.shape, batch), matrix, keeps, dtype)


def estimate(call: Call) -> Estimate:
    """Return what a call gives and takes; nothing is read or compiled."""
    chosen = _plan(call) if can_compile() else None
    return Estimate(
        {"y": Tensor(call.shape, call.dtype)},
        sum(map(_nbytes, call.operands.values())) + Tensor(call.matrix, call.dtype).nbytes + _workspace(call),
        partial(_least_memory, call),
        chosen.kernel.name if chosen else "none" if can_compile() else "reference",
    )


def _least_memory(call: Call) -> int:
    """Return the least memory that `run` can do with."""
    return min(_needs(call, cut) for cut in _cuts(call))


def run(call: Call, sources: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool]) -> None:
    """Write the product, matrix by matrix, each by columns of b and rows of a. sources: a and b as they were given."""
    if 0 in call.matrix:
        return
    cut = next((cut for cut in _cuts(call) if _needs(call, cut) <= memory), None)
    if cut is None:
        raise DmlError(call.operator, "memory", f"{memory:,} bytes", f"at least {_least_memory(call):,}")
    a = _matrices(sources["a"], call.operands["a"])
    left = read_blocks(a, (_part(a.shape, region, -1) for region in _regions(call, cut)), stopping)
    right = _right_hand_sides(call, cut, sources["b"], stopping)
    b: Rhs | None = None
    out, before = Buffer(), None
    for region, (_, rows) in zip(_regions(call, cut), left, strict=True):
        of_b = _part(call.operands["b"].shape, region, -2)
        if of_b != before:
            b, before = next(right), of_b
        result = out.array(extent(region), call.dtype)
        call.execute(*_operands(call, region, rows, b), result)
        kept = (*region[:-2], *itertools.compress(region[-2:], call.keeps))
        sinks["y"].write(kept, result.reshape(extent(kept)))


def _operands(call: Call, region: Region, a: Array, b: Rhs | None) -> list[Any]:
    """Return what a region of the result is made of; a and b: of its rows and columns."""
    parts: dict[str, Any] = {"a": a, "b": b}
    for name, parameter in call.operands.items():
        if name not in parts:
            parts[name] = None if parameter is None else parameter[_part(parameter.shape, region)]
    return [parts[name] for name in call.operands]


class _Vector:
    """A Source of one dimension as one of matrices, of which each has one row, or one column."""

    def __init__(self, source: Source, shape: Shape) -> None:
        self.shape, self.dtype = shape, source.dtype
        self._source, self._kept = source, int(shape[0] == 1)

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        """Return the elements of a region."""
        region = tuple(slice(0, n) for n in self.shape) if region is None else region
        flat = None if into is None else into.reshape(-1)
        return self._source.read((region[self._kept],), flat).reshape(extent(region))


def _matrices(given: Any, matrices: Array) -> Source:
    """Return an operand as a Source of matrices."""
    source = as_source(given, matrices)
    return source if len(source.shape) > 1 else _Vector(source, matrices.shape)


def _right_hand_sides(call: Call, cut: Cut, given: Any, stopping: Callable[[], bool]) -> Iterator[Rhs]:
    """Yield the right-hand sides of the regions, one when another is needed, packed if several regions need it."""
    b = call.operands["b"]
    wanted = (_part(b.shape, region, -2) for region in _regions(call, cut))
    regions = (region for region, _ in itertools.groupby(wanted))
    if isinstance(b, PackedMatrix):
        for region in regions:
            yield _packed_part(b, region)
        return
    packs = _packs(call, cut)
    for _, matrix in read_blocks(_matrices(given, b), regions, stopping):
        yield pack_b(matrix) if packs else matrix


def _packed_part(b: PackedMatrix, region: Region) -> PackedMatrix:
    """Return one matrix of several that are packed."""
    batch = b.shape[:-2]
    each, place = math.prod(batch), 0
    for n, where in zip(batch, region, strict=False):
        place = place * n + where.start
    panels, sums = b.panels.reshape(each, -1)[place], b.sums.reshape(each, -1)[place]
    return PackedMatrix((*[1] * len(batch), *b.shape[-2:]), b.dtype, b.layout, panels, sums)


def _packs(call: Call, cut: Cut) -> bool:
    """Return whether what is read of b is multiplied several times."""
    is_shared = math.prod(call.operands["b"].shape[:-2]) < math.prod(call.matrix[:-2])
    return cut.rows < call.matrix[-2] or (cut.columns == call.matrix[-1] and is_shared)


def _regions(call: Call, cut: Cut) -> Iterator[Region]:
    """Yield the regions of the result: all rows of some columns, then of the next ones, then the next matrices."""
    *batch, rows, columns = call.matrix
    ones = (1,) * len(batch)
    for *index, which, where in regions_of((*batch, columns, rows), (*ones, cut.columns, cut.rows)):
        yield (*index, where, which)


def _part(shape: Shape, region: Region, whole: int = 0) -> Region:
    """Return the region of an operand that a region of the result needs; whole: a dimension that it needs all of."""
    own = region[len(region) - len(shape) :]
    ends = [slice(0, n) if n == 1 else each for n, each in zip(shape, own, strict=True)]
    if whole:
        ends[whole] = slice(0, shape[whole])
    return tuple(ends)


def _cuts(call: Call) -> Iterator[Cut]:
    """Yield cuts from the one that is best, if there is memory for it, to one that needs least.

    a is read again for each block of columns, so these are cut only if b does not fit.
    """
    *_, rows, columns = call.matrix
    depth = call.operands["a"].shape[-1]
    is_packed = isinstance(call.operands["b"], PackedMatrix)
    height, width = max(1, min(rows, BLOCK // max(depth, columns * call.dtype.itemsize, 1))), columns
    yield Cut(height, width)
    for least_height, least_width in ((_ROWS, NR), (1, 1)):
        while height > least_height:
            height = max(least_height, height // 2)
            yield Cut(height, width)
        while width > least_width and not is_packed:
            width = max(least_width, width * 3 // 4 // NR * NR, width // 2 if width <= NR else 1)
            yield Cut(height, width)


def _needs(call: Call, cut: Cut) -> int:
    """Return how many bytes `run` takes with such blocks."""
    a, b = call.operands["a"], call.operands["b"]
    depth, result = int(a.shape[-1]), (cut.rows, cut.columns)
    if isinstance(b, PackedMatrix):
        right = _nbytes(b)
    else:
        padded = (depth + 3) * (cut.columns + NR) + 8 * (cut.columns + NR)
        several = cut.columns < call.matrix[-1] or math.prod(b.shape[:-2]) > 1
        right = (1 + several) * (depth * cut.columns + padded * _packs(call, cut))
    part = {
        "a": np.broadcast_to(np.zeros((), a.dtype), (cut.rows, depth)),
        "b": np.broadcast_to(np.zeros((), b.dtype), (depth, cut.columns)),
    }
    workspace = _workspace(call._replace(operands=part, matrix=result))
    return 2 * cut.rows * depth + right + Tensor(result, call.dtype).nbytes + workspace


def _workspace(call: Call) -> int:
    """Return how many bytes of workspace a call in one piece takes."""
    chosen = _plan(call) if can_compile() else None
    return CELL * chosen.workspace.cells if chosen else 0


def _nbytes(operand: Any) -> int:
    """Return how many bytes an operand takes."""
    if isinstance(operand, PackedMatrix):
        return int(operand.panels.nbytes + operand.sums.nbytes)
    return 0 if operand is None else int(operand.nbytes)


def _plan(call: Call) -> Plan | None:
    """Return how the kernels work on a call in one piece, or None if its result is empty."""
    if 0 in call.matrix:
        return None
    a, b = call.operands["a"], call.operands["b"]
    is_packed = isinstance(b, PackedMatrix)
    shapes = [None if call.operands.get(name) is None else call.operands[name].shape for name in PARAMETERS]
    return plan(
        call.operator,
        Layout(a.shape, strides_of(a), a.dtype),
        Layout(b.shape, (0,) * b.ndim if is_packed else strides_of(b), b.dtype),
        Layout(call.matrix, packed_strides(call.matrix, call.dtype.itemsize), call.dtype),
        tuple(shapes),
        b.layout if is_packed else ROWS,
        threads.budget(),
    )
