"""The kernels of exact search, part by part: sums in their order, the rotation, the heap, and what encoding tells."""

import functools

import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels.search import best, encode as encode_kernels, float_sums, rotation
from dmlcpu.kernels.search.constants import (
    CODE_LENGTH,
    DISTANCES,
    LENGTH,
    PRODUCTS,
    RESIDUAL,
    ROUNDED_PRODUCTS,
    SQUARE,
    TERM,
)
from dmlcpu.reference.searches import sums_by_eight
from dmlcpu.runtime.threads import use_budget
from dmlcpu.search.codes import Encoded, Frame, encode, signs_of

DEPTHS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 100, 385]


@functools.cache
def tile_sums(rows, columns, terms):
    intrinsic = float_sums.make_tile_sums(rows, columns, terms)

    @njit
    def call(a, a_at, b, numbers, first, depth, sums):
        intrinsic(a, a_at, b, numbers, first, depth, sums)

    return call


@pytest.mark.parametrize("terms", [PRODUCTS, ROUNDED_PRODUCTS, DISTANCES])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 4), (4, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_in_the_stated_order_in_any_tile(terms, rows, columns, dtype):
    """Bit for bit: with products that are fused with the addition, and with others, which must not be."""
    call, rng = tile_sums(rows, columns, terms), np.random.default_rng(rows)
    for depth in DEPTHS:
        a, b = (10.0 ** rng.integers(-6, 6, (9, depth)) * rng.standard_normal((9, depth)) for _ in range(2))
        if terms == PRODUCTS:
            a = a.astype(np.float32).astype(np.float64)
        b, numbers = b.astype(np.float32 if terms == PRODUCTS else dtype), rng.permutation(9)
        wide = b.astype(dtype).astype(np.float64)
        sums = np.full(rows * columns + 1, 7.0)
        call(a.reshape(-1), 2 * depth, b.astype(dtype).reshape(-1), numbers, 3, depth, sums)
        pairs = a[2 : 2 + rows, None], wide[numbers[3 : 3 + columns]]
        right = sums_by_eight(np.square(pairs[0] - pairs[1]) if terms == DISTANCES else pairs[0] * pairs[1])
        assert sums[:-1].tolist() == right.ravel().tolist()
        assert sums[-1] == 7


@njit
def greatest(x, first, count):
    return float_sums.greatest(x, first, count)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40, 1000])
