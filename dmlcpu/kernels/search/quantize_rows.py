"""Rows of float32 become rows of int8, each with its own scale: value = scale * code. Bytes are also squared."""

import numpy as np

from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import LINE_CELLS, record, record_at

WORK = record(rows=np.int64, depth=np.int64)
SQUARES_WORK = record(rows=np.int64, depth=np.int64, sign=np.int64)

MAGNITUDE = np.uint32(0x7FFFFFFF)  # the bits of a float without its sign, which are ordered like absolute values
TOO_GREAT = np.float32(1e16)  # below it, the sum of 16,384 squares is finite
TOO_GREAT_BITS = TOO_GREAT.view(np.uint32)
HIGHEST = np.float32(127)
LEAST_SCALE = np.float32(2**-126)  # that of a row of zeros, so that nothing is divided by zero
ROUND = np.float32(12582912)  # 1.5 * 2**23: adding it, and subtracting it again, rounds half to even


@device
def greatest_bits(bits):
    """Return the bits of the greatest absolute value of a row; NaN and infinity are greater than all numbers."""
    most = np.uint32(0)
    for i in range(bits.size):
        most = max(most, np.uint32(bits[i] & MAGNITUDE))
    return most


@device
def quantize_row(row, scale, codes):
    """Write round(row / scale), half to even; return the sum of the codes' squares."""
    total = np.int32(0)
    for i in range(row.size):
        rounded = np.int32(row[i] / scale + ROUND - ROUND)
        codes[i] = np.int8(rounded)
        total = np.int32(total + np.int32(rounded * rounded))
    return total


@kernel
def quantize_rows(part, parts, x, codes, scales, squares, bad, works):
    """Quantize a share of the rows.

    x: float32, codes: int8, both (rows, depth) and flat; scales: float32, squares: int32, one for each row; bad: for
    each share the first row with NaN, infinity or a number that is too great, else -1.
    """
    work = record_at(works, 0, WORK)
    depth = work.depth
    first, last = share(part, parts, work.rows)
    bad[part * LINE_CELLS] = -1
    for row in range(first, last):
        place = row * depth
        most = greatest_bits(as_words(x, place, np.uint32)[:depth])
        if most > TOO_GREAT_BITS:
            bad[part * LINE_CELLS] = row
            return
        as_words(scales, row, np.uint32)[0] = most
        scale = max(np.float32(scales[row] / HIGHEST), LEAST_SCALE)
        scales[row] = scale
        squares[row] = quantize_row(x[place : place + depth], scale, codes[place : place + depth])


@kernel
def byte_squares(part, parts, x, squares, works):
    """Write the sum of the squares of each row of a share. x: uint8 (rows, depth), but flat; squares: int32."""
    work = record_at(works, 0, SQUARES_WORK)
    depth, sign = work.depth, np.int32(work.sign)
    first, last = share(part, parts, work.rows)
    for row in range(first, last):
        line, total = x[row * depth : (row + 1) * depth], np.int32(0)
        for i in range(depth):
            value = np.int32(np.int32(line[i] ^ np.uint8(sign)) - sign)
            total = np.int32(total + np.int32(value * value))
        squares[row] = total
