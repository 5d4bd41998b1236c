"""The integer products on any processor: dot products of int16 rows, in int32 for as long as it cannot wrap."""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.quantized_matmul.requantize import requantize_row
from dmlcpu.runtime.jit import device, kernel

# One tile of the product is held in registers, one block is requantized at once.
TILE_M, TILE_N = 2, 4
BLOCK_M, BLOCK_N = 32, 64
BLOCK = (TILE_M, TILE_N, BLOCK_M, BLOCK_N)
# 255 * 255 * 32768 < 2**31: so many products fit an int32.
SPLIT = 32768

# What the rows of the batch grid mean.
A, B, A_SCALE, A_ZERO, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO, Y = range(1, 10)


@device
def dot_tile(a, b, m, n, sums, i, j):
    """sums[i:i+2, j:j+4] = a[m:m+2] @ b[n:n+4].T. a, b: (rows, depth) int16; sums: int64."""
    for m_i in range(i, i + TILE_M):
        for n_j in range(j, j + TILE_N):
            sums[m_i, n_j] = 0
    for first in range(0, a.shape[1], SPLIT):
        last = min(first + SPLIT, a.shape[1])
        a0, a1 = a[m, first:last], a[m + 1, first:last]
        b0, b1, b2, b3 = b[n, first:last], b[n + 1, first:last], b[n + 2, first:last], b[n + 3, first:last]
        s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = np.int32(0)
        for k in range(last - first):
            x0, x1 = np.int32(a0[k]), np.int32(a1[k])
            y0, y1, y2, y3 = np.int32(b0[k]), np.int32(b1[k]), np.int32(b2[k]), np.int32(b3[k])
            s00 = np.int32(s00 + x0 * y0)
            s01 = np.int32(s01 + x0 * y1)
            s02 = np.int32(s02 + x0 * y2)
            s03 = np.int32(s03 + x0 * y3)
            s10 = np.int32(s10 + x1 * y0)
            s11 = np.int32(s11 + x1 * y1)
            s12 = np.int32(s12 + x1 * y2)
            s13 = np.int32(s13 + x1 * y3)
        sums[i, j] += s00
        sums[i, j + 1] += s01
        sums[i, j + 2] += s02
        sums[i, j + 3] += s03
        sums[i + 1, j] += s10
        sums[i + 1, j + 1] += s11
        sums[i + 1, j + 2] += s12
        sums[i + 1, j + 3] += s13


@device
def multiply_block(a, b, m, n, sums):
    """Fill sums[: rows, : columns] with the products of the rows of a from m on and of b from n on, in whole tiles."""
    for j in range(0, min(BLOCK_N, b.shape[0] - n), TILE_N):
        for i in range(0, min(BLOCK_M, a.shape[0] - m), TILE_M):
            dot_tile(a, b, m + i, n + j, sums, i, j)


@kernel
def dot_s16s16_2x4_generic(part, parts, a, a_sums, b, b_sums, grid, batches, M, N, K, a_scale, a_scale_step, a_zero,
                           a_zero_step, b_scale, b_scale_step, b_zero, b_zero_step, y_scale, y_scale_step, y_zero,
                           y_zero_step, lowest, highest, y, y_start, y_row, y_column, sums):  # fmt: skip
    """Do a share of a product of packed matrices, and requantize it.

    a: (batches of A, padded M, padded K) int16, b: (batches of B, padded N, padded K) int16; a_sums, b_sums: the
    sums of their rows, int64; grid: (10, d), the batches of the product with the strides of everything;
    *_scale: float32; *_zero: int32; y: uint8; sums: (parts, BLOCK_M, BLOCK_N) int64, scratch.
    """
    blocks_m = (M + BLOCK_M - 1) // BLOCK_M
    blocks_n = (N + BLOCK_N - 1) // BLOCK_N
    blocks = batches * blocks_m * blocks_n
    for block in range(part * blocks // parts, (part + 1) * blocks // parts):
        batch = block // (blocks_m * blocks_n)
        m = block // blocks_n % blocks_m * BLOCK_M
        n = block % blocks_n * BLOCK_N
        of_a, of_b = offset(grid, A, batch), offset(grid, B, batch)
        multiply_block(a[of_a], b[of_b], m, n, sums[part])
        columns = min(BLOCK_N, N - n)
        b_zeros = b_zero[offset(grid, B_ZERO, batch) + n * b_zero_step :]
        b_scales = b_scale[offset(grid, B_SCALE, batch) + n * b_scale_step :]
        for i in range(min(BLOCK_M, M - m)):
            row = m + i
            requantize_row(
                sums[part, i], columns, a_sums[of_a, row],
                np.int64(a_zero[offset(grid, A_ZERO, batch) + row * a_zero_step]), K, b_sums[of_b, n:],
                b_zeros, b_zero_step, a_scale[offset(grid, A_SCALE, batch) + row * a_scale_step],
                b_scales, b_scale_step, y_scale[offset(grid, Y_SCALE, batch) + row * y_scale_step],
                np.int32(y_zero[offset(grid, Y_ZERO, batch) + row * y_zero_step]), lowest, highest,
                y, y_start + offset(grid, Y, batch) + row * y_row + n * y_column, y_column,
            )  # fmt: skip
