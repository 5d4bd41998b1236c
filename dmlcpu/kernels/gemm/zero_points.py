"""Zero points: a tile of sums starts with their terms, so that bytes are multiplied as they are.

Let a' = a - a_zero, b' = b - b_zero, and s the sum over k. Then

    s(a' b') = s(a b) - b_zero (s(a) - K a_zero) - a_zero s(b)
"""

import numpy as np

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.rows import add_product, multiply_row
from dmlcpu.runtime.jit import device


@device
def any_b_zero(origin, operands, work):
    """Return whether any zero point of b is not 0."""
    found = np.uint8(0)
    for j in range(work.N if work.b_zero.step else 1):
        found |= operands.b_zero[origin.b_zero + j * work.b_zero.step] ^ np.uint8(work.b_sign_flip)
    return found != 0


@device
def a_zero_of(row, origin, operands, work):
    """Return the zero point of a row of unsigned bytes."""
    return np.int64(operands.a_zero[origin.a_zero + row * work.a_zero.step] ^ np.uint8(work.a_sign_flip))


@device
def load_bias(first, count, sums, origin, operands, work, columns):
    """Fill bias and zero points of `count` columns from `first` on. sums: of these columns."""
    factor = -a_zero_of(0, origin, operands, work) if work.same_a_zero else np.int64(-1)
    for j in range(count):
        columns.bias[j] = np.int32(factor * sums[j])
    place, step, there = origin.b_zero + first * work.b_zero.step, work.b_zero.step, min(count, work.N - first)
    sign_flip = np.uint8(work.b_sign_flip)
    for j in range(there):
        columns.b_zero[j] = np.int32(np.int8(operands.b_zero[place + j * step] ^ sign_flip))
    for j in range(there, count):
        columns.b_zero[j] = 0


@device
def load_a_zeros(first, last, height, origin, operands, work, rows):
    """Fill a's zero points of `height` rows from `first` on; rows from `last` on repeat row last - 1."""
    for i in range(height):
        rows.a_zero[i] = a_zero_of(min(first + i, last - 1), origin, operands, work)


@device
def start(lhs, column, has_b_zero, work, space):
    """Start the accumulators of a tile. column: the tile's first column in the block."""
    for row in range(lhs.height):
        a_zero = space.rows.a_zero[row]
        factor = np.int32(1) if work.same_a_zero else np.int32(a_zero)
        multiply_row(space.columns.bias, column, factor, space.acc, row * NR)
        if has_b_zero:
            rest = np.int32(work.K * a_zero - lhs.sums[row])
            add_product(space.acc, row * NR, rest, space.columns.b_zero, column)


@device
def start_wide(lhs, column, column_sums, work, space):
    """Do what `start` does, in float64; the int32 accumulators of a chunk of K start with 0."""
    for row in range(lhs.height):
        a_zero = np.float64(space.rows.a_zero[row])
        rest = np.float64(lhs.sums[row] - work.K * space.rows.a_zero[row])
        for j in range(NR):
            b_zero, total = space.columns.b_zero[column + j], column_sums[column + j]
            space.wide[row, j] = -a_zero * np.float64(total) - np.float64(b_zero) * rest
            space.acc[row, j] = 0
