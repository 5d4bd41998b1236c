"""The multipliers of every instruction set this machine has, against NumPy."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.runtime import dots
from dmlcpu.runtime.dots import CHUNK, COLUMNS, ROW_STEP, ROWS
from dmlcpu.runtime.isa import Isa, detected
from dmlcpu.runtime.memory import aligned_empty

MULTIPLIERS = {
    Isa.GENERIC: dots.GENERIC,
    Isa.AVX2: dots.AVX2,
    Isa.AVXVNNI: dots.AVXVNNI,
    Isa.AVX512VNNI: dots.AVX512VNNI,
}


RUNNABLE = [multiplier for isa, multiplier in MULTIPLIERS.items() if isa <= detected()]


@pytest.fixture(scope="module", params=RUNNABLE, ids=lambda multiplier: multiplier.name)
def multiplier(request):
    return request.param


@pytest.mark.parametrize("rows", [1, 4, 8, ROWS])
def test_products_are_added_to_the_tile(multiplier, rows):
    intrinsic = dots.make_dot(rows, multiplier)

    @njit
    def dot(a, a_start, b, b_start, groups, cells, first, step):
        intrinsic(a, a_start, b, b_start, groups, cells, first, step)

    rng = np.random.default_rng(rows)
    for groups in (0, 1, 2, 17, CHUNK):
        a = rng.integers(0, 256, (rows, 4 * groups), np.uint8)
        b = rng.integers(-128, 128, (4 * groups, COLUMNS), np.int8)
        if groups == CHUNK:
            a[...], b[...] = 255, -128
        left = np.zeros(5 + ROWS * ROW_STEP, np.uint32)
        for row in range(rows):
            left[5 + row * ROW_STEP :][:groups] = a[row].view(np.uint32)
        right = aligned_empty((groups + 1) * COLUMNS, np.uint32)
        right[COLUMNS:] = b.reshape(groups, 4, COLUMNS).swapaxes(1, 2).copy().view(np.uint32).reshape(-1)
        product = a.astype(np.int64) @ b.astype(np.int64)
        for first, step in (0, COLUMNS), (rows * COLUMNS, 0):
            cells = aligned_empty((rows + 1) * COLUMNS, np.int32)
            cells[...] = rng.integers(2**31 - 9, 2**31, cells.size)  # sums wrap
            starts = cells[first:][: rows * COLUMNS if step else COLUMNS].reshape(-1, COLUMNS).astype(np.int64)
            dot(left, 5, right, COLUMNS, groups, cells, first, step)
            found = cells[: rows * COLUMNS].reshape(rows, COLUMNS)
            np.testing.assert_array_equal(found, (product + starts).astype(np.int32))
