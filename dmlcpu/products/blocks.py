"""Products of bytes in blocks: matrices are read, and the result is written, a block at a time."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import BLOCK, Buffer, as_source, cut_within, extent, read_blocks, regions_of
from dmlcpu.common.forms import Form, Shape, form_of
from dmlcpu.common.parameters import check_scale
from dmlcpu.common.regions import Estimate, Region, Sink, Source, Tensor, bind, is_source
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.table import UNPACKED
from dmlcpu.products.arguments import FLOAT, PARAMETERS, SCALES, Call, check, flat_of, rhs_form
from dmlcpu.products.packing import PackedMatrix, form_of_packed, pack_b
from dmlcpu.products.plan import QUANTIZED_MATMUL, plan
from dmlcpu.runtime.memory import spans_meet
from dmlcpu.runtime.threads import most_of_thread, plan_for_now

# The least number of rows of a block if memory suffices: with fewer, the kernels are slower.
_ROWS = 192

SOURCES = ("a", "b")
Rhs = Array | PackedMatrix


class BlockSize(NamedTuple):
    """The size of a block of the result."""

    rows: int
    columns: int


class Product(NamedTuple):
    """A product of matrices that need not be in memory."""

    call: Call
    a: Source  # of matrices, like b
    b: Source | PackedMatrix
    parameters: tuple[Array | None, ...]  # None: a number, or none
    numbers: tuple[Array, ...]  # the flat parameters
    held: int  # bytes of the parameters and of their copies
    bias: Array | None
    reading: int = 0  # additional bytes for each element of a while it is read


def blocks_of(operator: Any) -> SimpleNamespace:
    """Return the functions of a blocks module, for a row of the table of operators."""
    product = partial(_product, operator.function, operator.calls.request)
    return SimpleNamespace(SOURCES=SOURCES, estimate=partial(estimate, product), run=partial(run, product))


def _product(function: Callable[..., Any], request: Callable[..., Any], arguments: dict[str, Any]) -> Product:
    """Return the product of a call, or refuse it."""
    given, key, arrays = requested(function, request, arguments)
    operator, a_form, b_form, shapes, bias_form, _, dtype = key
    call = check(operator, a_form, b_form, shapes, bias_form, dtype)
    if operator == QUANTIZED_MATMUL:
        for place in SCALES:
            if call.parameters[place]:
                name = PARAMETERS[place]
                check_scale(operator, name, arrays[2][place].reshape(shapes[place]), given[name])
    return product_of(call, given, arrays)


def product_of(call: Call, given: dict[str, Any], arrays: tuple[Any, ...]) -> Product:
    """Return the product of a checked call; given: its arguments."""
    a, b, numbers, bias = arrays
    kinds = (FLOAT, call.a.dtype, FLOAT, call.b.dtype, FLOAT, call.dtype)
    return Product(
        call,
        as_matrices(a, call.a.shape),
        as_matrices(b, call.b.shape),
        tuple(
            array.view(kind).reshape(own) if own else None
            for array, kind, own in zip(numbers, kinds, call.parameters, strict=True)
        ),
        numbers,
        parameter_bytes([given.get(name) for name in PARAMETERS], numbers),
        bias.reshape(call.bias.shape) if call.bias else None,
    )


def estimate(product: Callable[..., Product], /, **arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    found = product(arguments)
    call, prepared = found.call, plan(found.call, None, most_of_thread())
    y = Tensor(call.matrix, call.dtype).nbytes + _bias_copy(call, call.matrix)
    operands = call.a.nbytes + rhs_bytes(found.b, call.b) + _nbytes(found.bias) + found.held
    return Estimate(
        {"y": Tensor(call.shape, call.dtype)},
        operands + y + prepared.workspace_bytes,
        lambda: min(map(partial(needs, found), cuts(call))),
        prepared.kernel,
    )


def run(
    product: Callable[..., Product],
    arguments: dict[str, Any],
    sinks: dict[str, Sink],
    memory: int,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Write the product, matrix by matrix: in blocks of rows of a, and of columns of b if it does not fit."""
    found = product(arguments)
    call = found.call
    if 0 in call.matrix:
        return
    cut = cut_within(call.operator, memory, cuts(call), partial(needs, found))
    left = read_blocks(found.a, (part_of(call.a.shape, region, -1) for region in _regions(call, cut)), stopping)
    right = _right_hand_sides(found, cut, stopping)
    b: Any = None
    before, out, keeps = None, Buffer(), _keeps(call)
    for region, (_, rows) in zip(_regions(call, cut), left, strict=True):
        of_b = part_of(call.b.shape, region, -2)
        if of_b != before:
            b, before = next(right), of_b
        result = out.array(extent(region), call.dtype)
        _multiply(found, region, rows, b, result)
        kept = (*region[:-2], *itertools.compress(region[-2:], keeps))
        sinks["y"].write(kept, result.reshape(extent(kept)))


