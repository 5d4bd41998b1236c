"""The vector operations on rows of tiles, against NumPy."""

import numpy as np
import pytest
from jitted import jitted

from dmlcpu.kernels.gemm.microkernels import rows as operations
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.runtime.intrinsics import Strided

RNG = np.random.default_rng(3)


multiply_row = jitted(operations.multiply_row)
add_product = jitted(operations.add_product)
scale_row = jitted(operations.scale_row)
requantize = jitted(operations.requantize)
copy_bytes = jitted(operations.copy_bytes)


@pytest.mark.parametrize("shape", [(3 * NR,), (3, NR)], ids=["flat", "rows"])
def test_integer_operations_on_one_row_of_a_tile(shape):
    source = RNG.integers(-(2**31), 2**31, 3 + NR).astype(np.int32)
    wide = source[3:].astype(np.int64)
    acc = np.full(shape, 7, np.int32)

    def check(expected):
        np.testing.assert_array_equal(acc.reshape(3, NR), np.stack([wide * 0 + 7, expected, wide * 0 + 7]))

    multiply_row(source, 3, np.int32(250), acc, NR)
    check((wide * 250).astype(np.int32))
    add_product(acc, NR, np.int32(1), source, 3)
    check((wide * 251).astype(np.int32))
    add_product(acc, NR, np.int32(-350), source, 3)
    check((wide * -99).astype(np.int32))


def test_a_row_may_come_from_the_same_array():
    acc = RNG.integers(-(2**31), 2**31, 3 * NR).astype(np.int32)
    before = acc.copy()
    multiply_row(acc, 2 * NR, np.int32(-1), acc, 0)
    add_product(acc, NR, np.int32(1), acc, 2 * NR)
    expected = [-before[2 * NR :], before[NR : 2 * NR] + before[2 * NR :], before[2 * NR :]]
    np.testing.assert_array_equal(acc.reshape(3, NR), np.stack(expected))


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
            rows = Strided(multipliers.ravel(), 0, step, 3)
            requantize(sums.ravel(), rows, least, most, zeros.astype(np.uint8), Strided(y, 1, 40, 3))
            with np.errstate(over="ignore"):
                exact = np.rint(sums.astype(np.float32) * multipliers).astype(np.float64)
            expected = np.clip(exact + zeros[:, None], lowest, highest).astype(np.int64).astype(np.uint8)
            assert y[0] == 0
            np.testing.assert_array_equal(y[1:-1].reshape(3, 40)[:, :NR], expected)
            assert not y[1:-1].reshape(3, 40)[:, NR:].any()


@pytest.mark.parametrize("spread", [0, 20, 60])
def test_scales_are_rounded_as_by_a_division(spread):
    """Also next to the middle between two float32, which a quotient approaches but never reaches."""
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


@pytest.mark.parametrize("count", [0, 1, 16, 31])
def test_copy_bytes(count):
    source, y = np.arange(1, 65, dtype=np.uint8).reshape(2, 32), np.zeros(40, np.uint8)
    copy_bytes(source, 32, y, 5, count)
    assert y.tolist() == [0] * 5 + list(range(33, 33 + count)) + [0] * (35 - count)
