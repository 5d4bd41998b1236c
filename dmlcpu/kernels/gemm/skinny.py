"""Few rows times a matrix that is not packed: most of the time is reading b, so it is read once, in its own order.

    for each task (batch, columns):                                      product.py
        for each NC panels, whose sums stay in the nearest caches:       run_task
            for each DEPTH rows of b:                                    multiply
                for each BLOCK columns: sums += rows of a @ rows of b    microkernels/skinny.py
            y = epilogue(sums + the zero points' terms)                  hand_over

A row of ones below the rows of a gives the sums of b's columns.
"""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.gemm.cut import step_of
from dmlcpu.kernels.gemm.epilogue import REQUANTIZE, Epilogue, Tile
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, NR, ROW_STEP, TALLEST, Microkernel
from dmlcpu.kernels.gemm.microkernels.rows import add_product
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK, DEPTH, make_add_products, make_unfold
from dmlcpu.kernels.gemm.pack import Lhs, pack_rows
from dmlcpu.kernels.gemm.product import make_kernel
from dmlcpu.kernels.gemm.work import MOST_PANELS, SPACE, lhs_cells, lhs_of, origin_of, panels_of, space_of
from dmlcpu.kernels.gemm.zero_points import any_b_zero, load_a_zeros, load_bias, start
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import Strided, as_words
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.variants import specialized

ONES = np.uint32(0x01010101)
PASS = DEPTH // 4  # words of a row of a at a time

# Each variant replaces these names.
add_products, unfold = make_add_products(GENERIC), make_unfold(GENERIC)
prepare_columns, prepare_rows, epilogue = REQUANTIZE.steps().values()


class Columns(NamedTuple):
    """A range of columns whose sums are formed together."""

    first: int
    last: int
    blocks: int  # whole blocks of BLOCK; the remaining columns are among the last BLOCK columns of b
    acc: np.ndarray  # their sums for the rows of a and the row of ones; rows are step_of(NC) apart


@inlined
def run_task(number, part, has_rows, operands, terms, work, scratch):
    """Multiply all rows and a part of the columns of one product. has_rows: the rows are packed."""
    batch, column_part = number // work.column_parts, number % work.column_parts
    origin, space = origin_of(batch, work), record_at(scratch, space_of(part, work), SPACE)
    has_b_zero = any_b_zero(origin, operands, work)
    slot = lhs_of(part, work)
    lhs = Lhs(work.M, as_words(scratch, slot + TALLEST, np.uint32), as_words(scratch, slot, np.int64))
    acc = as_words(scratch, slot + lhs_cells(work.groups, work.M + 1), np.int32)
    if not has_rows:
        pack_rows(Strided(operands.a, origin.a, work.a.row, work.M), lhs, work.M + 1, work, has_b_zero)
        complete_rows(lhs.words, work)
    load_a_zeros(0, work.M, work.M, origin, operands, work, space.rows)
    prepare_rows(0, work.M, work.M, origin, terms, work, space.rows)
    first_block, last_block = share(column_part, work.column_parts, (work.N + BLOCK - 1) // BLOCK)
    end = min(work.N, last_block * BLOCK)
    for first in range(first_block * BLOCK, end, work.NC * NR):
        last = min(first + work.NC * NR, end)
        columns = Columns(first, last, (last - first) // BLOCK, acc)
        multiply(columns, lhs.words, origin, operands, work)
        hand_over(columns, lhs, has_b_zero, origin, operands, terms, work, space)


@device
def complete_rows(words, work):
    """Write a row of ones below packed rows, and zeros after all rows up to a whole PASS."""
    rows, groups = work.M, work.groups
    for group in range((groups + PASS - 1) // PASS * PASS):
        at = group // KC * (rows + 1) * ROW_STEP + group % KC
        left = min(max(work.K - 4 * group, 0), 4)
        words[at + rows * ROW_STEP] = ONES >> np.uint32(8 * (4 - left)) if left else 0
        if group >= groups:
            for row in range(rows):
                words[at + row * ROW_STEP] = 0


@device
def place_of(column, columns, work):
    """Return where in its row a column's accumulator is. Columns after the whole blocks end the last BLOCK."""
    behind = columns.first + columns.blocks * BLOCK
    return column - columns.first if column < behind else columns.blocks * BLOCK + column - (work.N - BLOCK)


@inlined
def multiply(columns, words, origin, operands, work):
    """Form the sums of some columns: all rows of a, and the row of ones, times all rows of b."""
    rows, step, whole, acc = work.M + 1, step_of(work.NC), columns.blocks, columns.acc
    for i in range(rows * step):
        acc[i] = 0
    has_rest = columns.first + whole * BLOCK < columns.last
    for k in range(0, work.K, DEPTH):
        word, depth = k // 4 // KC * rows * ROW_STEP + k // 4 % KC, min(DEPTH, work.K - k)
        # A loop of two iterations, because two calls would be compiled twice.
        for turn in range(1 + has_rest):
            column, blocks, at = (columns.first, whole, 0) if turn == 0 else (work.N - BLOCK, 1, whole * BLOCK)
            b = Strided(operands.b, origin.b + k * work.b.row + column, work.b.row, depth)
            add_products(b, blocks, work.b_sign_flip, words, word, Strided(acc, at, step, rows))
    for row in range(rows):
        for block in range(whole + has_rest):
            unfold(acc, row * step + block * BLOCK)


@inlined
def hand_over(columns, lhs, has_b_zero, origin, operands, terms, work, space):
    """Add the zero points' terms to the sums of some columns, and hand them to the epilogue, MOST_PANELS at a time."""
    acc, step, last = columns.acc, step_of(work.NC), panels_of(columns.last)
    for panel in range(columns.first // NR, last, MOST_PANELS):
        first, count = panel * NR, min(MOST_PANELS, last - panel) * NR
        for j in range(count):
            space.columns.sums[j] = acc[work.M * step + place_of(first + j, columns, work)]
        load_bias(first, count, as_words(space.columns.sums, 0, np.int64), origin, operands, work, space.columns)
        prepare_columns(first, count, origin, terms, work, space.columns)
        for j in range(0, count, NR):
            start(lhs, j, has_b_zero, work, space)
            place = place_of(first + j, columns, work)
            for row in range(work.M):
                add_product(space.acc, row * NR, np.int32(1), acc, row * step + place)
            bias = origin.y_bias + (first + j) * work.y_bias.column
            tile = Tile(work.M, j, min(NR, work.N - first - j), origin.y + (first + j) * work.y.column, bias)
            epilogue(space.acc, tile, terms.out, work, space)


def make_skinny(name: str, microkernel: Microkernel, using: Epilogue) -> Kernel:
    """Return the kernel that a microkernel for vectors and an epilogue make."""
    task = specialized(
        run_task, add_products=make_add_products(microkernel), unfold=make_unfold(microkernel), **using.steps()
    )
    return make_kernel(name, using, run_task=task)
