"""Products by tile registers, against NumPy; without AMX they run in conformance/test_emulated_amx.py."""

import threading

import pytest
from numba import njit
from tile_products import check_products

from dmlcpu.kernels.gemm.microkernels import amx
from dmlcpu.kernels.gemm.microkernels.microkernel import KC
from dmlcpu.runtime.isa import Isa, detected

pytestmark = pytest.mark.skipif(Isa.AMX not in detected(), reason="needs AMX")


@pytest.mark.parametrize("rows", [16, 32])
def test_products_are_added_to_what_the_accumulators_start_with(rows):
    intrinsic, configure, release = amx.make_tile_dot(rows), amx.configure_tiles, amx.release_tiles

    @njit(nogil=True)
    def dot(a, a_start, b, b_start, groups, c_in, acc):
        configure()
        intrinsic(a, a_start, b, b_start, groups, c_in, acc)
        release()

    def check():
        for groups in (0, 1, 15, 16, 17, 32, 47, KC):
            check_products(dot, rows, groups)
        finished.append(rows)

    finished = []
    threads = [threading.Thread(target=check) for _ in range(4)]
    check()  # compiles
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert finished == [rows] * 5
