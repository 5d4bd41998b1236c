"""Packing: A's rows and B's columns become rows of int16, padded with zeros, with the sum of each beside it.

A row of the packed matrix runs along K, so that a product element is the dot product of two contiguous rows. int16 is
what the widening multiply-add of every vector unit takes (pmaddwd on x86, smlal on Arm); the sums are what zero points
need (see requantize.py).
"""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.runtime.jit import device, kernel

# Rows are packed so many at a time. The depth is padded to whole vectors, whatever their width.
ROWS = 32
DEPTH = 32


@device
def pack_rows(first, last, x, start, row_step, depth_step, depth, packed, sums):
    """Pack rows first, ..., last - 1 of one matrix. packed: (rows, padded depth) int16; sums: (rows,) int64."""
    if abs(depth_step) <= abs(row_step):
        for row in range(first, last):
            for k in range(depth):
                packed[row, k] = x[start + row * row_step + k * depth_step]
    else:  # neighbours in memory belong to different rows: read along them
        for k in range(depth):
            for row in range(first, last):
                packed[row, k] = x[start + row * row_step + k * depth_step]
    for row in range(first, last):
        for k in range(depth, packed.shape[1]):
            packed[row, k] = 0
        total = np.int64(0)
        for k in range(depth):
            total += packed[row, k]
        sums[row] = total


@kernel
def pack(part, parts, x, start, row_step, depth_step, grid, batches, rows, depth, packed, sums):
    """Pack a share of `batches` matrices of `rows` rows (A's rows, or B's columns) of length `depth`.

    x: int8 or uint8; grid: (2, d), the batches; packed: (batches, padded rows, padded depth) int16, in whole blocks of
    rows; sums: (batches, padded rows) int64.
    """
    padded = packed.shape[1]
    blocks = (padded + ROWS - 1) // ROWS
    for block in range(part * batches * blocks // parts, (part + 1) * batches * blocks // parts):
        batch = block // blocks
        first = block % blocks * ROWS
        last = min(first + ROWS, rows)
        pack_rows(first, last, x, start + offset(grid, 1, batch), row_step, depth_step, depth,
                  packed[batch], sums[batch])  # fmt: skip
        for row in range(max(first, last), min(first + ROWS, padded)):
            for k in range(packed.shape[2]):
                packed[batch, row, k] = 0
            sums[batch, row] = 0
