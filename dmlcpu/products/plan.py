"""How products of bytes are carried out: which kernel, and how the work is cut."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlcpu.common.arguments import Array
from dmlcpu.common.bound import Steps
from dmlcpu.common.scaled_steps import scaled_steps
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.cut import SKINNY_SUMS, Cut, cut_dots, cut_skinny, cut_tiles
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK
from dmlcpu.kernels.gemm.table import ROWS, Product
from dmlcpu.kernels.gemm.work import COUNTER, NARROW, SELECTION, SHARES, WORK, Problem, groups_of, panels_of
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.products.packing import PackedMatrix, broadcast_strides, lhs_sign_flip, matrix_fields, rhs_sign_flip
from dmlcpu.runtime.memory import Workspace, second_level_cache, word_strides, words
from dmlcpu.runtime.records import fill
from dmlcpu.runtime.threads import Budget

_log = logging.getLogger("dmlcpu")

# Into how many tasks the work of a thread is cut, so that a fast core can take what a slow one does not get to.
_TASKS = 4
# Into how many runs the tasks of a thread are cut at most. When threads take tiny products one by one, they wait for
# the counter and for lines of y that both write to: 1,000 products of 16 x 16 x 16 took as long as on one (Zen 4).
_RUNS = 32
# The least number of sums of a task of few rows. A task of one row reads this many bytes of each row of b. One row by
# 4096 x 4096 takes 1.2 to 1.4 times as long if tasks read 512 bytes, and eight rows take the same time either way (Zen
# 4, two threads, AVX-512 and AVX2).
_LEAST_SUMS = 2048
BYTE = np.dtype(np.uint8)
HALF_BITS = np.dtype(np.uint16)
_ZERO, NO_BYTES, NO_CELLS = np.zeros(1, BYTE), np.empty(0, BYTE), np.empty(0, np.int64)
NO_BIAS = np.full(1, -0.0, np.float32)  # which changes no sum: 0 would change -0
_NO_SELECTION = dict.fromkeys(SELECTION.names or (), 0)
PARAMETERS = ("a_scale", "a_zero", "b_scale", "b_zero", "y_scale", "y_zero")


class Layout(NamedTuple):
    """What a plan has to know of an array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernel and the work record for one set of shapes and layouts."""

    kernel: Product
    is_single: bool  # the work is one part
    run: Callable[..., Any]  # the kernel, for the parts that the work is cut into
    work: NDArray[np.int64]  # the work record
    workspace: Workspace


@functools.lru_cache(maxsize=1024)
def plan(
    operator: str,
    a: Layout,
    b: Layout,
    out: Layout,
    parameters: tuple[tuple[int, ...] | None, ...],
    bias: Layout | None,
    b_layout: str,
    is_exact: bool,
    budget: Budget,
) -> Plan:
    """Choose the kernel and cut the work.

    parameters: shapes, in the kernels' order; b_layout: as packed, or ROWS; is_exact: no pair of bytes of b saturates.
    """
    *batch, rows, columns = out.shape
    problem = Problem(math.prod(batch), rows, columns, a.shape[-1], b.strides[-1])
    product, reason = kernel_for(operator, problem, b_layout, budget.kernel)
    is_packed = b_layout != ROWS
    has_forms = product.has_forms and not is_exact
    threads, row_parts, column_parts, cut = cut_for(product, problem, is_packed, has_forms, budget)
    _log.debug("%s: %s by %s: %s (%s), %d parts", operator, a.shape, b.shape, product.name, reason, threads)
    is_wide = problem.depth > NARROW and not (product.wraps and out.dtype.itemsize == 4)
    return Plan(
        product,
        threads == 1,
        product.kernel.for_parts(threads),
        fill(
            WORK,
            **size_fields(problem, threads, row_parts, column_parts, cut, out.dtype),
            **array_fields(a, b, out, parameters, bias, is_packed, is_wide),
            is_exact=is_exact,
            selection=_NO_SELECTION,
        ),
        Workspace(SHARES + threads * cut.share_cells),
    )


def kernel_for(operator: str, problem: Problem, b_layout: str, name: str | None) -> tuple[Product, str]:
    """Return the kernel that suits a product best, or the one of that name if it can do it, and why it is."""
    named = [row for row in registry.available(operator, "dot") if name in (None, row.name)]
    able: list[Product] = [row for row in named if row.supports(problem, b_layout)]
    if not able:
        raise LookupError(f"no kernel {name or 'at all'} for this product on this machine")
    product = max(able, key=lambda row: (row.is_skinny, row.isa.rank))  # kernels for few rows come first
    if name:
        return product, "asked for"
    b = "as it lies in memory" if b_layout == ROWS else f"packed as {b_layout}"
    rows = "few rows, " if product.is_skinny else ""
    return product, f"{rows}B {b}: the highest instruction set that supports it"


def size_fields(
    problem: Problem, threads: int, row_parts: int, column_parts: int, cut: Cut, dtype: np.dtype[Any]
) -> dict[str, Any]:
    """Return the fields of the work record that say what is multiplied, and how it is cut."""
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
    a: Layout,
    b: Layout,
    out: Layout,
    parameters: tuple[tuple[int, ...] | None, ...],
    bias: Layout | None,
    is_packed: bool,
    is_wide: bool,
) -> dict[str, Any]:
    """Return the fields of the work record that say where things lie, and what is the same for all rows."""
    ndim = len(out.shape)
    own = [broadcast_strides(shape or (), ndim) for shape in parameters]
    steps = dict(zip(PARAMETERS, [strides[-2] or strides[-1] for strides in own], strict=True))
    out_strides = word_strides(out.strides, out.dtype.itemsize)
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
        "a": matrix_fields(a.shape, a.strides, strides[0]),
        "b": matrix_fields(b.shape, b.strides, strides[1]),
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
        **{name: {"step": steps[name], "strides": along} for name, along in zip(PARAMETERS, strides[4:], strict=True)},
    }


def _spread_bias(bias: Layout | None, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of a bias, and its strides in items when it is broadcast to `ndim` dimensions."""
    if bias is None:
        return (1,) * ndim, (0,) * ndim
    missing = ndim - len(bias.shape)
    own = zip(bias.shape, word_strides(bias.strides, bias.dtype.itemsize), strict=True)
    return (1,) * missing + bias.shape, (0,) * missing + tuple([stride if size > 1 else 0 for size, stride in own])


