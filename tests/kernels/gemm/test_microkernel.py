"""The microkernels of every vector unit that products can use here, against NumPy."""

import numpy as np
import pytest
from numba import njit
from tile_products import check_products, microkernels

from dmlcpu.kernels.gemm.microkernels import generic, x86
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, MR, NR, ROW_STEP, make_dot
from dmlcpu.kernels.gemm.microkernels.rows import add_product, multiply_row
from dmlcpu.runtime.intrinsics import Strided
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.memory import aligned_empty
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record, record_at


@pytest.fixture(scope="module", params=microkernels(is_skinny=False), ids=lambda microkernel: microkernel.unit.name)
def microkernel(request):
    return request.param


@pytest.mark.parametrize("rows", [1, 4, 8, MR])
def test_products_are_added_to_what_the_accumulators_start_with(microkernel, rows):
    intrinsic = make_dot(rows, microkernel)

    @njit
    def dot(a, a_start, b, b_start, groups, c_in, acc):
        intrinsic(a, a_start, b, b_start, groups, c_in, acc)

    lowest = -64 if microkernel == x86.AVX2 else -128  # no pair of bytes saturates
    for groups in (0, 1, 2, 17, KC):
        check_products(dot, rows, groups, lowest)


@pytest.mark.skipif(Isa.AVX2 not in allowed(), reason="needs AVX2")
@pytest.mark.parametrize("rows", [1, 4, 8, MR])
@pytest.mark.parametrize(
    ("microkernel", "types"),
    [(x86.AVX2_INT16, (np.int16, np.int16)), (x86.AVX2_WIDENING, (np.uint8, np.int8))],
    ids=["int16", "widening"],
)
def test_other_microkernels_of_avx2(microkernel, types, rows):
    intrinsic = make_dot(rows, microkernel)

    @njit
    def dot(a, a_start, b, b_start, groups, c_in, acc):
        intrinsic(a, a_start, b, b_start, groups, c_in, acc)

    for groups in (0, 1, 2, 17, KC):
        check_products(dot, rows, groups, types=types)


@pytest.mark.parametrize("beyond", [{"vectors": 3}, {"vectors": 16}, {"rows": MR + 1}])
def test_microkernel_that_would_write_beyond_the_tile_is_refused(beyond):
    unit = generic.GENERIC.unit._replace(**beyond)
    found = f"{unit.rows} rows and {4 * unit.vectors} columns"
    with pytest.raises(
        ValueError, match=f"^a microkernel of {found}; allowed: at most 12 rows, and columns that divide 32"
    ):
        make_dot(4, generic.GENERIC._replace(unit=unit))


SPACE = record(CACHE_LINE, bias=(np.int32, 2 * NR), acc=(np.int32, (MR, NR)))


def test_accumulators_of_a_workspace_record():
    """They have two dimensions and a type of their own."""
    intrinsic = make_dot(4, generic.GENERIC)

    @njit
    def dot(a, b, groups, scratch):
        space = record_at(scratch, 8, SPACE)
        intrinsic(a, 0, b, 0, groups, Strided(space.bias, NR, 0, 4), space.acc)
        multiply_row(space.bias, NR, np.int32(3), space.acc, 4 * NR)
        add_product(space.acc, 0, np.int32(1), space.acc, 4 * NR)

    a, b = aligned_empty(4 * ROW_STEP, np.uint32), aligned_empty(2 * NR, np.uint32)
    a[...], b[...] = 0x02020202, 0xFFFFFFFF
    scratch = aligned_empty(8 + cells_of(SPACE), np.int64)
    scratch[...] = 0
    space = scratch[8:].view(SPACE)[0]
    space["bias"][NR:] = np.arange(NR)
    dot(a, b, 2, scratch)
    sums = np.arange(NR) - 2 * 4 * 2
    assert space["acc"][:5].tolist() == [
        *np.stack([sums + 3 * np.arange(NR), *[sums] * 3]).tolist(),
        [*range(0, 96, 3)],
    ]
    assert not space["acc"][5:].any()
