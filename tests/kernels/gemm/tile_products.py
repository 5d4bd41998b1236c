"""What every multiplier of tiles has to do, against NumPy."""

import numpy as np

from dmlcpu.kernels.gemm.microkernels.dot import KC, NR, ROW_STEP
from dmlcpu.runtime.memory import aligned_empty

LEFT, RIGHT = 16, NR  # where the operands begin in their arrays


def check_products(dot, rows, groups):
    """Compare what dot.make_dot describes; sums wrap, and what lies around the operands must not count."""
    rng = np.random.default_rng(rows)
    a = rng.integers(0, 256, (rows, 4 * groups), np.uint8)
    b = rng.integers(-128, 128, (4 * groups, NR), np.int8)
    if groups == KC:
        a[...], b[...] = 255, -128
    left = aligned_empty(LEFT + rows * ROW_STEP, np.uint32)
    left[...] = 0x01010101
    for row in range(rows):
        left[LEFT + row * ROW_STEP :][:groups] = a[row].view(np.uint32)
    right = aligned_empty(RIGHT + groups * NR, np.uint32)
    right[RIGHT:] = b.reshape(groups, 4, NR).swapaxes(1, 2).copy().view(np.uint32).reshape(-1)
    product = a.astype(np.int64) @ b.astype(np.int64)
    for first, step in (0, NR), (rows * NR, 0):  # what is in the tile, or one row for all
        cells = aligned_empty((rows + 1) * NR, np.int32)
        cells[...] = rng.integers(2**31 - 9, 2**31, cells.size)
        starts = cells[first:][: rows * NR if step else NR].reshape(-1, NR).astype(np.int64)
        dot(left, LEFT, right, RIGHT, groups, cells, first, step)
        found = cells[: rows * NR].reshape(rows, NR)
        np.testing.assert_array_equal(found, (product + starts).astype(np.int32))
