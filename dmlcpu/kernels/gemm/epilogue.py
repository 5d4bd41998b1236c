"""What a tile of sums starts with, and what becomes of it: zero points before the product, scales after it.

With a' = a - a_zero and b' = b - b_zero, and s as the sum over k, what is wanted is

    s(a' b') = s(a b) - b_zero (s(a) - K a_zero) - a_zero s(b)
"""

import numpy as np

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.rows import requantize, scale_int_row, scale_row, subtract_product
from dmlcpu.runtime.jit import device


@device
def any_zero_point(zeros, step, count, flip):
    """Return whether one of `count` zero points (bytes; step 0: one for all) stands for another number than 0."""
    found = np.uint8(0)
    for i in range(count if step else 1):
        found |= zeros[i] ^ np.uint8(flip)
    return found != 0


@device
def load_columns(first, last, columns, factor, sums, same_scales, a_scale, b_scale, b_scale_step, y_scale, b_zero,
                 b_zero_step, flip, starts, zeros, scales):  # fmt: skip
    """Fill what is needed of each column of the panels first, ..., last - 1; see brief.py.

    starts: `factor` times the sums of the columns; the factor is -a_zero if all rows have that zero point, else -1.
    same_scales: all rows have the same, so the scales of columns become multipliers here, once for all.
    """
    for j in range((last - first) * NR):
        starts[j] = np.int32(factor * sums[j])
        zeros[j] = 0
        scales[j] = 0
    for column in range(first * NR, min(columns, last * NR)):
        j = column - first * NR
        zeros[j] = np.int32(np.int8(b_zero[column * b_zero_step] ^ np.uint8(flip)))
        scales[j] = b_scale[column * b_scale_step]
    if same_scales:
        for j in range(0, (last - first) * NR, NR):
            scale_row(scales, j, a_scale[0], y_scale[0], scales, j)


@device
def load_rows(first, rows, height, a_zero, a_step, flip, y_zero, y_step, lowest, highest, a_zeros, least, most,
              zeros):  # fmt: skip
    """Fill what is needed of each row of a tile of so many that begins with row `first` of `rows`; see brief.py.

    Rows beyond the last get what that has: they are worked on, but not written.
    """
    for i in range(height):
        row = min(first + i, rows - 1)
        byte = y_zero[row * y_step]
        zero = np.int64(np.int8(byte)) if lowest < 0 else np.int64(byte)
        least[i], most[i], zeros[i] = np.float32(lowest - zero), np.float32(highest - zero), byte
        a_zeros[i] = np.int64(a_zero[row * a_step] ^ np.uint8(flip))


@device
def start_tile(height, depth, alike, a_zeros, a_sums, shifted, cells, starts, b_zeros, first):
    """Start every sum of the tile, cells[:], with what the zero points give. first: the panel's first column.

    starts: where in the cells those of `load_columns` lie; alike: they hold for all rows, which have one zero point.
    """
    for row in range(height):
        factor = np.int32(1) if alike else np.int32(a_zeros[row])
        scale_int_row(cells, row * NR, factor, cells, starts + first)
        if shifted:
            total = np.int32(a_sums[row] - depth * a_zeros[row])
            subtract_product(cells, row * NR, total, b_zeros, first)


@device
def start_wide_tile(height, depth, a_zeros, a_sums, sums, b_zeros, tile, wide):
    """Do the same in float64, in which integers up to 2**53 are exact; the sums of a chunk start with 0."""
    for row in range(height):
        zero, total = np.float64(a_zeros[row]), np.float64(a_sums[row] - depth * a_zeros[row])
        for j in range(NR):
            wide[row * NR + j] = -zero * np.float64(sums[j]) - np.float64(b_zeros[j]) * total
            tile[row * NR + j] = 0


@device
def widen(height, tile, wide):
    """Move the sums of a chunk to the wide tile."""
    for cell in range(height * NR):
        wide[cell] += tile[cell]
        tile[cell] = 0


@device
def finish_tile(sums, count, same_scales, factors, first, row_multipliers, a_scales, a_step, y_scales, y_step, least,
                most, zeros, width, lines, y, place, y_row, y_column):  # fmt: skip
    """Requantize `count` rows of sums, and write the bytes of `width` columns.

    same_scales: factors[first:] are the multipliers of all rows; else they are the scales of b.
    """
    if same_scales:
        multipliers, at, step = factors, first, 0
    else:
        multipliers, at, step = row_multipliers, 0, NR
        for row in range(count):
            scale_row(factors, first, a_scales[row * a_step], y_scales[row * y_step], row_multipliers, row * NR)
    if width == NR and y_column == 1:
        requantize(sums, count, multipliers, at, step, least, most, zeros, y, place, y_row)
        return
    requantize(sums, count, multipliers, at, step, least, most, zeros, lines, 0, NR)
    for row in range(count):
        for column in range(width):
            y[place + row * y_row + column * y_column] = lines[row * NR + column]