def _batch_strides(layout: Layout, ndim: int) -> tuple[int, ...]:
    """Return the strides of the batch dimensions when they are broadcast to `ndim` dimensions."""
    own = layout.strides[:-2]
    pairs = zip(layout.shape, own, strict=False)
    return (0,) * (ndim - len(own)) + tuple(stride if size > 1 else 0 for size, stride in pairs)


def cut_for(
    product: Product, problem: Problem, is_packed: bool, has_forms: bool, budget: Budget, by_rows: bool = False
) -> tuple[int, int, int, Cut]:
    """Cut a product; return threads, parts of the rows, parts of the columns, and how a share works.

    by_rows: rows are cut where it takes as long as to cut columns.
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
    reading = columns * depth // (48 if is_packed else 8)  # and packing, if it is not
    writing = rows * columns // 12 + 200  # and all that a product takes whatever its size
    work = batches * (rows * columns * depth // product.rate + reading + rows * depth // 8 + writing)
    threads = budget.parts(work, most=batches * tiles * panels)
    row_parts, column_parts = parts_of(batches, tiles, panels, threads, not is_packed, by_rows)
    while threads > 1 and batches * row_parts * column_parts < _TASKS * threads and 2 * column_parts <= panels:
        column_parts *= 2
    threads = min(threads, batches * row_parts * column_parts)
    cache = second_level_cache()
    cut = cut_tiles(rows, columns, depth, product.mr, row_parts, column_parts, is_packed, has_forms, cache)
    return threads, row_parts, column_parts, cut


def _cut_skinny(problem: Problem, reads_columns: bool, budget: Budget) -> tuple[int, int, int, Cut]:
    """Cut a product of few rows by columns, and these into blocks whose sums stay in the nearest caches."""
    batches, rows, columns, depth, _ = problem
    blocks = -(-columns // BLOCK)
    threads = budget.parts(batches * columns * depth * (4 + rows) // 64, most=batches * blocks)
    # Each thread has a task at least. More tasks have _LEAST_SUMS sums at least.
    column_parts = 1
    while threads > 1 and batches * column_parts < _TASKS * threads and 2 * column_parts <= blocks:
        if batches * column_parts >= threads and rows * columns < 2 * column_parts * _LEAST_SUMS:
            break
        column_parts *= 2
    if reads_columns:
        return min(threads, batches * column_parts), 1, column_parts, cut_dots(rows, columns, depth, column_parts)
    cut = cut_skinny(rows, columns, depth, column_parts, SKINNY_SUMS)
    return min(threads, batches * column_parts), 1, column_parts, cut


def parts_of(
    batches: int, tiles: int, panels: int, threads: int, packs: bool, by_rows: bool = False
) -> tuple[int, int]:
    """Return into how many parts to cut rows and columns for the least time; parts of the rows pack b again."""

    def time(parts: tuple[int, int]) -> tuple[int, ...]:
        tasks = batches * parts[0] * parts[1]
        rows, columns = -(-tiles // parts[0]), -(-panels // parts[1])
        return -(-tasks // threads) * columns * (rows + packs), tasks, parts[1] if by_rows else parts[0]

    counts = [1]
    while counts[-1] < threads:
        counts.append(min(2 * counts[-1], threads))
    return min(
        ((rows, columns) for rows in counts for columns in counts if rows <= tiles and columns <= panels), key=time
    )


def plan_for(
    operator: str,
    a: Array,
    b: Array | PackedMatrix,
    parameters: tuple[Array | None, ...],
    bias: Array | None,
    out: Array,
    budget: Budget,
) -> Plan:
    """Return the plan for checked matrices; parameters: in the kernels' order, None for those not there."""
    shapes = tuple([None if parameter is None else parameter.shape for parameter in parameters])
    a_layout, out_layout = Layout(a.shape, a.strides, a.dtype), Layout(out.shape, out.strides, out.dtype)
    b_layout = Layout(b.shape, (0,) * b.ndim if isinstance(b, PackedMatrix) else b.strides, b.dtype)
    bias_layout = None if bias is None else Layout(bias.shape, bias.strides, bias.dtype)
    return plan(operator, a_layout, b_layout, out_layout, shapes, bias_layout, *form_of(b), budget)