def _multiply(product: Product, region: Region, a: Array, b: Rhs, y: Array) -> None:
    """Write a region of the result; a and b: its rows and columns."""
    numbers = list(product.numbers)
    shapes: list[Shape | None] = [None] * len(numbers)
    for place, each in enumerate(product.parameters):
        if each is not None:
            part = each[part_of(each.shape, region)]
            numbers[place], shapes[place] = flat_of(part), part.shape
    bias = None if product.bias is None else product.bias[part_of(product.bias.shape, region)]
    b_form, layout, is_exact = rhs_form(form_of_packed(b) if isinstance(b, PackedMatrix) else form_of(b))
    call = product.call._replace(
        a=Form(*form_of(a)),
        b=b_form,
        layout=layout,
        is_exact=is_exact,
        parameters=tuple(shapes),
        bias=None if bias is None else Form(*form_of(bias)),
        matrix=y.shape,
        shape=y.shape,
    )
    plan_for_now(plan, (call, None)).run(a, b, numbers, bias, y)


def _keeps(call: Call) -> tuple[bool, bool]:
    """Return whether the result has the dimension of rows, and that of columns; 1-D operands drop them."""
    if len(call.shape) != len(call.matrix) - 1:
        return (len(call.shape) == len(call.matrix),) * 2
    is_column = call.matrix[-1] == 1
    return is_column, not is_column


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


def requested(
    function: Callable[..., Any], request: Callable[..., Any], arguments: dict[str, Any], left: str = "a"
) -> tuple[dict[str, Any], tuple[Any, ...], tuple[Any, ...]]:
    """Return all arguments of a product, the key of its plan, and its arrays; operands may be Sources.

    left: the name of the left operand.
    """
    given = bind(function, arguments)
    forms = {name: Form(given[name].shape, given[name].dtype) for name in (left, "b") if is_source(given[name])}
    key, (a, b, *others) = request(*{**given, **forms}.values(), None)
    return given, key, (given[left] if left in forms else a, given["b"] if "b" in forms else b, *others)


def as_matrices(given: Any, shape: Shape) -> Any:
    """Return an operand, an array or a Source, as a Source of matrices; a packed matrix is kept."""
    if isinstance(given, PackedMatrix):
        return given
    source, _ = as_source("", "", given)
    return source if len(source.shape) > 1 else _Vector(source, shape)


def _right_hand_sides(product: Product, cut: BlockSize, stopping: Callable[[], bool]) -> Iterator[Rhs]:
    """Yield a right-hand side for each run of regions that share it, packed if several regions do."""
    call, b = product.call, product.b
    wanted = (part_of(call.b.shape, region, -2) for region in _regions(call, cut))
    regions = (region for region, _ in itertools.groupby(wanted))
    if isinstance(b, PackedMatrix):
        for region in regions:
            yield packed_part(b, region)
        return
    packs = _packs(call, cut)
    for _, matrix in read_blocks(b, regions, stopping):
        yield pack_b(matrix) if packs else matrix


def packed_part(b: PackedMatrix, region: Region) -> PackedMatrix:
    """Return the part of a packed matrix whose matrices are in a region; they are contiguous."""
    batch, first = region[:-2], 0
    for n, where in zip(b.shape, batch, strict=False):
        first = first * n + where.start
    shape = extent(batch)
    each, places = math.prod(b.shape[:-2]), slice(first, first + math.prod(shape))
    panels, sums = (array.reshape(each, -1)[places].reshape(-1) for array in (b.panels, b.sums))
    return PackedMatrix((*shape, *b.shape[-2:]), b.dtype, b.layout, panels, sums, 0 if b.saturating == 0 else None)