def test_the_greatest_absolute_value(dtype, count):
    x = np.random.default_rng(count).standard_normal(count + 4).astype(dtype)
    x[:2], x[-2:] = np.inf, np.nan
    inner = x[2:-2]
    assert greatest(x, 2, count) == np.abs(inner).max()
    for place in {0, count // 2, count - 1}:
        kept = inner[place]
        inner[place] = -50
        assert greatest(x, 2, count) == 50
        inner[place] = -np.inf
        assert greatest(x, 2, count) == np.inf
        inner[place] = np.nan
        assert np.isnan(greatest(x, 2, count))
        inner[place] = kept
    inner[:] = 0
    assert greatest(x, 2, count) == 0
    inner[:] = np.finfo(dtype).smallest_subnormal
    assert greatest(x, 2, count) == np.finfo(dtype).smallest_subnormal


@njit
def rotate(row, w):
    """Center a row about 0, which mixes whole vectors, and mix the rest."""
    ones, sums = np.ones(row.size, np.float32), np.empty(2)
    encode_kernels.centre_row(row, np.zeros(row.size), ones, row.size, 1.0, 1.0, w, sums)
    rotation.rotate(w)


def hadamard(depth):
    """Return the matrix of the rotation without signs and scale: a Sylvester-Hadamard block for each power of two."""
    matrix, first = np.zeros((depth, depth)), 0
    while first < depth:
        n, block = 1 << ((depth - first).bit_length() - 1), np.ones((1, 1))
        while len(block) < n:
            block = np.block([[block, block], [block, -block]])
        matrix[first : first + n, first : first + n] = block
        first += n
    return matrix


@pytest.mark.parametrize(
    "depth", [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 48, 64, 100, 127, 128, 130, 256, 384, 512, 1000]
)
def test_the_rotation_is_a_hadamard_matrix_of_each_power_of_two(depth):
    whole = np.random.default_rng(depth).integers(-50, 50, (3, depth)).astype(np.float32)
    for row in whole:  # of whole numbers nothing is rounded
        w = np.empty_like(row)
        rotate(row, w)
        assert w.tolist() == (hadamard(depth) @ row.astype(np.float64)).tolist()
    scaled = hadamard(depth) * signs_of(depth).astype(np.float64)
    assert np.allclose(scaled @ scaled.T, np.eye(depth), atol=1e-6)
    if depth > 20:
        assert 0.2 < (signs_of(depth) < 0).mean() < 0.8


def test_signs_are_the_same_for_ever():
    """Else indices on disk would not be searched as they were built."""
    negative = "".join("-" if sign < 0 else "+" for sign in signs_of(32))
    assert negative == "".join("-" if (i * 0x9E3779B97F4A7C15 >> 63) & 1 else "+" for i in range(1, 33))


@njit
def heap_of(ranks, positions, k, start):
    """Return the k best of pairs, the best first, between cells that must stay."""
    kept_ranks, kept_positions, count = np.full(k + start + 1, 5.0), np.full(k + start + 1, 99), 0
    for i in range(ranks.size):
        count = best.push(ranks[i], positions[i], kept_ranks, kept_positions, start, count, k)
    best.sort(kept_ranks, kept_positions, start, count)
    return kept_ranks, kept_positions, count


@pytest.mark.parametrize("k", [0, 1, 2, 3, 10, 63, 64, 200])
@pytest.mark.parametrize("kinds", [1, 3, 1000])
def test_a_heap_keeps_the_best_and_of_equal_ones_the_lower_positions(k, kinds):
    rng = np.random.default_rng(k)
    for count in (0, 1, k, k + 1, 150):
        ranks, positions = rng.integers(0, kinds, count).astype(float), rng.permutation(count)
        ranks[rng.random(count) < 0.1] = -np.inf
        found, places, kept = heap_of(ranks, positions, k, 2)
        order = np.lexsort((positions, -ranks))[:k]
        assert kept == len(order)
        assert found[2 : 2 + kept].tolist() == ranks[order].tolist()
        assert places[2 : 2 + kept].tolist() == positions[order].tolist()
        assert (found[:2] == 5).all()
        assert found[-1] == 5


@njit
def cosine(product, query_square, square, a, b):
    return best.cosine(product, query_square, square, a, 0, b, 0, a.size)


def test_cosines():
    one, other = np.array([1.0, 2, 3]), np.array([-2.0, -4, -6])
    assert cosine(0.0, 0.0, 14.0, 0 * one, one) == 0
    assert cosine(0.0, 14.0, 0.0, one, 0 * one) == 0
    assert cosine(np.nextafter(14, 0), 14.0, 14.0, one, one) == 1  # parallel, whatever sums lose
    assert cosine(-28.1, 14.0, 56.0, one, other) == -1
    near = np.array([1.0, 2, np.nextafter(3, 4)])
    assert cosine(14.1, 14.0, 14.0, one, near) == 1  # never beyond
    assert cosine(13.0, 14.0, 14.0, one, near) == 13 / 14
    for size in (2.0**-537, 2.0**-500, 2.0**250, 2.0**500):  # the product of the squares is no normal number
        square = 2 * size * size
        assert cosine(size * size, square, square, np.array([size, size]), np.array([size, 0.0])) == pytest.approx(0.5)


def encoded(x, metric="l2", centre=None, factor=1.0):
    depth = x.shape[1]
    frame, found = Frame(metric, np.zeros(depth) if centre is None else centre, factor), Encoded.empty(*x.shape)
    encode("x", "x", x, frame, found)
    return found


@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("depth", [1, 3, 8, 33, 100, 384])
def test_what_encoding_tells_of_a_row(metric, dtype, depth, thread_count):
    rng = np.random.default_rng(depth)
    x, centre, factor = rng.standard_normal((20, depth)).astype(dtype), rng.standard_normal(depth), 0.25
    x[3] = 0
    codes, scales, facts = encoded(x, metric, centre, factor)
    wide = x.astype(np.float64)
    squares = np.square(wide).sum(axis=1)
    lengths = np.where(squares > 0, np.sqrt(squares), 1)
    differences = (wide / lengths[:, None] if metric == "cosine" else wide) - centre
    w = (differences * factor * signs_of(depth)) @ hadamard(depth)
    # The length of the codes of most rows is 40 times the root of the depth; no code is beyond 127.
    assert np.allclose(
        scales, np.maximum(np.abs(w).max(axis=1) / 127, facts[:, LENGTH] / (40 * np.sqrt(depth))), rtol=1e-5
    )
    assert np.allclose(facts[:, LENGTH], np.sqrt(np.square(differences).sum(axis=1)) * factor, rtol=1e-12)
    exact = w / scales[:, None].astype(np.float64)
    assert (np.abs(exact - codes) <= 0.5001).all()
    lost = np.sqrt(np.square(exact - codes).sum(axis=1))
    assert np.allclose(facts[:, RESIDUAL], lost, rtol=1e-3, atol=1e-3)
    assert np.allclose(facts[:, CODE_LENGTH], np.sqrt(np.square(codes.astype(float)).sum(axis=1)), rtol=1e-3)
    term = np.square(differences) if metric == "l2" else differences * centre
    assert np.allclose(facts[:, TERM], term.sum(axis=1), rtol=1e-12, atol=1e-12)
    if metric == "cosine":
        assert facts[:, SQUARE].tolist() == sums_by_eight(wide * wide).tolist()


def test_rows_that_have_no_codes():
    x = np.ones((4, 8))
    x[1] *= 2.0**41
    codes, scales, _ = encoded(x)
    assert (scales == 0).tolist() == [False, True, False, False]
    assert not codes[1].any()
    x[1], x[2] = 1e-160, 0  # whose squares have few digits
    _, scales, facts = encoded(x, "cosine")
    assert (scales == 0).tolist() == [False, True, False, False]
    assert facts[2, SQUARE] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**501])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("place", [(0, 0), (7, 3), (19, 32)])
def test_what_is_refused(bad, metric, place):
    x = np.random.default_rng(0).standard_normal((20, 33))
    x[place] = bad
    x[19, 32] = bad
    for threads in (1, 3):
        with (
            use_budget(threads, grain=1),
            pytest.raises(ValueError, match=rf"x\[{place[0]}, {place[1]}\] is .*; allowed: finite numbers"),
        ):
            encoded(x, metric)
    x[place] = x[19, 32] = -(2.0**500)
    encoded(x, metric)


def test_a_row_is_encoded_the_same_wherever_it_is():
    x = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    whole = encoded(x)
    for threads, part in ((1, slice(3, 4)), (3, slice(5, 30)), (8, slice(0, 40))):
        with use_budget(threads, grain=1):
            found = encoded(x[part])
        for one, other in zip(found, whole, strict=True):
            assert one.tobytes() == other[part].tobytes()
