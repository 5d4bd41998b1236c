"""Products of bytes on matrices that are read, and a result that is written, a block at a time."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import BLOCK, Buffer, as_source, cut_within, extent, read_blocks, regions_of
from dmlcpu.common.regions import Estimate, Region, Sink, Source, Tensor
from dmlcpu.common.stand_ins import bind, strides_of
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.products.operands import PARAMETERS, Call, Rhs, Shape, execute, parameters_of
from dmlcpu.products.packing import PackedMatrix, pack_b
from dmlcpu.products.plan import Layout, Plan, form_of, plan
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.records import CELL

# Rows of a block, at least, if there is memory: with fewer the kernels are slower.
_ROWS = 192


SOURCES = ("a", "b")


class Cut(NamedTuple):
    """How large a block of the result is."""

    rows: int
    columns: int


def estimate(function: Callable[..., Any], check: Callable[..., Call], /, **arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled.

    check: the function's checks. Each operator's blocks.py fills in both.
    """
    call = check(**bind(function, arguments, SOURCES))
    chosen = _plan(call) if can_compile() else None
    y = Tensor(call.matrix, call.dtype).nbytes + _bias_copy(call, call.matrix)
    operands = sum(map(nbytes_of, (call.a, call.b, call.bias))) + parameter_bytes(parameters_of(call))
    return Estimate(
        {"y": Tensor(call.shape, call.dtype)},
        operands + y + _workspace(call),
        lambda: min(map(partial(_needs, call), _cuts(call))),
        chosen.kernel.name if chosen else "none" if can_compile() else "reference",
    )


