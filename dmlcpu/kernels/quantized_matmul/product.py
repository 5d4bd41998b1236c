"""The product: tiles of exact sums from packed operands, requantized while they are in the nearest cache.

    for each unit of (batch, rows, columns), as long as there are any:
        for each block of columns, which stays in the second cache:  packed, unless it was packed before
            for each 12 rows of A (32 with AMX):                       packed into the first cache
                for each panel of 32 columns:
                    sums = what the zero points give
                    for each chunk of K: sums += rows @ panel          dots.py
                    y = requantized sums

With a' = a - a_zero and b' = b - b_zero, and s as the sum over k, what is wanted is

    s(a' b') = s(a b) - b_zero (s(a) - K a_zero) - a_zero s(b)
"""

import numpy as np

from dmlcpu.kernels.brief import section
from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.quantized_matmul.brief import (
    A_PANEL,
    A_SCALE,
    A_ZERO,
    A_ZEROS,
    B_SCALE,
    B_ZERO,
    HEAD,
    LEAST,
    LINES,
    MOST,
    PANELS,
    ROW_MULTIPLIERS,
    SUMS,
    WIDE,
    Y_SCALE,
    Y_ZERO,
    ZEROS,
    A,
    B,
    Y,
    groups_of,
    left_cells,
    panels_of,
    unpack,
)
from dmlcpu.kernels.quantized_matmul.pack import pack_panels, pack_rows
from dmlcpu.runtime import dots, tiles
from dmlcpu.runtime.dots import CHUNK, COLUMNS, ROW_STEP
from dmlcpu.runtime.intrinsics import as_words, prefetch, take_number
from dmlcpu.runtime.jit import Kernel, device, variant
from dmlcpu.runtime.panels import requantize, scale_row, start_row, subtract_product

# Up to this K every sum fits an int32 in the end, whatever wrapped on the way: 255 * 255 * 33025 < 2**31.
NARROW = 33_025

# What each variant has its own of: how tall its tiles are (the others have 4 rows and 1), what multiplies those of each
# height, and what comes before and after all products of a thread.
TALL, MIDDLE = dots.ROWS, 8
dot_tall = dot_middle = dot_4 = dot_1 = dots.make_dot(1, dots.GENERIC)


@device
def nothing():
    """Do nothing."""


begin = end = nothing


@device
def any_zero_point(zeros, step, count, flip):
    """Tell whether one of `count` zero points (bytes; step 0: one for all of them) stands for another number than 0."""
    found = np.uint8(0)
    for i in range(count if step else 1):
        found |= zeros[i] ^ np.uint8(flip)
    return found != 0


@device
def load_columns(first, last, columns, factor, sums, b_scale, b_scale_step, b_zero, b_zero_step, flip, starts, zeros,
                 scales):  # fmt: skip
    """Fill what is needed of each column of the panels first, ..., last - 1; see brief.py."""
    for j in range((last - first) * COLUMNS):
        starts[j] = np.int32(factor * sums[j])
        zeros[j] = 0
        scales[j] = 0
    for column in range(first * COLUMNS, min(columns, last * COLUMNS)):
        j = column - first * COLUMNS
        zeros[j] = np.int32(np.int8(b_zero[column * b_zero_step] ^ np.uint8(flip)))
        scales[j] = b_scale[column * b_scale_step]


@device
def load_rows(first, height, count, a_zero, a_step, flip, y_zero, y_step, lowest, highest, a_zeros, least, most,
              zeros):  # fmt: skip
    """Fill what is needed of each of `height` rows, of which there are `count`; see brief.py."""
    for row in range(height):
        a_zeros[row] = np.int64(a_zero[(first + row) * a_step] ^ np.uint8(flip)) if row < count else 0
    for row in range(count):
        byte = y_zero[(first + row) * y_step]
        zero = np.int64(np.int8(byte)) if lowest < 0 else np.int64(byte)
        least[row], most[row], zeros[row] = np.float32(lowest - zero), np.float32(highest - zero), byte


@device
def start_tile(height, depth, alike, a_zeros, a_sums, shifted, cells, starts, b_zeros, first):
    """Start every sum of the tile, cells[:], with what the zero points give. first: the panel's first column.

    starts: where in the cells the starts of columns lie; alike: they hold for all rows.
    """
    for row in range(height):
        factor = np.int32(1) if alike else np.int32(a_zeros[row])
        start_row(cells, row * COLUMNS, factor, starts + first)
        if shifted:
            total = np.int32(a_sums[row] - depth * a_zeros[row])
            subtract_product(cells, row * COLUMNS, total, b_zeros, first)