def words_of(
    a: Array, b: Array | PackedMatrix, parameters: tuple[Array | None, ...], bias: Array | None, out: Array
) -> list[Array]:
    """Return what the kernel reads and writes."""
    numbers = [flat(parameter) for parameter in parameters]
    return [bytes_of(a), *rhs(b), *numbers, bias_words(bias), words(out, word_of(out.dtype))]


def bias_words(bias: Array | None) -> Array:
    """Return what the kernel reads of a bias, float32; None is none."""
    return NO_BIAS if bias is None else words(bias, bias.dtype)


def form_of(b: Array | PackedMatrix | None) -> tuple[str, bool]:
    """Return the layout of a right-hand side, and whether it is known that no pair of its bytes saturates."""
    return (b.layout, b.saturating == 0) if isinstance(b, PackedMatrix) else (ROWS, False)


def word_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return what the kernels see elements of a type as: bytes without sign, bits of float16, others as they are."""
    return BYTE if dtype.itemsize == 1 else HALF_BITS if dtype == np.float16 else dtype


def run(chosen: Plan, *arrays: Array) -> None:
    """Run a plan on what the kernel reads and writes, all of it flat; see the kernel for their order."""
    scratch = chosen.workspace.take()
    scratch[COUNTER] = 0
    chosen.run(*arrays, chosen.work, scratch)
    chosen.workspace.give_back(scratch)


def steps(
    plan_within: Callable[[Budget], Plan], check: Callable[[], None] | None, scales: list[Array], *arrays: Array
) -> Steps:
    """Return how to run on the same arrays again and again; see `scaled_steps`."""
    return scaled_steps(plan_within, run, check, scales, *arrays)


def bytes_of(matrix: Array) -> Array:
    """Return what the kernel reads of a matrix."""
    return words(matrix, BYTE) if matrix.size else NO_BYTES


def rhs(b: Array | PackedMatrix) -> tuple[Array, Array, Array]:
    """Return what the kernel reads of the right-hand side: its bytes, or its panels and the sums of its columns."""
    return (NO_BYTES, b.panels, b.sums) if isinstance(b, PackedMatrix) else (bytes_of(b), NO_CELLS, NO_CELLS)


def flat(parameter: Array | None) -> Array:
    """Return an operand's numbers behind one another: of scales float32, of others bytes; None is zero."""
    if parameter is None:
        return _ZERO
    numbers = np.ascontiguousarray(parameter).ravel()
    if not numbers.flags.writeable:
        numbers = numbers.copy()  # kernels are compiled for arrays that can be written to
    return numbers if numbers.dtype == np.float32 else numbers.view(BYTE)