def _packs(call: Call, cut: BlockSize) -> bool:
    """Return whether each block of b is multiplied several times."""
    is_shared = math.prod(call.b.shape[:-2]) < math.prod(call.matrix[:-2])
    return cut.rows < call.matrix[-2] or (cut.columns == call.matrix[-1] and is_shared)


def _regions(call: Call, cut: BlockSize) -> Iterator[Region]:
    """Yield the regions of the result: all rows of some columns, then of the next ones, then the next matrices."""
    *batch, rows, columns = call.matrix
    ones = (1,) * len(batch)
    for *index, which, where in regions_of((*batch, columns, rows), (*ones, cut.columns, cut.rows)):
        yield (*index, where, which)


def part_of(shape: Shape, region: Region, whole: int = 0) -> Region:
    """Return the region of an operand that a region of the result needs; whole: a dimension needed completely."""
    own = region[len(region) - len(shape) :]
    ends = [slice(0, n) if n == 1 else each for n, each in zip(shape, own, strict=True)]
    if whole:
        ends[whole] = slice(0, shape[whole])
    return tuple(ends)


def cuts(call: Call) -> Iterator[BlockSize]:
    """Yield cuts, the fastest first. Columns are cut only if b does not fit: each block of them reads a again."""
    *_, rows, columns = call.matrix
    depth = call.a.shape[-1]
    is_packed = call.layout != UNPACKED
    height, width = max(1, min(rows, BLOCK // max(depth, columns * call.dtype.itemsize, 1))), columns
    yield BlockSize(height, width)
    for least_height, least_width in ((_ROWS, NR), (1, 1)):
        while height > least_height:
            height = max(least_height, height // 2)
            yield BlockSize(height, width)
        while width > least_width and not is_packed:
            width = max(least_width, width * 3 // 4 // NR * NR, width // 2 if width <= NR else 1)
            yield BlockSize(height, width)


def needs(product: Product, cut: BlockSize) -> int:
    """Return the bytes that `run` takes with such blocks."""
    call = product.call
    depth, result = call.a.shape[-1], (cut.rows, cut.columns)
    if isinstance(product.b, PackedMatrix):
        right = rhs_bytes(product.b, call.b)
    else:
        padded = (depth + 3) * (cut.columns + NR) + 8 * (cut.columns + NR)
        several = cut.columns < call.matrix[-1] or math.prod(call.b.shape[:-2]) > 1
        right = (1 + several) * (depth * cut.columns + padded * _packs(call, cut))
    held = product.held + _nbytes(product.bias)
    y = Tensor(result, call.dtype).nbytes + _bias_copy(call, result)
    left, top = Form((cut.rows, depth), call.a.dtype), Form((depth, cut.columns), call.b.dtype)
    none = (None,) * len(PARAMETERS)
    block = call._replace(a=left, b=top, layout=UNPACKED, parameters=none, bias=None, matrix=result, shape=result)
    left_bytes = (2 + product.reading) * cut.rows * depth
    return left_bytes + right + y + held + plan(block, None, most_of_thread()).workspace_bytes


def _bias_copy(call: Call, result: Shape) -> int:
    """Return the bytes of a bias that is converted to float32, or of the part that a part of the result needs."""
    if call.bias is None or call.bias.dtype == FLOAT:
        return 0
    return 4 * min(math.prod(call.bias.shape), math.prod(result))


def parameter_bytes(given: Iterable[Any], used: Iterable[Array]) -> int:
    """Return the bytes of scales and zero points as given, plus those of copies that replace them."""
    pairs = zip(given, used, strict=True)
    return sum(
        own.nbytes + (0 if spans_meet(array, own) else array.nbytes)
        for array, own in pairs
        if isinstance(array, np.ndarray)
    )


def rhs_bytes(b: Any, form: Form) -> int:
    """Return the bytes of a right-hand side."""
    return int(b.panels.nbytes + b.sums.nbytes) if isinstance(b, PackedMatrix) else form.nbytes


def _nbytes(array: Array | None) -> int:
    return 0 if array is None else int(array.nbytes)
