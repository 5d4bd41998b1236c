"""The forms that blocks of b take on AVX2: when each is taken, and that it gives the exact product."""

from typing import NamedTuple

import numpy as np
import pytest
from numba import njit

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels.gemm import forms
from dmlcpu.kernels.gemm.cut import WIDENED_ROWS
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, MR, NR
from dmlcpu.kernels.gemm.product import BYTES
from dmlcpu.kernels.gemm.work import NARROW
from dmlcpu.products.packing import PackedMatrix, pack_b
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.threads import use_budget

pytestmark = pytest.mark.skipif(Isa.AVX2 not in allowed(), reason="needs AVX2")

KERNEL = "dot_u8s8_s32_4x16x4_avx2"
ROWS = WIDENED_ROWS + MR + 1  # enough for copies, in tiles of several heights


def weights(rng, shape, share):
    """Return int8 with about this share of pairs that saturate, those of both signs, and the largest."""
    b = rng.integers(-64, 64, shape)  # -1 - b is in this range, too
    b[:-1:2][rng.random(b[:-1:2].shape) < share] = 127
    b[1::2][b[:-1:2][: b[1::2].shape[0]] == 127] = rng.choice([2, 64, 127])
    flipped = rng.random(shape[1]) < 0.5
    b[:, flipped] = -b[:, flipped] - 1
    return b.astype(np.int8)


def multiply(a, b, threads=2, dtype=np.int32):
    with use_budget(threads, grain=1, kernel=KERNEL):
        return dmlcpu.matmul_integer(a, None, b, None, out_dtype=dtype)


class Work(NamedTuple):
    groups: int
    NC: int
    is_wide: int


@njit(_nrt=False)  # as kernels, which count no references to the arrays of a form
def form_of(words, saturating, panels, rows, work, scratch):
    return forms.form_rhs(words, saturating, panels, rows, 0, work, scratch).number


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("pairs", "rows", "is_wide", "form"),
    [
        (0, ROWS, 0, BYTES),
        (1, ROWS, 0, forms.CLIPPED),
        (2, ROWS, 0, forms.CLIPPED),
        (3, ROWS, 0, forms.INT16),
        (1, ROWS, 1, forms.INT16),
        (3, WIDENED_ROWS, 0, forms.WIDENING),
    ],
)
def test_form_follows_from_the_share_of_pairs_that_saturate(pairs, rows, is_wide, form, is_known):
    groups = 2 * forms.FEW // (2 * NR)  # so that two pairs are one in FEW
    b = np.zeros((4 * groups, NR), np.int8)
    b[:2, :pairs] = -128
    words, scratch = pack_b(b).panels.view(np.uint32), np.zeros(4 * groups * NR, np.int64)
    assert form_of(words, pairs if is_known else -1, 1, rows, Work(groups, 1, is_wide), scratch) == form


@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "fresh"])
@pytest.mark.parametrize("depth", [2, 31, 4 * forms.CHUNK, 4 * KC + 5, 10 * KC])
@pytest.mark.parametrize("share", [0, 0.002, 0.3], ids=["bytes", "cut", "int16"])
@pytest.mark.parametrize("rows", [1, 4, 5, ROWS])
def test_each_form_is_exact(rows, share, depth, is_packed):
    rng = np.random.default_rng(depth)
    a = np.where(rng.random((rows, depth)) < 0.5, 255, rng.integers(0, 256, (rows, depth))).astype(np.uint8)
    b = weights(rng, (depth, 3 * NR + 5), share)
    packed = pack_b(b)
    assert packed.saturating == 0 or share > 0
    product = multiply(a, packed if is_packed else b)
    np.testing.assert_array_equal(product, reference.matmul_integer(a, None, b, None))


@pytest.mark.parametrize("share", [0, 0.002, 0.3])
def test_sums_that_int32_may_not_hold(share):
    """Bytes are not cut there: what they lose would be added to the int32 sums of a chunk, after its last use."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 256, (ROWS, NARROW + 7), np.uint8), weights(rng, (NARROW + 7, NR + 1), share)
    product = multiply(a, b, dtype=np.int64)
    np.testing.assert_array_equal(product, a.astype(np.float64) @ b.astype(np.float64))


def test_blocks_of_one_matrix_have_forms_of_their_own():
    """Rows that are kept from block to block change between bytes and int16."""
    rng = np.random.default_rng(1)
    depth = 12 * KC
    shares = np.repeat([0, 0.3, 0.001, 0.3, 0], 8 * NR)
    b = np.concatenate([weights(rng, (depth, NR), share) for share in shares[::NR]], axis=1)
    a = rng.integers(0, 256, (ROWS, depth), np.uint8)
    expected = a.astype(np.int32) @ b.astype(np.int32)
    for given in (b, pack_b(b)):
        for threads in (1, 3):
            np.testing.assert_array_equal(multiply(a, given, threads), expected, f"{threads} threads")


@pytest.mark.parametrize("pair", [(127, 2), (127, 127), (-128, -1), (-128, -128), (1, -128), (127, 1), (-64, -64)])
def test_count_of_saturating_pairs_is_that_of_sums_beyond_128(pair):
    b = np.zeros((9, 40), np.int8)
    b[2:4, 3], b[6:8, 39] = pair, pair
    assert pack_b(b).saturating == (2 if abs(sum(pair)) > 128 else 0)
    assert pack_b(b.view(np.uint8) ^ np.uint8(128)).saturating == pack_b(b).saturating


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_saturating_pairs_of_several_matrices_are_counted_together(threads):
    b = np.zeros((5, 8, 70), np.int8)
    b[:, 4:6, 3], b[1:3, 2:4, 64] = 127, -128
    with use_budget(threads, grain=1):
        assert pack_b(b).saturating == 5 + 2


def test_most_cuts_that_are_allowed():
    """One pair in FEW, all in one panel, whose list is the longest."""
    depth = 2 * forms.FEW
    b = np.zeros((depth, NR), np.int8)
    b[:2] = -128
    a = np.full((ROWS, depth), 255, np.uint8)
    assert pack_b(b).saturating * forms.FEW == b.size // 2
    np.testing.assert_array_equal(multiply(a, b), np.full((ROWS, NR), -128 * 2 * 255))


def test_matrix_whose_saturating_pairs_are_not_known():
    """Matrices packed by earlier versions have no count."""
    rng = np.random.default_rng(3)
    a = rng.integers(0, 256, (ROWS, 70), np.uint8)
    for share in (0, 0.3):
        b = weights(rng, (70, 50), share)
        packed = pack_b(b)
        older = PackedMatrix(packed.shape, packed.dtype, packed.layout, packed.panels, packed.sums)
        assert older.saturating is None
        np.testing.assert_array_equal(multiply(a, older), multiply(a, packed))