@device
def start_wide_tile(height, depth, a_zeros, a_sums, sums, b_zeros, tile, wide):
    """Do the same in float64, in which integers up to 2**53 are exact; the sums of a chunk start with 0."""
    for row in range(height):
        zero, total = np.float64(a_zeros[row]), np.float64(a_sums[row] - depth * a_zeros[row])
        for j in range(COLUMNS):
            wide[row * COLUMNS + j] = -zero * np.float64(sums[j]) - np.float64(b_zeros[j]) * total
            tile[row * COLUMNS + j] = 0


@device
def widen(height, tile, wide):
    """Move the sums of a chunk to the wide tile."""
    for cell in range(height * COLUMNS):
        wide[cell] += tile[cell]
        tile[cell] = 0


@device
def finish_tile(sums, count, multipliers, first, step, least, most, zeros, width, lines, y, place, y_row, y_column):
    """Requantize `count` rows of sums, and write the bytes of `width` columns."""
    if width == COLUMNS and y_column == 1:
        requantize(sums, count, multipliers, first, step, least, most, zeros, y, place, y_row)
        return
    requantize(sums, count, multipliers, first, step, least, most, zeros, lines, 0, COLUMNS)
    for row in range(count):
        for column in range(width):
            y[place + row * y_row + column * y_column] = lines[row * COLUMNS + column]


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

    mine = HEAD + part * share
    cells, wide = as_words(scratch, mine, np.int32), as_words(scratch, mine + WIDE, np.float64)
    a_zeros, zeros = scratch[mine + A_ZEROS :], as_words(scratch, mine + ZEROS, np.uint8)
    least, most = as_words(scratch, mine + LEAST, np.float32), as_words(scratch, mine + MOST, np.float32)
    row_multipliers = as_words(scratch, mine + ROW_MULTIPLIERS, np.float32)
    lines = as_words(scratch, mine + LINES, np.uint8)
    own_sums = scratch[mine + PANELS :]
    starts = 2 * (PANELS + block * COLUMNS)
    b_zeros = cells[starts + block * COLUMNS :]
    factors = as_words(scratch, mine + PANELS + 2 * block * COLUMNS, np.float32)
    left_at = mine + PANELS + block * A_PANEL
    own_at = left_at + kept * left_cells(groups, TALL)

    row_wise = a_scale_step != 0 or y_scale_step != 0
    left_of = -1  # the batch and row part whose left rows are packed
    begin()
    unit = take_number(scratch, 0)  # cores are not equally fast: each takes the next when it is done with one
    while unit < batches * row_parts * column_parts:
        batch, row_part = unit // (row_parts * column_parts), unit // column_parts % row_parts
        a_scales, a_zero_bytes = a_scale[offset(grid, A_SCALE, batch) :], a_zero[offset(grid, A_ZERO, batch) :]
        b_scales, b_zero_bytes = b_scale[offset(grid, B_SCALE, batch) :], b_zero[offset(grid, B_ZERO, batch) :]
        y_scales, y_zero_bytes = y_scale[offset(grid, Y_SCALE, batch) :], y_zero[offset(grid, Y_ZERO, batch) :]
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
                words, sums = as_words(packed, here * groups * COLUMNS // 2, np.uint32), packed_sums[here * COLUMNS :]
            else:
                words, sums = as_words(scratch, own_at, np.uint32), own_sums
                pack_panels(b, b_start + offset(grid, B, batch), b_depth, b_column, first, last, N, K, b_flip,
                            words, sums)  # fmt: skip
            load_columns(first, last, N, start_factor, sums, b_scales, b_scale_step, b_zero_bytes, b_zero_step, b_flip,
                         cells[starts:], b_zeros, factors)  # fmt: skip
            if not row_wise:  # scales become multipliers, once for all rows
                for j in range(0, (last - first) * COLUMNS, COLUMNS):
                    scale_row(factors, j, a_scales[0], y_scales[0], factors, j)
            for row in range(first_row, last_row, TALL):
                count = min(TALL, last_row - row)
                height = TALL if count > MIDDLE else MIDDLE if count > 4 else 4 if count > 1 else 1
                slot = left_at + (row - first_row) // TALL % kept * left_cells(groups, TALL)
                a_sums, left = scratch[slot : slot + SUMS], as_words(scratch, slot + SUMS, np.uint32)
                if left_of != unit // column_parts or last_row - first_row > kept * TALL:
                    pack_rows(a, a_first + row * a_row, a_row, a_depth, count, height, K, a_flip,
                              left, TALL, a_sums, shifted)  # fmt: skip
                load_rows(row, height, count, a_zero_bytes, a_zero_step, a_flip, y_zero_bytes, y_zero_step,
                          lowest, highest, a_zeros, least, most, zeros)  # fmt: skip
                for panel in range(first, last):
                    j = (panel - first) * COLUMNS
                    place = y_first + row * y_row + panel * COLUMNS * y_column
                    for i in range(count):
                        prefetch(y, place + i * y_row)  # lies far from the row before: comes while sums are formed
                    start, step = 0, COLUMNS  # of the sums: what is in the tile, or one row for all
                    if K > NARROW:
                        start_wide_tile(height, K, a_zeros, a_sums, sums[j:], b_zeros[j:], cells, wide)
                    elif shifted or not alike or groups == 0:
                        start_tile(height, K, alike, a_zeros, a_sums, shifted, cells, starts, b_zeros, j)
                    else:
                        start, step = starts + j, 0
                    for chunk in range(0, groups, CHUNK):
                        depth = min(CHUNK, groups - chunk)
                        from_left, from_right = chunk // CHUNK * TALL * ROW_STEP, j * groups + chunk * COLUMNS
                        if height == TALL:
                            dot_tall(left, from_left, words, from_right, depth, cells, start, step)
                        elif height == MIDDLE:
                            dot_middle(left, from_left, words, from_right, depth, cells, start, step)
                        elif height == 4:
                            dot_4(left, from_left, words, from_right, depth, cells, start, step)
                        else:
                            dot_1(left, from_left, words, from_right, depth, cells, start, step)
                        start, step = 0, COLUMNS
                        if K > NARROW:
                            widen(height, cells, wide)
                    multipliers, at, row_step = factors, j, 0
                    if row_wise:
                        multipliers, at, row_step = row_multipliers, 0, COLUMNS
                        for i in range(count):
                            scale_row(factors, j, a_scales[(row + i) * a_scale_step],
                                      y_scales[(row + i) * y_scale_step], row_multipliers, i * COLUMNS)  # fmt: skip
                    width = min(COLUMNS, N - panel * COLUMNS)
                    if K > NARROW:
                        finish_tile(wide, count, multipliers, at, row_step, least, most, zeros, width, lines, y, place,
                                    y_row, y_column)  # fmt: skip
                    else:
                        finish_tile(cells, count, multipliers, at, row_step, least, most, zeros, width, lines, y, place,
                                    y_row, y_column)  # fmt: skip
            left_of = unit // column_parts
        unit = take_number(scratch, 0)
    end()


def _with(multiplier: dots.Multiplier) -> Kernel:
    """Return the kernel of an instruction set for vectors."""
    rows, columns, depth = multiplier.block
    heights = {"dot_tall": TALL, "dot_middle": MIDDLE, "dot_4": 4, "dot_1": 1}
    multipliers = {name: dots.make_dot(height, multiplier) for name, height in heights.items()}
    return variant(product, f"dot_u8s8_{rows}x{columns}x{depth}_{multiplier.name}", **multipliers)


generic, avx2 = _with(dots.GENERIC), _with(dots.AVX2)
avxvnni, avx512vnni = _with(dots.AVXVNNI), _with(dots.AVX512VNNI)
amx = variant(
    product,
    "dot_u8s8_32x32x64_amx",
    TALL=tiles.ROWS,
    MIDDLE=tiles.TILE_ROWS,
    dot_tall=tiles.make_tile_dot(tiles.ROWS),
    dot_middle=tiles.make_tile_dot(tiles.TILE_ROWS),
    dot_4=dots.make_dot(4, dots.AVX512VNNI),
    dot_1=dots.make_dot(1, dots.AVX512VNNI),
    begin=tiles.configure_tiles,
    end=tiles.release_tiles,
)
