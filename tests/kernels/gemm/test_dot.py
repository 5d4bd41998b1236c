"""The multipliers of every instruction set this machine has, against NumPy."""

import pytest
from numba import njit
from tile_products import check_products

from dmlcpu.kernels.gemm.microkernels import dot as dots
from dmlcpu.kernels.gemm.microkernels.dot import KC, ROWS
from dmlcpu.runtime.isa import Isa, detected

MICROKERNELS = {
    Isa.GENERIC: dots.GENERIC,
    Isa.AVX2: dots.AVX2,
    Isa.AVXVNNI: dots.AVXVNNI,
    Isa.AVX512VNNI: dots.AVX512VNNI,
}


RUNNABLE = [microkernel for isa, microkernel in MICROKERNELS.items() if isa <= detected()]


@pytest.fixture(scope="module", params=RUNNABLE, ids=lambda microkernel: microkernel.name)
def microkernel(request):
    return request.param


@pytest.mark.parametrize("rows", [1, 4, 8, ROWS])
def test_products_are_added_to_the_tile(microkernel, rows):
    intrinsic = dots.make_dot(rows, microkernel)

    @njit
    def dot(a, a_start, b, b_start, groups, cells, first, step):
        intrinsic(a, a_start, b, b_start, groups, cells, first, step)

    for groups in (0, 1, 2, 17, KC):
        check_products(dot, rows, groups)
