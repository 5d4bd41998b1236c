"""Plans of products of bytes: which kernel, and how the work is cut."""

import functools
import inspect
import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlcpu import reference
from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form, Shape, fitting
from dmlcpu.common.parameters import as_float32, is_usable
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.cut import SKINNY_SUMS, Cut, cut_dots, cut_skinny, cut_tiles
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK
from dmlcpu.kernels.gemm.table import UNPACKED, Product
from dmlcpu.kernels.gemm.work import COUNTER, NARROW, SHARES, WORK, Problem, groups_of, panels_of
from dmlcpu.kernels.scales import are_positive, keep_scaled
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.products.arguments import BYTE, FLOAT, PARAMETERS, SCALES, Call, check, matrix_strides
from dmlcpu.products.packing import (
    PackedMatrix,
    broadcast_strides,
    lhs_sign_flip,
    matrix_fields,
    rhs_sign_flip,
    unpack,
)
from dmlcpu.runtime.memory import Workspace, cache_of_thread, frombuffer, word_strides, words
from dmlcpu.runtime.records import record_of
from dmlcpu.runtime.threads import REFERENCE, Budget

_INF = math.inf
_log = logging.getLogger("dmlcpu")

# The number of tasks of a thread, so that a fast core can take over tasks of a slow one.
_TASKS = 4
# The greatest number of runs of tasks of a thread. If threads take tiny products one by one, they wait for the counter
# and for lines of y that both write: 1,000 products of 16 x 16 x 16 took as long as on one thread (Zen 4).
_RUNS = 32
# The least number of sums in a task of few rows. A task of one row reads this many bytes of each row of b. One row by
# 4096 x 4096 takes 1.2 to 1.4 times as long if tasks read 512 bytes, and eight rows take the same time either way (Zen
# 4, two threads, AVX-512 and AVX2).
_LEAST_SUMS = 2048
QUANTIZED_MATMUL = "quantized_matmul"  # its scales must be positive
BIAS = 3  # its position among the arrays of a call
HALF_BITS = np.dtype(np.uint16)
NO_BYTES, NO_CELLS = np.empty(0, BYTE), np.empty(0, np.int64)
NO_BIAS = np.full(1, -0.0, np.float32)  # changes no sum: 0 would change -0
_FIELDS = ("a_scale", "a_zero", "b_scale", "b_zero", "y_scale", "y_zero")  # of the work record


@functools.lru_cache(maxsize=1024)
def prepare(
    operator: str,
    a: Any,
    b: Any,
    parameters: tuple[Shape | None, ...],
    bias: Any,
    y_strides: Shape | None,
    dtype: np.dtype[Any],
    budget: Budget,
) -> Prepared:
    """Return the plan of a product, from the arguments of `check` and the strides and type of y."""
    call = check(operator, a, b, parameters, bias, dtype)
    strides = matrix_strides(fitting(y_strides, call.shape), len(a[0]) == 1, len(b[0]) == 1)
    return plan(call, strides, budget)


