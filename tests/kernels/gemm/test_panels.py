"""The vector operations on rows of panels, against NumPy."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels.gemm.microkernels import panels
from dmlcpu.kernels.gemm.microkernels.dot import NR

RNG = np.random.default_rng(3)


@njit
def start_row(cells, row, factor, first):
    panels.start_row(cells, row, factor, first)


@njit
def subtract_product(tile, row, factor, numbers, first):
    panels.subtract_product(tile, row, factor, numbers, first)


@njit
def requantize(sums, rows, multipliers, first, step, least, most, zeros, y, place, y_step):
    panels.requantize(sums, rows, multipliers, first, step, least, most, zeros, y, place, y_step)


@njit
def pack_groups(b, place, step, count, flip, words, first, sums, column):
    panels.pack_groups(b, place, step, count, flip, words, first, sums, column)


@njit
def pack_words(a, place, count, flip, words, first):
    panels.pack_words(a, place, count, flip, words, first)


@njit
def sum_of_words(words, first, count):
    return panels.sum_of_words(words, first, count)


def test_rows_start_with_what_the_zero_points_give():
    numbers = RNG.integers(-(2**31), 2**31, 3 + NR).astype(np.int32)
    cells = np.concatenate([np.full(2 * NR + 1, 7, np.int32), numbers])
    start_row(cells, NR, np.int32(250), 2 * NR + 4)
    expected = (numbers[3:].astype(np.int64) * 250).astype(np.int32)
    assert cells.tolist() == [7] * NR + expected.tolist() + [7] + numbers.tolist()
    subtract_product(cells, NR, np.int32(99), numbers, 3)
    expected -= (numbers[3:].astype(np.int64) * 99).astype(np.int32)
    assert cells.tolist() == [7] * NR + expected.tolist() + [7] + numbers.tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
@pytest.mark.parametrize(("lowest", "highest", "zeros"), [(0, 255, [3, 0, 255]), (-128, 127, [-128, 127, 5])])
def test_requantize(dtype, lowest, highest, zeros):
    ties = np.arange(-16, 16) * 5  # times 0.1: whole numbers and halves
    large = np.array([2**31 - 1, -(2**31), 2**24 + 1, -(2**24) - 3] * 8)
    zeros = np.array(zeros)
    least, most = (lowest - zeros).astype(np.float32), (highest - zeros).astype(np.float32)
    for numbers, factor in (
        (ties, 0.1),
        (ties, 0.5),
        (large, 1e-6),
        (large, np.finfo(np.float32).max),
        (ties * 0, 1e38),
    ):
        sums = np.stack([numbers, numbers[::-1], -numbers // 2]).astype(dtype)
        for step in 0, NR:  # one row of multipliers for all, or one each
            multipliers = np.full((3 if step else 1, NR), factor, np.float32)
            multipliers[-1, 3] /= 2
            y = np.zeros(2 + 3 * 40, np.uint8)
            flat = sums.ravel(), 3, multipliers.ravel(), 0, step
            requantize(*flat, least, most, zeros.astype(np.uint8), y, 1, 40)
            with np.errstate(over="ignore"):
                exact = np.rint(sums.astype(np.float32) * multipliers).astype(np.float64)
            expected = np.clip(exact + zeros[:, None], lowest, highest).astype(np.int64).astype(np.uint8)
            assert y[0] == 0
            np.testing.assert_array_equal(y[1:-1].reshape(3, 40)[:, :NR], expected)
            assert not y[1:-1].reshape(3, 40)[:, NR:].any()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_pack_groups(dtype, count):
    b = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (4 * count + 1, 50)).astype(dtype)
    words, sums = np.zeros(2 + count * NR, np.uint32), np.arange(1 + NR)
    flip = 0 if dtype == np.int8 else 0x80
    pack_groups(b.view(np.uint8).reshape(-1), 7, 50, count, flip, words, 2, sums, 1)
    signed = b[: 4 * count, 7 : 7 + NR].astype(np.int64) - (0 if dtype == np.int8 else 128)
    packed = words[2:].view(np.int8).reshape(count, NR, 4)
    np.testing.assert_array_equal(packed, signed.reshape(count, 4, NR).swapaxes(1, 2))
    assert sums.tolist() == [0, *(np.arange(1, 1 + NR) + signed.sum(axis=0)).tolist()]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_pack_words_and_their_sum(dtype):
    a = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, 3 + 8 * panels.STEP).astype(dtype)
    words = np.zeros(2 + 2 * panels.STEP, np.uint32)
    flip = 0x80 if dtype == np.int8 else 0
    pack_words(a.view(np.uint8), 3, 2, flip, words, 2)
    unsigned = a[3:].astype(np.int64) + (128 if dtype == np.int8 else 0)
    assert words[2:].view(np.uint8).tolist() == unsigned.tolist()
    assert sum_of_words(words, 2, 2) == unsigned.sum()
    assert sum_of_words(words, 2, 0) == 0


@njit
def scale_row(scales, first, a_scale, y_scale, multipliers, place):
    panels.scale_row(scales, first, a_scale, y_scale, multipliers, place)


@pytest.mark.parametrize("spread", [0, 20, 60])
def test_scales_are_rounded_as_by_a_division(spread):
    """Also next to the middle between two numbers, which a numerator can come near to but not meet."""
    near = RNG.integers(2**23, 2**24, (2_000, NR)).astype(np.float32)
    scales = np.ldexp(near, RNG.integers(-spread, spread + 1, near.shape), dtype=np.float32)
    for row, y in zip(scales, RNG.integers(2**23, 2**24, len(scales)), strict=True):
        middle = (2 * row[:8].astype(np.int64) + 1) * y >> 25 if spread == 0 else []
        row[: len(middle)] = middle
        a_scale, y_scale = RNG.uniform(0.1, 10, 2).astype(np.float32) if spread else np.float32([1, y])
        found = np.zeros(NR, np.float32)
        scale_row(row, 0, a_scale, y_scale, found, 0)
        assert found.tolist() == (row * a_scale / y_scale).tolist()


def test_scale_row_stays_finite():
    scales, multipliers = RNG.uniform(0.1, 1, 2 + NR).astype(np.float32), np.zeros(1 + NR, np.float32)
    scales[5] = 1e38
    a_scale, y_scale = np.float32(77), np.float32(0.3)
    scale_row(scales, 2, a_scale, y_scale, multipliers, 1)
    with np.errstate(over="ignore"):
        expected = np.minimum(a_scale * scales[2:] / y_scale, np.finfo(np.float32).max)
    assert multipliers.tolist() == [0, *expected.tolist()]
    assert expected[3] == np.finfo(np.float32).max
