"""The multipliers of every instruction set this machine has, against NumPy."""

import pytest
from numba import njit
from tile_products import check_products

from dmlcpu.runtime import dots
from dmlcpu.runtime.dots import CHUNK, ROWS
from dmlcpu.runtime.isa import Isa, detected

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

    for groups in (0, 1, 2, 17, CHUNK):
        check_products(dot, rows, groups)