@functools.lru_cache(maxsize=1024)
def plan(call: Call, y_strides: Shape | None, budget: Budget) -> Prepared:
    """Return the plan of a checked product. y_strides: of y as matrices; None: y is packed."""
    results = (Tensor(call.shape, call.dtype),)
    is_scaled = call.operator == QUANTIZED_MATMUL
    checked = tuple([place for place in SCALES if is_scaled and call.parameters[place] is not None])
    if 0 in call.matrix:
        check_only = functools.partial(_check_only, checked)
        return ByFunction(operator=call.operator, kernel="none", results=results, function=check_only)
    if budget == REFERENCE:
        return ByFunction(
            operator=call.operator,
            kernel="reference",
            results=results,
            function=functools.partial(_refer, call, checked),
        )
    if call.bias and call.bias.dtype != FLOAT:
        floats = call._replace(bias=Form(call.bias.shape, FLOAT))
        return converting(plan(floats, y_strides, budget), [(BIAS, as_float32)])
    a, b = call.a, call.b
    y = Form(call.matrix, call.dtype, y_strides)
    *batch, rows, columns = call.matrix
    problem = Problem(math.prod(batch), rows, columns, a.shape[-1], b.steps[-1])
    product, reason = kernel_for(call.operator, problem, call.layout, budget.kernel)
    is_packed = call.layout != UNPACKED
    has_forms = product.has_forms and not call.is_exact
    threads, row_parts, column_parts, cut = cut_for(product, problem, is_packed, has_forms, budget)
    _log.debug("%s: %s by %s: %s (%s), %d parts", call.operator, a.shape, b.shape, product.name, reason, threads)
    is_wide = problem.depth > NARROW and not (product.wraps and y.dtype.itemsize == 4)
    return Plan(
        operator=call.operator,
        results=results,
        kernel=product.name,
        is_single=threads == 1,
        workspace=Workspace(SHARES + threads * cut.share_cells),
        row=product,
        call=product.kernel.for_parts(threads),
        work=record_of(
            WORK,
            **size_fields(problem, threads, row_parts, column_parts, cut, y.dtype),
            **array_fields(a, b, y, call.parameters, call.bias, is_packed, is_wide),
            is_exact=call.is_exact,
        ),
        checked=checked,
        is_plain=not (a.strides or y.strides or problem.depth == 0 or (b.strides and not is_packed)),
        word=word_of(y.dtype),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernel and the work record for one set of shapes and layouts."""

    row: Product
    call: Callable[..., Any]  # the kernel, for this number of parts
    work: NDArray[np.int64]  # the work record
    checked: tuple[int, ...]  # the positions of scales whose values are checked
    is_plain: bool  # a, b and y are packed arrays with elements, or b is a packed matrix
    word: np.dtype[Any]  # the type in which the kernels see y

    def run(self, a: Array, b: Any, parameters: tuple[Array, ...], bias: Any, y: Array) -> int | None:
        """Run; return the position of refused scales."""
        for place in self.checked:
            scales = parameters[place]
            if not (0 < scales.item() < _INF if scales.size == 1 else are_positive(scales)):
                return place
        view = frombuffer if self.is_plain else words_of
        rhs = (NO_BYTES, b.panels, b.sums) if type(b) is PackedMatrix else (view(b, BYTE), NO_CELLS, NO_CELLS)
        y_bias = NO_BIAS if bias is None else words(bias, FLOAT)
        scratch = self.workspace.take()
        scratch[COUNTER] = 0
        self.call(view(a, BYTE), *rhs, *parameters, y_bias, view(y, self.word), self.work, scratch)
        self.workspace.give_back(scratch)
        return None

    def keep(
        self, a: Array, b: Array | PackedMatrix, parameters: tuple[Array, ...], bias: Any, y: Array
    ) -> Callable[[], bool] | None:
        """Return a kept call."""
        if not self.is_single:
            return None
        y_bias = NO_BIAS if bias is None else words(bias, FLOAT)
        arrays = (words_of(a, BYTE), *rhs_of(b), *parameters, y_bias, words(y, self.word))
        scales = [parameters[place] for place in self.checked]
        return keep_scaled(scales, self.row.kernel, *arrays, self.work, self.workspace.make())


def _check_only(checked: tuple[int, ...], a: Any, b: Any, parameters: tuple[Array, ...], *others: Any) -> int | None:
    """Return the position of refused scales."""
    return next((place for place in checked if not is_usable(parameters[place])), None)


def _refer(
    call: Call,
    checked: tuple[int, ...],
    a: Array,
    b: Array | PackedMatrix,
    parameters: tuple[Array, ...],
    bias: Any,
    y: Array,
) -> int | None:
    """Run the reference; return the position of refused scales."""
    refused = _check_only(checked, a, b, parameters)
    if refused is not None:
        return refused
    function = getattr(reference, call.operator)
    taken = inspect.signature(function).parameters
    given: dict[str, Any] = {}
    for place, (name, own) in enumerate(zip(PARAMETERS, call.parameters, strict=True)):
        numbers = parameters[place]
        dtype = (FLOAT, call.a.dtype, FLOAT, call.b.dtype, FLOAT, call.dtype)[place]
        if name in taken:  # not all operators have all of them
            given[name] = numbers.view(dtype).reshape((1, 1) if own is None else own)
    matrix = unpack(b) if isinstance(b, PackedMatrix) else b
    given |= {
        "a": a.reshape(call.a.shape),
        "b": matrix.reshape(call.b.shape),
        "bias": bias.reshape(call.bias.shape) if call.bias else None,
    }
    named = {name: given[name] for name in taken if name in given}
    function(**named, out_dtype=y.dtype, out=y.reshape(call.matrix))
    return None


def kernel_for(operator: str, problem: Problem, b_layout: str, name: str | None) -> tuple[Product, str]:
    """Return the best kernel for a product, or the one of that name if it supports the product, and the reason."""
    named = [row for row in registry.available(operator, "dot") if name in (None, row.name)]
    able: list[Product] = [row for row in named if row.supports(problem, b_layout)]
    if not able:
        raise LookupError(f"no kernel {name or 'at all'} for this product on this machine")
    product = max(able, key=lambda row: (row.is_skinny, row.isa.rank))  # kernels for few rows come first
    if name:
        return product, "requested"
    b = "as it lies in memory" if b_layout == UNPACKED else f"packed as {b_layout}"
    rows = "few rows, " if product.is_skinny else ""
    return product, f"{rows}B {b}: the highest instruction set that supports it"


def size_fields(
    problem: Problem, threads: int, row_parts: int, column_parts: int, cut: Cut, dtype: np.dtype[Any]
) -> dict[str, Any]:
    """Return the fields of the work record about the operands and the cut."""
    tasks = problem.batches * row_parts * column_parts
    lowest, highest = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (0, 0)
    return {
        "M": problem.rows,
        "N": problem.columns,
        "K": problem.depth,
        "groups": groups_of(problem.depth),
        "panels": panels_of(problem.columns),
        "tasks": tasks,
        "run": max(1, tasks // (_RUNS * threads)),
        "row_parts": row_parts,
        "column_parts": column_parts,
        **cut._asdict(),
        "lowest": int(lowest),
        "highest": int(highest),
    }


def array_fields(
    a: Form,
    b: Form,
    out: Form,
    parameters: tuple[tuple[int, ...] | None, ...],
    bias: Form | None,
    is_packed: bool,
    is_wide: bool,
) -> dict[str, Any]:
    """Return the fields of the work record about memory layout, and those that are the same for all rows."""
    ndim = len(out.shape)
    own = [broadcast_strides(shape or (), ndim) for shape in parameters]
    steps = dict(zip(_FIELDS, [each[-2] or each[-1] for each in own], strict=True))
    out_strides = word_strides(out.steps, out.dtype.itemsize)
    b_batch = broadcast_strides(b.shape[:-2], ndim - 2) if is_packed else _batch_strides(b, ndim - 2)
    bias_shape, bias_strides = _spread_bias(bias, ndim)
    sizes, *strides = merge(
        out.shape[:-2],
        _batch_strides(a, ndim - 2),
        b_batch,
        out_strides[:-2],
        bias_strides[:-2],
        *[strides[:-2] for strides in own],
    )
    return {
        "walk": walk_of(sizes),
        "a": matrix_fields(a.shape, a.steps, strides[0]),
        "b": matrix_fields(b.shape, b.steps, strides[1]),
        "y": matrix_fields(out.shape, out_strides, strides[2]),
        "y_bias": matrix_fields(bias_shape, bias_strides, strides[3]),
        "a_sign_flip": lhs_sign_flip(a.dtype),
        "b_sign_flip": rhs_sign_flip(b.dtype),
        "b_is_packed": is_packed,
        "is_wide": is_wide,
        "same_a_zero": steps["a_zero"] == 0,
        "same_multiplier": steps["a_scale"] == steps["y_scale"] == 0,
        "same_rows": not any(steps[name] for name in ("a_scale", "a_zero", "y_scale", "y_zero")),
        "same_start": steps["a_zero"] == 0 and a.shape[-1] > 0 and not is_wide,
        **{name: {"step": steps[name], "strides": along} for name, along in zip(_FIELDS, strides[4:], strict=True)},
    }


def _spread_bias(bias: Form | None, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of a bias, and its strides in items after broadcasting to `ndim` dimensions."""
    if bias is None:
        return (1,) * ndim, (0,) * ndim
    missing = ndim - len(bias.shape)
    own = zip(bias.shape, word_strides(bias.steps, bias.dtype.itemsize), strict=True)
    return (1,) * missing + bias.shape, (0,) * missing + tuple([stride if size > 1 else 0 for size, stride in own])


def _batch_strides(form: Form, ndim: int) -> tuple[int, ...]:
    """Return the strides of the batch dimensions after broadcasting to `ndim` dimensions."""
    own = form.steps[:-2]
    pairs = zip(form.shape, own, strict=False)
    return (0,) * (ndim - len(own)) + tuple(stride if size > 1 else 0 for size, stride in pairs)


def cut_for(
    product: Product, problem: Problem, is_packed: bool, has_forms: bool, budget: Budget, by_rows: bool = False
) -> tuple[int, int, int, Cut]:
    """Cut a product; return threads, parts of the rows, parts of the columns, and the kind of share.

    by_rows: rows are cut if cutting columns takes as long.
    """
    if product.is_skinny:
        return _cut_skinny(problem, product.reads_columns, budget)
    return _cut_tiles(product, problem, is_packed, has_forms, by_rows, budget)


def _cut_tiles(
    product: Product, problem: Problem, is_packed: bool, has_forms: bool, by_rows: bool, budget: Budget
) -> tuple[int, int, int, Cut]:
    """Cut a product of packed operands; return threads, parts of the rows, parts of the columns, and blocks."""
    batches, rows, columns, depth, _ = problem
    panels, tiles = panels_of(columns), -(-rows // product.mr)
    # In nanoseconds, within a factor of 2 (Zen 4, by AVX-512 and by AVX2).
    reading = columns * depth // (48 if is_packed else 8)  # and packing, unless packed
    packing = rows * depth // 8
    multiplying = rows * columns * depth // product.rate
    writing = rows * columns // 12 + 200  # and the fixed time of a product
    work = batches * (multiplying + reading + packing + writing)
    threads = budget.parts(work, most=batches * tiles * panels)
    times = TileTimes(multiplying / (tiles * panels), reading / panels, packing / tiles)
    row_parts, column_parts = parts_of(batches, tiles, panels, threads, times, by_rows)
    threads = min(threads, batches * row_parts * column_parts)
    cache = cache_of_thread(threads)
    cut = cut_tiles(rows, columns, depth, product.mr, row_parts, column_parts, is_packed, has_forms, cache)
    return threads, row_parts, column_parts, cut


def _cut_skinny(problem: Problem, reads_columns: bool, budget: Budget) -> tuple[int, int, int, Cut]:
    """Cut a product of few rows by columns, and these into blocks whose sums stay in the nearest caches."""
    batches, rows, columns, depth, _ = problem
    blocks = -(-columns // BLOCK)
    threads = budget.parts(batches * columns * depth * (4 + rows) // 64, most=batches * blocks)
    # Each thread has at least one task. If there are more tasks, each has at least _LEAST_SUMS sums.
    column_parts = 1
    while threads > 1 and batches * column_parts < _TASKS * threads and 2 * column_parts <= blocks:
        if batches * column_parts >= threads and rows * columns < 2 * column_parts * _LEAST_SUMS:
            break
        column_parts *= 2
    if reads_columns:
        return min(threads, batches * column_parts), 1, column_parts, cut_dots(rows, columns, depth, column_parts)
    cut = cut_skinny(rows, columns, depth, column_parts, SKINNY_SUMS)
    return min(threads, batches * column_parts), 1, column_parts, cut


class TileTimes(NamedTuple):
    """Approximate nanoseconds of a task for each tile of rows by a panel, for each panel, and for each tile."""

    product: float
    panel: float  # reads a panel of b, or packs it
    tile: float  # packs a tile of a's rows


def parts_of(
    batches: int, tiles: int, panels: int, threads: int, times: TileTimes, by_rows: bool = False
) -> tuple[int, int]:
    """Return the numbers of parts of rows and columns that take the least time.

    Each part of the rows reads or packs b again; each part of the columns packs a again.
    """

    def time(parts: tuple[int, int]) -> tuple[float, ...]:
        tasks, (rows, columns) = batches * parts[0] * parts[1], (-(-tiles // parts[0]), -(-panels // parts[1]))
        task = rows * columns * times.product + columns * times.panel + rows * times.tile
        return -(-tasks // threads) * task, tasks, parts[1] if by_rows else parts[0]

    def again(parts: tuple[int, int]) -> float:
        """Return the time for reading and packing again, for parts that threads take dynamically."""
        return parts[0] * panels * times.panel + parts[1] * tiles * times.tile

    def fits(parts: tuple[int, int]) -> bool:
        return parts[0] <= tiles and parts[1] <= panels

    counts = [1]
    while counts[-1] < threads:
        counts.append(min(2 * counts[-1], threads))
    best = min(filter(fits, itertools.product(counts, counts)), key=time)
    while threads > 1 and batches * best[0] * best[1] < _TASKS * threads:
        # Single panels, if otherwise some tasks would have one panel and others two.
        columns = panels if 2 * best[1] < panels < 4 * best[1] else 2 * best[1]
        finer = [parts for parts in ((2 * best[0], best[1]), (best[0], columns)) if fits(parts)]
        if not finer:
            break
        best = min(finer, key=again)
    return best


def word_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that kernels see for a type: unsigned bytes, the bits of float16, other types unchanged."""
    return BYTE if dtype.itemsize == 1 else HALF_BITS if dtype == np.float16 else dtype


def words_of(array: Array, word: np.dtype[Any]) -> Array:
    """Return the array of a matrix that the kernel reads or writes."""
    return words(array, word) if array.size else NO_BYTES


def rhs_of(b: Array | PackedMatrix) -> tuple[Array, Array, Array]:
    """Return the arrays of the right-hand side for the kernel: bytes, or panels and the sums of columns."""
    return (NO_BYTES, b.panels, b.sums) if isinstance(b, PackedMatrix) else (words_of(b, BYTE), NO_CELLS, NO_CELLS)
