"""Products by tile registers, against NumPy; without AMX they run in conformance/test_emulated_amx.py."""

import threading

import numpy as np
import pytest
from numba import njit

from dmlcpu.runtime import tiles
from dmlcpu.runtime.dots import CHUNK, COLUMNS, ROW_STEP
from dmlcpu.runtime.isa import Isa, detected
from dmlcpu.runtime.memory import aligned_empty

pytestmark = pytest.mark.skipif(detected() < Isa.AMX, reason="needs AMX")


@pytest.mark.parametrize("rows", [16, 32])
def test_products_are_added_to_the_tile(rows):
    intrinsic, configure, release = tiles.make_tile_dot(rows), tiles.configure_tiles, tiles.release_tiles

    @njit(nogil=True)
    def dot(a, a_start, b, b_start, groups, cells, first, step):
        configure()
        intrinsic(a, a_start, b, b_start, groups, cells, first, step)
        release()

    def check():
        rng = np.random.default_rng(rows)
        for groups in (0, 1, 15, 16, 17, 32, 47, CHUNK):
            a = rng.integers(0, 256, (rows, 4 * groups), np.uint8)
            b = rng.integers(-128, 128, (4 * groups, COLUMNS), np.int8)
            if groups == CHUNK:
                a[...], b[...] = 255, -128
            left = aligned_empty(16 + rows * ROW_STEP, np.uint32)
            left[...] = 0x01010101  # what lies behind the rows must not count
            for row in range(rows):
                left[16 + row * ROW_STEP :][:groups] = a[row].view(np.uint32)
            right = aligned_empty((groups + 1) * COLUMNS, np.uint32)
            right[COLUMNS:] = b.reshape(groups, 4, COLUMNS).swapaxes(1, 2).copy().view(np.uint32).reshape(-1)
            product = a.astype(np.int64) @ b.astype(np.int64)
            for first, step in (0, COLUMNS), (rows * COLUMNS, 0):
                cells = aligned_empty((rows + 1) * COLUMNS, np.int32)
                cells[...] = rng.integers(2**31 - 9, 2**31, cells.size)  # sums wrap
                starts = cells[first:][: rows * COLUMNS if step else COLUMNS].reshape(-1, COLUMNS).astype(np.int64)
                dot(left, 16, right, COLUMNS, groups, cells, first, step)
                found = cells[: rows * COLUMNS].reshape(rows, COLUMNS)
                np.testing.assert_array_equal(found, (product + starts).astype(np.int32))
        finished.append(rows)

    finished = []
    threads = [threading.Thread(target=check) for _ in range(4)]
    check()  # compiles
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert finished == [rows] * 5
