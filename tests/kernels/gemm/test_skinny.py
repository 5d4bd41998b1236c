"""Products with rows of bytes as they lie in memory, by every instruction set this machine has, against NumPy."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels.gemm.microkernels import generic, skinny, x86
from dmlcpu.kernels.gemm.microkernels.microkernel import ROW_STEP
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK, DEPTH
from dmlcpu.runtime.isa import detected

MICROKERNELS = (generic.GENERIC, x86.AVX2, x86.AVXVNNI, x86.AVX512VNNI)
RUNNABLE = [microkernel for microkernel in MICROKERNELS if microkernel.isa <= detected()]


@pytest.fixture(scope="module", params=RUNNABLE, ids=lambda microkernel: microkernel.name)
def add_and_unfold(request):
    add, unfold = skinny.make_add_products(request.param), skinny.make_unfold(request.param)

    @njit
    def both(b, place, step, depth, blocks, flip, a, first, rows, cells, sums, sums_step):
        add(b, place, step, depth, blocks, flip, a, first, rows, cells, sums, sums_step)
        for row in range(rows):
            for block in range(blocks):
                unfold(cells, sums + row * sums_step + block * BLOCK)

    return both


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("rows", "depth", "blocks"), [(1, 16, 1), (3, 16, 3), (16, 1, 2), (2, 7, 1), (1, 15, 2)])
def test_products_are_added_to_the_sums(add_and_unfold, dtype, rows, depth, blocks):
    rng = np.random.default_rng(depth)
    columns = blocks * BLOCK
    whole = rng.integers(-128, 128, (depth, columns + 7)).astype(np.int8)
    whole[0, :9], whole[-1, -9:] = -128, 127
    b = (whole.view(np.uint8) ^ np.uint8(0x80)) if dtype == np.uint8 else whole.view(np.uint8)
    a = np.zeros((rows, DEPTH), np.uint8)  # zero where b has no more rows
    a[:, :depth] = rng.integers(0, 256, (rows, depth))
    left = np.full(3 + rows * ROW_STEP, 0x01010101, np.uint32)
    for row in range(rows):
        left[3 + row * ROW_STEP :][: DEPTH // 4] = a[row].view(np.uint32)
    step = columns + 5
    cells = np.full(2 + rows * step, 7, np.int32)
    for row in range(rows):
        cells[2 + row * step :][:columns] = 0
    flip = 0x80 if dtype == np.uint8 else 0
    add_and_unfold(b.ravel(), 4, columns + 7, depth, blocks, flip, left, 3, rows, cells, 2, step)
    expected = np.full((rows, step), 7)
    expected[:, :columns] = a[:, :depth].astype(int) @ whole[:, 4 : 4 + columns].astype(int)
    assert cells.tolist() == [7, 7, *expected.ravel().tolist()]


def test_sums_are_added_to_what_was_there(add_and_unfold):
    b, left = np.full(DEPTH * BLOCK, 255, np.uint8), np.full(ROW_STEP, 0xFFFFFFFF, np.uint32)
    cells = np.full(BLOCK, -(2**31) + 5, np.int32)  # alike, so their order does not matter
    add_and_unfold(b, 0, BLOCK, DEPTH, 1, 0, left, 0, 1, cells, 0, BLOCK)
    assert cells.tolist() == [2**31 + 5 - DEPTH * 255] * BLOCK
