"""All numbers: every pattern of 16 bits, products that round at ties, the longest sums, scales of any size."""

import itertools
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import pytest
from samples import assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import use_budget

Seeds = Callable[[int], Iterator[int]]
Counted = Callable[[str], None]
HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
PATTERNS = np.arange(1 << 16, dtype=np.uint16)
DOTS = [row.name for row in registry.available("quantized_matmul", "dot")]
SUMS = [row.name for row in registry.available("matmul_integer", "dot")]
BYTES = (np.int8, np.uint8)


def called(function, *args, kernel=None, threads=2, **kwargs):
    """Call a kernel; None if it is not for such a call."""
    with use_budget(threads, grain=1, kernel=kernel):
        try:
            return function(*args, **kwargs)
        except LookupError:
            return None


# A kernel, k, the shape that the patterns get, and the axis.
SELECTIONS = [
    ("select_sort", 1 << 16, (1 << 16,), -1),
    ("select_sort", 1024, (64, 1024), -1),
    ("tournament", 1500, (1 << 16,), -1),
    ("split", 1000, (1 << 16,), -1),
    ("lockstep", 16, (256, 256), -1),
    ("strided_insert", 16, (1024, 64), 0),
    ("strided_tournament", 60, (1024, 64), 0),
]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_half_is_selected_in_order(dtype: np.dtype, seeds: Seeds, counted: Counted) -> None:
    calls = 0
    for seed in seeds(1):
        x = np.random.default_rng(seed).permutation(PATTERNS).view(dtype)
        for (kernel, k, shape, axis), largest, nan in itertools.product(
            SELECTIONS, (True, False), ("greatest", "last")
        ):
            options = {"axis": axis, "largest": largest, "nan": nan}
            found = called(dmlcpu.top_k, x.reshape(shape), k, kernel=kernel, **options)
            assert found is not None, kernel
            assert_same_bits(found, reference.top_k(x.reshape(shape), k, **options), f"{kernel}, {options}, {seed=}")
            calls += 1
    counted(f"{calls:,} selections of all {PATTERNS.size:,} patterns")


BITS = [0, 1, 0x80, 0x3F7F, 0x3C00, 0x3F80, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0]
SPECIALS = np.array([sign | bits for bits in BITS for sign in (0, 0x8000)], np.uint16)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_half_is_combined_with_others(dtype: np.dtype, seeds: Seeds, counted: Counted) -> None:
    """As the updates of whole rows, which the reference combines at once, and of single elements."""
    x, calls = PATTERNS.view(dtype), 0
    singly = np.arange(x.size, dtype=np.int32)[:, None]
    for seed in seeds(1):
        others = np.random.default_rng(seed).permutation(PATTERNS).view(dtype)
        for other in (*SPECIALS.view(dtype), others):
            whole = np.broadcast_to(other, x.shape)
            for (mine, update), reduction in itertools.product([(x, whole), (whole, x)], ("add", "mul", "min", "max")):
                expected = reference.scatter_nd(mine[None], [[0]], update[None], reduction=reduction)
                found = called(dmlcpu.scatter_nd, mine[None], [[0]], update[None], reduction=reduction)
                assert_same_bits((found,), (expected,), f"{reduction} with {other}, {seed=}")
                found = called(dmlcpu.scatter_nd, mine, singly, update, reduction=reduction)
                assert_same_bits((found,), (expected[0],), f"{reduction} with {other}, singly, {seed=}")
                calls += 2
    counted(f"{calls:,} scatters of all {PATTERNS.size:,} patterns")


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_half_is_quantized(dtype: np.dtype, seeds: Seeds, counted: Counted) -> None:
    x, calls = PATTERNS.view(dtype), 0
    for seed in seeds(1):
        rng = np.random.default_rng(seed)
        scales = [1, 0.5, 2**-14, 3, 0.1, 1e-38, 3e38, *np.exp2(rng.uniform(-140, 120, 4))]
        for scale, y_dtype in itertools.product(np.array(scales, np.float32), ("uint8", "int8", "uint16", "int16")):
            zero = rng.integers(np.iinfo(y_dtype).min, np.iinfo(y_dtype).max, dtype=y_dtype, endpoint=True)
            found = called(dmlcpu.quantize_linear, x, scale, zero)
            expected = reference.quantize_linear(x, scale, zero)
            assert_same_bits((found,), (expected,), f"scale {scale}, zero point {zero}, {seed=}")
            calls += 1
    counted(f"{calls:,} quantizations of all {PATTERNS.size:,} patterns")


