"""Products with rows of bytes in memory order, by every microkernel that this machine can run, against NumPy."""

import numpy as np
import pytest
from numba import njit
from tile_products import microkernels

from dmlcpu.kernels.gemm.microkernels import skinny
from dmlcpu.kernels.gemm.microkernels.microkernel import ROW_STEP
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK, DEPTH


@pytest.fixture(scope="module", params=microkernels(is_skinny=True), ids=lambda microkernel: microkernel.name)
def add_and_unfold(request):
    add, unfold = skinny.make_add_products(request.param), skinny.make_unfold(request.param)

    @njit
    def both(b, start, step, depth, blocks, flip, a, first, rows, acc, at, acc_step):
        add(b, start, step, depth, blocks, flip, a, first, rows, acc, at, acc_step)
        for row in range(rows):
            for block in range(blocks):
                unfold(acc, at + row * acc_step + block * BLOCK)

    return both


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("rows", "depth", "blocks"), [(1, 16, 1), (3, 16, 3), (16, 1, 2), (2, 7, 1), (1, 15, 2)])
def test_products_are_added_to_the_accumulators(add_and_unfold, dtype, rows, depth, blocks):
    rng = np.random.default_rng(depth)
    columns = blocks * BLOCK
    whole = rng.integers(-128, 128, (depth, columns + 7)).astype(np.int8)
    whole[0, :9], whole[-1, -9:] = -128, 127
    b = (whole.view(np.uint8) ^ np.uint8(0x80)) if dtype == np.uint8 else whole.view(np.uint8)
    a = np.zeros((rows, DEPTH), np.uint8)  # zero where b has no more rows
    a[:, :depth] = rng.integers(0, 256, (rows, depth))
    lhs = np.full(3 + rows * ROW_STEP, 0x01010101, np.uint32)
    for row in range(rows):
        lhs[3 + row * ROW_STEP :][: DEPTH // 4] = a[row].view(np.uint32)
    step = columns + 5
    acc = np.full(2 + rows * step, 7, np.int32)
    for row in range(rows):
        acc[2 + row * step :][:columns] = 0
    flip = 0x80 if dtype == np.uint8 else 0
    add_and_unfold(b.ravel(), 4, columns + 7, depth, blocks, flip, lhs, 3, rows, acc, 2, step)
    expected = np.full((rows, step), 7)
    expected[:, :columns] = a[:, :depth].astype(int) @ whole[:, 4 : 4 + columns].astype(int)
    assert acc.tolist() == [7, 7, *expected.ravel().tolist()]


def test_accumulators_wrap(add_and_unfold):
    b, lhs = np.full(DEPTH * BLOCK, 255, np.uint8), np.full(ROW_STEP, 0xFFFFFFFF, np.uint32)
    acc = np.full(BLOCK, -(2**31) + 5, np.int32)  # alike, so their order does not matter
    add_and_unfold(b, 0, BLOCK, DEPTH, 1, 0, lhs, 0, 1, acc, 0, BLOCK)
    assert acc.tolist() == [2**31 + 5 - DEPTH * 255] * BLOCK
