"""The product: tiles of exact sums from packed operands, requantized while they are in the nearest cache.

    for each unit of (batch, rows, columns), as long as there are any:
        for each block of columns, which stays in the second cache:  packed, unless it was packed before
            for each 12 rows of A (32 with AMX):                     packed
                for each panel of 32 columns:
                    sums = what the zero points give
                    for each chunk of K: sums += rows @ panel        microkernels/
                    y = requantized sums

What sums start with and what becomes of them is in requantize.py.
"""

import numpy as np

from dmlcpu.kernels.brief import section
from dmlcpu.kernels.gemm.epilogue import (
    any_zero_point,
    finish_tile,
    load_columns,
    load_rows,
    start_tile,
    start_wide_tile,
    widen,
)
from dmlcpu.kernels.gemm.microkernels import amx as tiles, x86
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, MR, NR, ROW_STEP, Microkernel, make_dot
from dmlcpu.kernels.gemm.pack import pack_panels, pack_rows
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
    panels_of,
    parameters_of,
    share_of,
    unpack,
)
from dmlcpu.kernels.grid import offset
from dmlcpu.runtime.intrinsics import as_words, fetch_add, prefetch
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.variants import variant

# What each variant has its own of: how tall its tiles are (the others have 4 rows and 1), what multiplies those of each
# height, and what comes before and after all products of a thread.
TALL, MIDDLE = MR, 8
dot_tall = dot_middle = dot_4 = dot_1 = make_dot(1, GENERIC)


@device
def nothing():
    """Do nothing."""


begin = end = nothing