def test_products_round_ties_to_even(seeds: Seeds, counted: Counted) -> None:
    """Every product of two bytes, by multipliers that make ties, against Python's own rounding."""
    a, b = np.arange(256, dtype=np.uint8)[:, None], np.arange(-128, 128, dtype=np.int8)[None]
    sums, places = np.unique(a.astype(np.int64) * b, return_inverse=True)
    calls = ties = 0
    for seed in seeds(1):
        rng = np.random.default_rng(seed)
        multipliers = [0.5, 1.5, 2.5, 2**-8, 3 * 2**-6, 1 / 3, np.nextafter(np.float32(0.5), np.float32(1))]
        multipliers += [rng.integers(1, 64) * 2.0 ** -rng.integers(1, 12), rng.uniform(1e-3, 2)]
        for multiplier in np.array(multipliers, np.float32):
            products = (sums.astype(np.float32) * multiplier).tolist()
            ties += sum(product % 1 == 0.5 for product in products)
            whole = np.array([round(product) for product in products])[places].reshape(256, 256)
            for y_dtype in BYTES:
                low, high = np.iinfo(y_dtype).min, np.iinfo(y_dtype).max
                for zero in {low, 1, high, int(rng.integers(low, high))}:
                    expected = np.clip(whole + zero, low, high).astype(y_dtype)
                    for kernel, rows in itertools.product(DOTS, (256, 5)):
                        arguments = (a[:rows], multiplier, None, b, 1.0, None, 1.0, y_dtype(zero))
                        found = called(dmlcpu.quantized_matmul, *arguments, kernel=kernel)
                        if found is not None:
                            what = f"{kernel}, {multiplier=}, {y_dtype}, {zero=}, {seed=}"
                            assert_same_bits((found,), (expected[:rows],), what)
                            calls += 1
    counted(f"{calls:,} products of {places.size:,} pairs of bytes, {ties:,} ties")


LAST = 33_025  # the longest sum of bytes that 32 bits hold


def test_the_longest_sums(seeds: Seeds, counted: Counted) -> None:
    """Extreme bytes and zero points of all types, on both sides of where 32 bits end, once and several times."""
    calls = 0
    for seed in seeds(1):
        rng = np.random.default_rng(seed)
        for depth, (a_type, b_type) in itertools.product(
            (LAST, LAST + 1, 2 * LAST + 1), itertools.product(BYTES, repeat=2)
        ):
            a_limits, b_limits = [(np.iinfo(dtype).min, np.iinfo(dtype).max) for dtype in (a_type, b_type)]
            for a_high, b_high in itertools.product((0, 1), repeat=2):
                a, b = np.full((3, depth), a_limits[a_high], a_type), np.full((depth, 5), b_limits[b_high], b_type)
                a_zero, b_zero = a_limits[1 - a_high], b_limits[1 - b_high]
                a[1, rng.random(depth) < 0.5], b[rng.random(depth) < 0.5, 2] = a_zero, b_zero
                sums = (a.astype(np.float64) - a_zero) @ (b.astype(np.float64) - b_zero)  # exact
                calls += check_sums(a, a_type(a_zero), b, b_type(b_zero), sums.astype(np.int64))
    counted(f"{calls:,} products of long sums")


def check_sums(a, a_zero, b, b_zero, sums) -> int:
    """Compare all kernels with exact sums; return how many calls that were."""
    calls = 0
    scale = np.float32(np.abs(sums).max() / 100)
    for kernel, dtype in itertools.product(SUMS, ("int32", "int64")):
        found = called(dmlcpu.matmul_integer, a, a_zero, b, b_zero, kernel=kernel, out_dtype=dtype)
        if found is not None:
            assert_same_bits((found,), (sums.astype(dtype),), f"{kernel}, depth {a.shape[1]}, {dtype}")
            calls += 1
    for kernel, y_dtype in itertools.product(DOTS, BYTES):
        limits = np.iinfo(y_dtype)
        found = called(dmlcpu.quantized_matmul, a, 1.0, a_zero, b, 1.0, b_zero, scale, y_dtype(3), kernel=kernel)
        product = sums.astype(np.float32) * (np.float32(1) / scale)
        expected = np.clip(np.rint(product).astype(np.int64) + 3, limits.min, limits.max).astype(y_dtype)
        if found is not None:
            assert_same_bits((found,), (expected,), f"{kernel}, depth {a.shape[1]}, {y_dtype}")
            calls += 1
    return calls


SIZES = [1e-45, 5e-39, 1.1754942e-38, 1.1754944e-38, 1e-30, 1e-10, 1, 1 / 3, 1e10, 1e30, 1.7e38, 3.4028235e38]


def test_scales_of_any_size(seeds: Seeds, counted: Counted) -> None:
    """Multipliers that are subnormal, zero, or beyond float32."""
    scales, calls = np.array(SIZES, np.float32), 0
    for seed in seeds(2):
        rng = np.random.default_rng(seed)
        a = rng.integers(0, 256, (scales.size, 37), np.uint8)
        b = rng.integers(-128, 128, (37, scales.size), np.int8)
        a[0], b[:, 0] = 128, 0  # sums of 0
        for turn, y_scale in itertools.product(range(0, scales.size, 3), [*scales, np.roll(scales, 5)]):
            zero = (np.int8(-128), np.int8(0), np.int8(127), np.uint8(255))[rng.integers(4)]
            a_scale = np.roll(scales, turn)
            arguments = (a, a_scale, np.uint8(128), b, scales, None, y_scale, zero)
            expected = reference.quantized_matmul(*arguments)
            floats = reference.matmul_integer_to_float(*arguments[:6])
            for kernel in DOTS:
                found = called(dmlcpu.quantized_matmul, *arguments, kernel=kernel)
                if found is not None:
                    assert_same_bits((found,), (expected,), f"{kernel}, {turn=}, y_scale {y_scale}, {seed=}")
                    calls += 1
            assert_same_bits((dmlcpu.matmul_integer_to_float(*arguments[:6]),), (floats,), f"{turn=}, {seed=}")
    counted(f"{calls:,} products with extreme scales")
