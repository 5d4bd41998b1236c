"""Products with rows of bytes in memory order, by every microkernel that this machine can run, against NumPy."""

import numpy as np
import pytest
from numba import njit
from tile_products import microkernels

from dmlcpu.kernels.gemm.microkernels import skinny
from dmlcpu.kernels.gemm.microkernels.microkernel import ROW_STEP
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK, DEPTH
from dmlcpu.runtime.intrinsics import Strided


@pytest.fixture(scope="module", params=microkernels(is_skinny=True), ids=lambda microkernel: microkernel.unit.name)
def add_and_unfold(request):
    add, unfold = skinny.make_add_products(request.param), skinny.make_unfold(request.param)

    @njit
    def both(b, blocks, flip, a, first, acc):
        add(b, blocks, flip, a, first, acc)
        for row in range(acc.count):
            for block in range(blocks):
                unfold(acc.array, acc.first + row * acc.step + block * BLOCK)

    return both


def product(add_and_unfold, a, b, dtype):
    """Return what is added to accumulators for rows of a and the row of ones, of columns 4, ... of signed b."""
    depth, columns, rows = len(b), b.shape[1] - 7, len(a) + 1
    padded = np.zeros((rows, DEPTH), np.uint8)  # zero where b has no more rows
    padded[:-1, :depth], padded[-1, :depth] = a, 1
    lhs = np.full(3 + rows * ROW_STEP, 0x01010101, np.uint32)
    for row in range(rows):
        lhs[3 + row * ROW_STEP :][: DEPTH // 4] = padded[row].view(np.uint32)
    flip = 0x80 if dtype == np.uint8 else 0
    step = columns + 5
    acc = np.full(2 + rows * step, 7, np.int32)
    for row in range(rows):
        acc[2 + row * step :][:columns] = 0
    b_rows = Strided(b.view(np.uint8).ravel() ^ np.uint8(flip), 4, columns + 7, depth)
    add_and_unfold(b_rows, columns // BLOCK, flip, lhs, 3, Strided(acc, 2, step, rows))
    assert acc[:2].tolist() == [7, 7]
    assert (acc[2:].reshape(rows, step)[:, columns:] == 7).all()
    return acc[2:].reshape(rows, step)[:, :columns]


def expected(a, b):
    return np.vstack([a, np.ones_like(a[:1])]).astype(int) @ b[:, 4:-3].astype(int)


@pytest.mark.parametrize("most", [64, 128])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("rows", "depth", "blocks"), [(1, 16, 1), (2, 16, 3), (16, 1, 2), (2, 7, 1), (3, 8, 1), (1, 15, 2)]
)
def test_products_are_added_to_the_accumulators(add_and_unfold, dtype, rows, depth, blocks, most):
    rng = np.random.default_rng(depth)
    b = rng.integers(-most, most, (depth, blocks * BLOCK + 7)).astype(np.int8)
    b[0, :9], b[-1, -9:] = -most, most - 1
    a = rng.integers(0, 256, (rows, depth)).astype(np.uint8)
    np.testing.assert_array_equal(product(add_and_unfold, a, b, dtype), expected(a, b))


@pytest.mark.parametrize(
    "pair", [(64, 64), (-64, -64), (127, 1), (-128, 0), (127, -128), (65, 64), (-128, -1), (-65, -64)]
)
@pytest.mark.parametrize("row", [0, 2, 4, 14])
@pytest.mark.parametrize("column", [0, 31, 32, 100])
def test_products_of_pairs_that_nearly_fit_16_bits(add_and_unfold, pair, row, column):
    """One pair of the greatest sum that 16 bits hold, or beyond, among bytes that fit."""
    b = np.random.default_rng(row).integers(-64, 64, (DEPTH, 2 * BLOCK + 7)).astype(np.int8)
    b[row : row + 2, 4 + column] = pair
    a = np.full((2, DEPTH), 255, np.uint8)
    np.testing.assert_array_equal(product(add_and_unfold, a, b, np.int8), expected(a, b))


def test_accumulators_wrap(add_and_unfold):
    b, lhs = np.full(DEPTH * BLOCK, 255, np.uint8), np.full(2 * ROW_STEP, 0xFFFFFFFF, np.uint32)
    lhs[ROW_STEP:] = 0x01010101
    acc = np.full(2 * BLOCK, -(2**31) + 5, np.int32)  # alike, so their order does not matter
    add_and_unfold(Strided(b, 0, BLOCK, DEPTH), 1, 0, lhs, 0, Strided(acc, 0, BLOCK, 2))
    assert acc.tolist() == [2**31 + 5 - DEPTH * 255] * BLOCK + [2**31 + 5 - DEPTH] * BLOCK