def product(part, parts, a, b, packed, packed_sums, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, y, brief,
            scratch):  # fmt: skip
    """Do units of a product until none is left; scratch[0] counts those that have been taken, and starts with 0.

    a, b, y: bytes; packed, packed_sums: int64, b's panels and the sums of its columns, if it is packed; *_scale:
    float32; *_zero: bytes; brief, scratch: see brief.py.
    """
    (M, N, K, batches, row_parts, column_parts, block, share, kept, a_start, a_row, a_depth, a_flip, b_start, b_depth,
     b_column, b_flip, b_packed, a_scale_step, a_zero_step, b_scale_step, b_zero_step, y_scale_step, y_zero_step,
     lowest, highest, y_start, y_row, y_column) = unpack(brief)  # fmt: skip
    grid = section(brief, 1)
    groups, panels, row_tiles = groups_of(K), panels_of(N), (M + TALL - 1) // TALL

    (cells, wide, a_zeros, zeros, least, most, row_multipliers, lines, own_sums, starts, b_zeros,
     factors) = share_of(scratch, part, share, block)  # fmt: skip
    left_at = HEAD + part * share + PANELS + block * A_PANEL
    own_at = left_at + kept * left_cells(groups, TALL)

    starts_at = 2 * (PANELS + block * NR)
    row_wise = a_scale_step != 0 or y_scale_step != 0
    left_of = -1  # the batch and row part whose left rows are packed
    begin()
    unit = fetch_add(scratch, 0)  # cores are not equally fast: each takes the next when it is done with one
    while unit < batches * row_parts * column_parts:
        batch, row_part = unit // (row_parts * column_parts), unit // column_parts % row_parts
        a_scales, a_zero_bytes, b_scales, b_zero_bytes, y_scales, y_zero_bytes = parameters_of(
            grid, batch, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero
        )
        a_first, y_first = a_start + offset(grid, A, batch), y_start + offset(grid, Y, batch)
        first_row = row_part * row_tiles // row_parts * TALL
        last_row = min(M, (row_part + 1) * row_tiles // row_parts * TALL)
        last_panel = (unit % column_parts + 1) * panels // column_parts
        shifted = any_zero_point(b_zero_bytes, b_zero_step, N, b_flip)
        # If all rows have one zero point, so has what their sums start with: it is worked out once for each column.
        alike = a_zero_step == 0
        start_factor = -np.int64(a_zero_bytes[0] ^ np.uint8(a_flip)) if alike else -1
        for first in range(unit % column_parts * panels // column_parts, last_panel, block):
            last = min(first + block, last_panel)
            if b_packed:
                here = offset(grid, B, batch) * panels + first
                words, sums = as_words(packed, here * groups * NR // 2, np.uint32), packed_sums[here * NR :]
            else:
                words, sums = as_words(scratch, own_at, np.uint32), own_sums
                pack_panels(b, b_start + offset(grid, B, batch), b_depth, b_column, first, last, N, K, b_flip,
                            words, sums)  # fmt: skip
            load_columns(first, last, N, start_factor, sums, not row_wise, a_scales, b_scales, b_scale_step, y_scales,
                         b_zero_bytes, b_zero_step, b_flip, starts, b_zeros, factors)  # fmt: skip
            for row in range(first_row, last_row, TALL):
                count = min(TALL, last_row - row)
                height = TALL if count > MIDDLE else MIDDLE if count > 4 else 4 if count > 1 else 1
                slot = left_at + (row - first_row) // TALL % kept * left_cells(groups, TALL)
                a_sums, left = scratch[slot : slot + SUMS], as_words(scratch, slot + SUMS, np.uint32)
                if left_of != unit // column_parts or last_row - first_row > kept * TALL:
                    pack_rows(a, a_first + row * a_row, a_row, a_depth, count, height, K, a_flip,
                              left, TALL, a_sums, shifted)  # fmt: skip
                if row == first_row or not alike or y_zero_step != 0:
                    load_rows(row, last_row, TALL, a_zero_bytes, a_zero_step, a_flip, y_zero_bytes, y_zero_step,
                              lowest, highest, a_zeros, least, most, zeros)  # fmt: skip
                for panel in range(first, last):
                    j = (panel - first) * NR
                    place = y_first + row * y_row + panel * NR * y_column
                    for i in range(count):
                        prefetch(y, place + i * y_row)  # lies far from the row before: comes while sums are formed
                    start, step = 0, NR  # of the sums: what is in the tile, or one row for all
                    if K > NARROW:
                        start_wide_tile(height, K, a_zeros, a_sums, sums[j:], b_zeros[j:], cells, wide)
                    elif shifted or not alike or groups == 0:
                        start_tile(height, K, alike, a_zeros, a_sums, shifted, cells, starts_at, b_zeros, j)
                    else:
                        start, step = starts_at + j, 0
                    for chunk in range(0, groups, KC):
                        depth = min(KC, groups - chunk)
                        from_left, from_right = chunk // KC * TALL * ROW_STEP, j * groups + chunk * NR
                        if height == TALL:
                            dot_tall(left, from_left, words, from_right, depth, cells, start, step, cells)
                        elif height == MIDDLE:
                            dot_middle(left, from_left, words, from_right, depth, cells, start, step, cells)
                        elif height == 4:
                            dot_4(left, from_left, words, from_right, depth, cells, start, step, cells)
                        else:
                            dot_1(left, from_left, words, from_right, depth, cells, start, step, cells)
                        start, step = 0, NR
                        if K > NARROW:
                            widen(height, cells, wide)
                    width = min(NR, N - panel * NR)
                    row_a_scales, row_y_scales = a_scales[row * a_scale_step :], y_scales[row * y_scale_step :]
                    if K > NARROW:
                        finish_tile(wide, count, not row_wise, factors, j, row_multipliers, row_a_scales, a_scale_step,
                                    row_y_scales, y_scale_step, least, most, zeros, width, lines, y, place, y_row,
                                    y_column)  # fmt: skip
                    else:
                        finish_tile(cells, count, not row_wise, factors, j, row_multipliers, row_a_scales, a_scale_step,
                                    row_y_scales, y_scale_step, least, most, zeros, width, lines, y, place, y_row,
                                    y_column)  # fmt: skip
            left_of = unit // column_parts
        unit = fetch_add(scratch, 0)
    end()


def make_product(microkernel: Microkernel) -> Kernel:
    """Return the product of a vector unit."""
    rows, columns, depth = microkernel.block
    heights = {"dot_tall": TALL, "dot_middle": MIDDLE, "dot_4": 4, "dot_1": 1}
    multipliers = {name: make_dot(height, microkernel) for name, height in heights.items()}
    return variant(product, f"dot_u8s8_{rows}x{columns}x{depth}_{microkernel.name}", **multipliers)


amx = variant(
    product,
    "dot_u8s8_32x32x64_amx",
    TALL=tiles.MR,
    MIDDLE=tiles.TILE_ROWS,
    dot_tall=tiles.make_tile_dot(tiles.MR),
    dot_middle=tiles.make_tile_dot(tiles.TILE_ROWS),
    dot_4=make_dot(4, x86.AVX512VNNI),
    dot_1=make_dot(1, x86.AVX512VNNI),
    begin=tiles.configure_tiles,
    end=tiles.release_tiles,
)