def run(
    function: Callable[..., Any],
    check: Callable[..., Call],
    arguments: dict[str, Any],
    sinks: dict[str, Sink],
    memory: int,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the product, matrix by matrix: rows of a in blocks, and columns of b if it does not fit."""
    call = check(**bind(function, arguments, SOURCES))
    if 0 in call.matrix:
        return
    cut = cut_within(call.operator, memory, _cuts(call), partial(_needs, call))
    a = as_matrices(arguments["a"], call.a)
    left = read_blocks(a, (part_of(a.shape, region, -1) for region in _regions(call, cut)), stopping)
    right = _right_hand_sides(call, cut, arguments["b"], stopping)
    b, before, out, keeps = call.b, None, Buffer(), _keeps(call)
    for region, (_, rows) in zip(_regions(call, cut), left, strict=True):
        of_b = part_of(call.b.shape, region, -2)
        if of_b != before:
            b, before = next(right), of_b
        result = out.array(extent(region), call.dtype)
        execute(_part_of(call, region, rows, b), result)
        kept = (*region[:-2], *itertools.compress(region[-2:], keeps))
        sinks["y"].write(kept, result.reshape(extent(kept)))


def _keeps(call: Call) -> tuple[bool, bool]:
    """Return whether the result has the dimension of rows, and that of columns; 1-D operands drop them."""
    if len(call.shape) != len(call.matrix) - 1:
        return (len(call.shape) == len(call.matrix),) * 2
    is_column = call.matrix[-1] == 1
    return is_column, not is_column


def _part_of(call: Call, region: Region, a: Array, b: Rhs) -> Call:
    """Return the call that gives a region of the result; a and b: its rows and columns."""
    parameters = zip((*PARAMETERS, "bias"), (*parameters_of(call), call.bias), strict=True)
    parts: dict[str, Any] = {name: each[part_of(each.shape, region)] for name, each in parameters if each is not None}
    return call._replace(a=a, b=b, **parts)


class _Vector:
    """A Source of one dimension as a matrix of one row, or one column."""

    def __init__(self, source: Source, shape: Shape) -> None:
        self.shape, self.dtype = shape, source.dtype
        self._source, self._kept = source, int(shape[0] == 1)

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        """Return the elements of a region."""
        region = tuple(slice(0, n) for n in self.shape) if region is None else region
        flat = None if into is None else into.reshape(-1)
        return self._source.read((region[self._kept],), flat).reshape(extent(region))


def as_matrices(given: Any, matrices: Array) -> Source:
    """Return an operand as a Source of matrices."""
    source = as_source(given, matrices)
    return source if len(source.shape) > 1 else _Vector(source, matrices.shape)


def _right_hand_sides(call: Call, cut: Cut, given: Any, stopping: Callable[[], bool]) -> Iterator[Rhs]:
    """Yield a right-hand side for each run of regions that share it, packed if several regions do."""
    b = call.b
    wanted = (part_of(b.shape, region, -2) for region in _regions(call, cut))
    regions = (region for region, _ in itertools.groupby(wanted))
    if isinstance(b, PackedMatrix):
        for region in regions:
            yield packed_part(b, region)
        return
    packs = _packs(call, cut)
    for _, matrix in read_blocks(as_matrices(given, b), regions, stopping):
        yield pack_b(matrix) if packs else matrix


def packed_part(b: PackedMatrix, region: Region) -> PackedMatrix:
    """Return the part of a packed matrix whose matrices are in a region; they lie behind one another."""
    batch, first = region[:-2], 0
    for n, where in zip(b.shape, batch, strict=False):
        first = first * n + where.start
    shape = extent(batch)
    each, places = math.prod(b.shape[:-2]), slice(first, first + math.prod(shape))
    panels, sums = (array.reshape(each, -1)[places].reshape(-1) for array in (b.panels, b.sums))
    return PackedMatrix((*shape, *b.shape[-2:]), b.dtype, b.layout, panels, sums, 0 if b.saturating == 0 else None)


def _packs(call: Call, cut: Cut) -> bool:
    """Return whether blocks of b are multiplied several times."""
    is_shared = math.prod(call.b.shape[:-2]) < math.prod(call.matrix[:-2])
    return cut.rows < call.matrix[-2] or (cut.columns == call.matrix[-1] and is_shared)


def _regions(call: Call, cut: Cut) -> Iterator[Region]:
    """Yield the regions of the result: all rows of some columns, then of the next ones, then the next matrices."""
    *batch, rows, columns = call.matrix
    ones = (1,) * len(batch)
    for *index, which, where in regions_of((*batch, columns, rows), (*ones, cut.columns, cut.rows)):
        yield (*index, where, which)


def part_of(shape: Shape, region: Region, whole: int = 0) -> Region:
    """Return the region of an operand that a region of the result needs; whole: a dimension that it needs all of."""
    own = region[len(region) - len(shape) :]
    ends = [slice(0, n) if n == 1 else each for n, each in zip(shape, own, strict=True)]
    if whole:
        ends[whole] = slice(0, shape[whole])
    return tuple(ends)


def _cuts(call: Call) -> Iterator[Cut]:
    """Yield cuts, the fastest first. Columns are cut only if b does not fit: each block of them reads a again."""
    *_, rows, columns = call.matrix
    depth = call.a.shape[-1]
    is_packed = isinstance(call.b, PackedMatrix)
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
    """Return the bytes that `run` takes with such blocks."""
    a, b = call.a, call.b
    depth, result = int(a.shape[-1]), (cut.rows, cut.columns)
    if isinstance(b, PackedMatrix):
        right = nbytes_of(b)
    else:
        padded = (depth + 3) * (cut.columns + NR) + 8 * (cut.columns + NR)
        several = cut.columns < call.matrix[-1] or math.prod(b.shape[:-2]) > 1
        right = (1 + several) * (depth * cut.columns + padded * _packs(call, cut))
    left = np.broadcast_to(np.zeros((), a.dtype), (cut.rows, depth))
    top = np.broadcast_to(np.zeros((), b.dtype), (depth, cut.columns))
    parameters: dict[str, Any] = dict.fromkeys((*PARAMETERS, "bias"))
    held = parameter_bytes(parameters_of(call)) + nbytes_of(call.bias)
    y = Tensor(result, call.dtype).nbytes + _bias_copy(call, result)
    workspace = _workspace(call._replace(a=left, b=top, matrix=result, **parameters))
    return 2 * cut.rows * depth + right + y + held + workspace


def _bias_copy(call: Call, result: Shape) -> int:
    """Return the bytes of a bias that is converted to float32, or of what a part of the result needs of it."""
    if call.bias is None or call.bias.dtype == np.float32:
        return 0
    return 4 * min(int(call.bias.size), math.prod(result))


def _workspace(call: Call) -> int:
    chosen = _plan(call) if can_compile() else None
    return CELL * chosen.workspace.cells if chosen else 0


def parameter_bytes(parameters: Iterable[Array | None]) -> int:
    """Return the bytes of scales and zero points, and of their copies."""
    return 2 * sum(map(nbytes_of, parameters))


def nbytes_of(operand: Any) -> int:
    """Return the bytes of an operand, None for none."""
    if isinstance(operand, PackedMatrix):
        return int(operand.panels.nbytes + operand.sums.nbytes)
    return 0 if operand is None else int(operand.nbytes)


def _plan(call: Call) -> Plan | None:
    if 0 in call.matrix:
        return None
    a = call.a
    b: Any = call.b
    is_packed = isinstance(b, PackedMatrix)
    return plan(
        call.operator,
        Layout(a.shape, strides_of(a), a.dtype),
        Layout(b.shape, (0,) * b.ndim if is_packed else strides_of(b), b.dtype),
        Layout(call.matrix, packed_strides(call.matrix, call.dtype.itemsize), call.dtype),
        tuple([None if each is None else each.shape for each in parameters_of(call)]),
        None if call.bias is None else Layout(call.bias.shape, strides_of(call.bias), call.bias.dtype),
        *form_of(b),
        threads.most_of_thread(),
    )
