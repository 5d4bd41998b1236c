"""Few rows times a matrix that is not packed: what takes time is to read B, so that happens once and in its own order.

    for each unit of (batch, columns), as long as there are any:
        for each block of columns, as wide as sums of all rows stay in the nearest caches:
            for each 16 rows of B:
                for each 64 columns: sums += rows of A @ rows of B        microkernels/skinny.py
            y = requantized sums

Rows of A have one more below them, all ones: it gives the sums of B's columns.
"""

import numpy as np

from dmlcpu.kernels.brief import section
from dmlcpu.kernels.gemm.epilogue import (
    any_zero_point,
    finish_tile,
    load_columns,
    load_rows,
    start_tile,
)
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, NR, ROW_STEP, Microkernel
from dmlcpu.kernels.gemm.microkernels.rows import add_row
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK as BLOCK, DEPTH, make_add_products, make_unfold
from dmlcpu.kernels.gemm.pack import pack_rows
from dmlcpu.kernels.gemm.work import (
    A_PANEL,
    HEAD,
    NARROW,
    PANELS,
    SUMS,
    A,
    B,
    Y,
    groups_of,
    left_cells,
    parameters_of,
    share_of,
    sums_step,
    unpack,
)
from dmlcpu.kernels.grid import offset
from dmlcpu.runtime.intrinsics import as_words, fetch_add
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.variants import variant

MOST_ROWS = 16  # with more, packing B pays
ONES = np.uint32(0x01010101)
PASS = DEPTH // 4  # words of a left row at a time

add_products, unfold = make_add_products(GENERIC), make_unfold(GENERIC)  # each variant has its own


@device
def complete_rows(words, rows, depth):
    """Write a row of ones below packed rows, and zeros behind all of them as far as they are read."""
    groups = groups_of(depth)
    for group in range((groups + PASS - 1) // PASS * PASS):
        at = group // KC * (rows + 1) * ROW_STEP + group % KC
        left = min(max(depth - 4 * group, 0), 4)
        words[at + rows * ROW_STEP] = ONES >> np.uint32(8 * (4 - left)) if left else 0
        if group >= groups:
            for row in range(rows):
                words[at + row * ROW_STEP] = 0


def skinny(part, parts, a, b, packed, packed_sums, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, y, brief,
           scratch):  # fmt: skip
    """Do units of a product as `product` does, for what it `supports`; see there."""
    (M, N, K, batches, _, column_parts, block, share, _, a_start, a_row, a_depth, a_flip, b_start, b_depth, _, b_flip,
     _, a_scale_step, a_zero_step, b_scale_step, b_zero_step, y_scale_step, y_zero_step, lowest, highest, y_start,
     y_row, y_column) = unpack(brief)  # fmt: skip
    grid = section(brief, 1)
    groups, pairs = groups_of(K), (N + BLOCK - 1) // BLOCK

    (cells, _, a_zeros, zeros, least, most, row_multipliers, lines, own_sums, starts, b_zeros,
     factors) = share_of(scratch, part, share, block)  # fmt: skip
    left_at = PANELS + block * A_PANEL  # of the share
    slot = HEAD + part * share + left_at
    a_sums, left = scratch[slot : slot + SUMS], as_words(scratch, slot + SUMS, np.uint32)
    sums, step = 2 * (left_at + left_cells(groups, M + 1)), sums_step(block)

    row_wise, alike = a_scale_step != 0 or y_scale_step != 0, a_zero_step == 0
    left_of = -1  # the batch whose left rows are packed
    unit = fetch_add(scratch, 0)
    while unit < batches * column_parts:
        batch = unit // column_parts
        a_scales, a_zero_bytes, b_scales, b_zero_bytes, y_scales, y_zero_bytes = parameters_of(
            grid, batch, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero
        )
        b_first, y_first = b_start + offset(grid, B, batch), y_start + offset(grid, Y, batch)
        shifted = any_zero_point(b_zero_bytes, b_zero_step, N, b_flip)
        start_factor = -np.int64(a_zero_bytes[0] ^ np.uint8(a_flip)) if alike else -1
        if left_of != batch:
            pack_rows(a, a_start + offset(grid, A, batch), a_row, a_depth, M, M, K, a_flip, left, M + 1, a_sums,
                      shifted)  # fmt: skip
            complete_rows(left, M, K)
            left_of = batch
        load_rows(0, M, M, a_zero_bytes, a_zero_step, a_flip, y_zero_bytes, y_zero_step, lowest, highest, a_zeros,
                  least, most, zeros)  # fmt: skip
        last_column = min(N, (unit % column_parts + 1) * pairs // column_parts * BLOCK)
        for column in range(unit % column_parts * pairs // column_parts * BLOCK, last_column, block * NR):
            end = min(column + block * NR, last_column)
            whole = (end - column) // BLOCK
            behind = column + whole * BLOCK  # what lies behind is found among the last 64 columns
            for row in range(M + 1):
                at = sums + row * step
                cells[at : at + block * NR] = 0
            for k in range(0, K, DEPTH):
                word = k // 4 // KC * (M + 1) * ROW_STEP + k // 4 % KC
                depth = min(DEPTH, K - k)
                add_products(b, b_first + k * b_depth + column, b_depth, depth, whole, b_flip, left, word, M + 1, cells,
                             sums, step)  # fmt: skip
                if behind < end:
                    add_products(b, b_first + k * b_depth + N - BLOCK, b_depth, depth, 1, b_flip, left, word, M + 1,
                                 cells, sums + whole * BLOCK, step)  # fmt: skip
            for row in range(M + 1):
                for first in range(0, end - column, BLOCK):
                    unfold(cells, sums + row * step + first)
            first, last = column // NR, (end + NR - 1) // NR
            for j in range((last - first) * NR):
                at = j if column + j < behind else whole * BLOCK + column + j - (N - BLOCK)
                own_sums[j] = cells[sums + M * step + at]
            load_columns(first, last, N, start_factor, own_sums, not row_wise, a_scales, b_scales, b_scale_step,
                         y_scales, b_zero_bytes, b_zero_step, b_flip, starts, b_zeros, factors)  # fmt: skip
            for panel in range(first, last):
                j = (panel - first) * NR
                at = j if column + j < behind else whole * BLOCK + column + j - (N - BLOCK)
                start_tile(M, K, alike, a_zeros, a_sums, shifted, cells, 2 * (PANELS + block * NR), b_zeros, j)
                for row in range(M):
                    add_row(cells, row * NR, cells, sums + row * step + at)
                width = min(NR, N - panel * NR)
                place = y_first + panel * NR * y_column
                finish_tile(cells, M, not row_wise, factors, j, row_multipliers, a_scales, a_scale_step, y_scales,
                            y_scale_step, least, most, zeros, width, lines, y, place, y_row, y_column)  # fmt: skip
        unit = fetch_add(scratch, 0)


def supports(rows: int, columns: int, depth: int, column_step: int) -> bool:
    """Return whether a product can be done this way: sums fit int32, and 64 bytes of b lie side by side."""
    return rows <= MOST_ROWS and columns >= BLOCK and 0 < depth <= NARROW and column_step == 1


def make_skinny(microkernel: Microkernel) -> Kernel:
    """Return the product of few rows of a vector unit."""
    name = f"skinny_u8s8_{4 * microkernel.lanes}x{DEPTH}_{microkernel.name}"
    return variant(skinny, name, add_products=make_add_products(microkernel), unfold=make_unfold(microkernel))
