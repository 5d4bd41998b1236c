"""The bounds by which codes select are true: in exact arithmetic, for rows that are hard for float32 and float64."""

import itertools
from operator import mul
from unittest import mock

import numpy as np
import pytest
from random_searches import FLOATS, KINDS, as_type, hostile

from dmlcpu.reference.searches import _exact_scores
from dmlcpu.search import codes, exact
from dmlcpu.search.codes import frame_of, stored_floats, terms_of
from dmlcpu.search.vectors import storable

METRICS = ("ip", "l2", "cosine")


def unit_of(*arrays):
    """Return a number such that every float of some arrays is a whole number of 1 / unit."""
    least = min(np.frexp(x[x != 0])[1].min(initial=53) for x in arrays)
    return 1 << max(0, 53 - int(least))


def whole(x, unit):
    """Return rows of floats as whole numbers of 1 / unit, each with the sum of their squares."""
    rows = [[one * (unit // other) for one, other in map(float.as_integer_ratio, row)] for row in x.tolist()]
    return [(row, sum(map(mul, row, row))) for row in rows]


def reaches(bound, query, vector, metric, unit):
    """Return whether a float is at least the exact rank of two rows of whole numbers."""
    if np.isinf(bound):
        return bool(bound > 0)
    one, other = float(bound).as_integer_ratio()
    product, squares = sum(map(mul, query[0], vector[0])), (query[1], vector[1])
    if metric != "cosine":
        rank = product if metric == "ip" else 2 * product - sum(squares)
        return one * unit**2 >= other * rank
    if not all(squares):
        return one >= 0
    limit, rank = one**2 * squares[0] * squares[1], (other * product) ** 2  # the squares of both
    return (limit if one > 0 else -limit) >= (rank if product > 0 else -rank)


def bounds_of(queries, vectors, metric, centre=None):
    """Yield which queries are near, the scores that the selection computes, and the bounds of ranks (M, N).

    First with eight bits a query, then with seven, as where products of eight take longer: on some processors, and
    for some numbers of rows.
    """
    frame = frame_of(metric, vectors)
    if centre is not None:  # any is correct
        frame = frame._replace(centre=np.full(frame.depth, np.float32(centre), np.float64))
    stored = stored_floats("x", storable(vectors), frame)
    for has_seven_bits in (False, True):
        with mock.patch.object(codes, "saturates", lambda rows, found=has_seven_bits: found):
            terms = terms_of("x", storable(queries), stored.frame, stored.limits)
        assert (terms.zero_point is not None) == has_seven_bits
        near, count = np.flatnonzero(terms.is_near), len(vectors)
        values, places = exact._candidates(stored, terms, near, count, None, np.full(len(near), -np.inf, np.float32))
        assert (np.sort(places, axis=1) == np.arange(count)).all()
        scores = np.empty_like(values)
        np.put_along_axis(scores, places, values, axis=1)
        affine = terms.affine[near]
        bounds = affine[:, :1] * scores + affine[:, 1:]
        if metric == "l2":
            bounds = np.minimum(bounds, 0) * (1 - 2.0**-36)  # as the kernel that refines does
        yield near, scores, bounds, affine


def assert_true(queries, vectors, metric, every=1, centre=None):
    """Check that no rank of a vector is above its bound: neither the exact one (of some) nor the one computed."""
    least, found = np.full((len(queries), len(vectors)), np.inf), [*bounds_of(queries, vectors, metric, centre)]
    for near, _, bounds, _ in found:
        assert not np.isnan(bounds).any()
        least[near] = np.minimum(least[near], bounds)
    q, v = queries.astype(np.float64), vectors.astype(np.float64)
    ranks = np.array([_exact_scores(query, v, metric) for query in q]) * (-1 if metric == "l2" else 1)
    for near, scores, bounds, affine in found:
        above = np.argwhere(ranks[near] > bounds)
        assert not above.size, (metric, above[:5], near)
        for row, query in enumerate(near):
            lowest = exact._scores_of(ranks[query], np.repeat(affine[row : row + 1], len(v), axis=0))
            assert (lowest <= scores[row]).all(), (metric, int(query), np.flatnonzero(lowest > scores[row])[:5])
    some = [row for row in {*found[0][0], *found[1][0]} if is_exact(metric, q[row], v)]
    unit = unit_of(q[some], v[::every])
    rows = whole(v[::every], unit)
    for row, query in zip(some, whole(q[some], unit), strict=True):
        bounds = least[row, ::every]
        wrong = [i for i, each in enumerate(rows) if not reaches(bounds[i], query, each, metric, unit)]
        assert not wrong, (metric, row, every, wrong[:5], bounds[wrong[:5]], ranks[row, ::every][wrong[:5]])
    return sum(len(near) for near, *_ in found)


def is_exact(metric, query, vectors):
    """Return whether exact cosines are those meant: not of rows whose squares are 0, or have few digits."""
    rows = np.vstack([query.astype(np.float64), vectors])
    squares = np.square(rows).sum(axis=1)
    return metric != "cosine" or bool(((squares > 1e-290) | (rows == 0).all(axis=1)).all())


def rows_of(seed, kind, dtype, depth, count=60):
    """Return queries and vectors of a kind."""
    rng = np.random.default_rng(seed)
    x = hostile(rng, count, depth, kind)
    near = x[rng.integers(0, count, 4)]
    near[2:] *= 1 + 1e-3 * rng.standard_normal((2, depth))
    other = hostile(rng, 2, depth, str(rng.choice(KINDS)))
    q = np.concatenate([near, -near[:1], other, near[:2] * rng.choice([1e-20, 1e-4, 1e4])])
    return as_type(q, dtype), as_type(x, dtype)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_rank_is_above_its_bound(kind, metric):
    checked, odd = 0, (KINDS.index(kind) + METRICS.index(metric)) % 2
    for seed, (depth, dtype) in enumerate(itertools.product((1, 2, 7, 16, 40), FLOATS)):
        if (seed + depth) % 2 == odd:  # half of the pairs; a kind has all of them with one metric or another
            checked += assert_true(*rows_of(seed, kind, dtype, depth), metric, every=7)
    assert checked > 50


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_rank_of_many_is_above_its_bound(kind, metric):
    depths = 3, 5, 8, 33, 130, 1000
    first = 100 + 3 * (KINDS.index(kind) % 4)  # four kinds have all pairs of types and depths
    for seed in range(first, first + 3):
        dtype, depth = FLOATS[seed % 4], depths[seed % 6]
        assert_true(*rows_of(seed, kind, dtype, depth), metric, every=30 if depth < 100 else 10**9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("exponent", [-323, -308, -200, -165, -163, -162, -161, -160, -158, -156, -154, -150, 100, 148])
def test_where_squares_are_subnormal_or_nearly_infinite(metric, exponent):
    rng, checked = np.random.default_rng(0), 0
    for depth in (1, 2, 8, 40):
        vectors = rng.standard_normal((60, depth)) * 10.0**exponent
        queries = np.vstack([vectors[:4], -vectors[:2], rng.standard_normal((3, depth)) * 10.0**exponent])
        checked += assert_true(queries, vectors, metric, every=10)
        checked += assert_true(rng.standard_normal((3, depth)), vectors, metric, every=10)
    assert checked or metric == "cosine"


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("exponent", [-60, -100, -116, -120, -124, -140])
def test_tiny_queries_that_are_not_centred(metric, exponent):
    """Products with rows near the center underflow in float32, and no term of the vectors hides that."""
    centre, checked = 2.0**exponent, 0
    for seed, depth in enumerate((1, 2, 8, 40)):
        rng = np.random.default_rng(seed)
        for spread in (-24, -30, -60):
            vectors = np.vstack([-np.ones((1, depth)), 2.0**spread * rng.standard_normal((59, depth))]) + centre
            queries = 2.0 ** np.array([[-110.0], [-120], [-126], [-130], [-149]]) * np.abs(rng.standard_normal(depth))
            for dtype in (np.float32, np.float64):
                checked += assert_true(queries.astype(dtype), vectors.astype(dtype), metric, every=5, centre=centre)
    assert checked > 100


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("centre", [0, 1, -1e3, 1e10, 1e30, 1e-30])
def test_any_centre_is_correct(metric, centre):
    for seed, kind in enumerate(KINDS):
        depth = (1, 8, 40)[(seed + METRICS.index(metric)) % 3]  # a kind has all three, with one metric or another
        assert_true(*rows_of(seed, kind, FLOATS[seed % 4], depth), metric, every=20, centre=centre)


def test_the_check_of_bounds_finds_those_that_are_too_low():
    """Without the terms that make them bounds, the same numbers are refused."""
    rows = rows_of(0, "normal", np.dtype(np.float32), 16)
    unit = unit_of(*rows)
    q, v = whole(rows[0], unit), whole(rows[1], unit)
    for metric in METRICS:
        near, _, bounds, _ = next(bounds_of(*rows, metric))
        ranks = _exact_scores(rows[0][near[0]].astype(np.float64), rows[1].astype(np.float64), metric)
        ranks *= -1 if metric == "l2" else 1
        apart = (bounds[0] - ranks).max()
        assert (bounds[0] >= ranks).all()
        assert all(reaches(bound, q[near[0]], row, metric, unit) for bound, row in zip(bounds[0], v, strict=True))
        assert not any(
            reaches(bound, q[near[0]], row, metric, unit) for bound, row in zip(bounds[0] - 2 * apart, v, strict=True)
        )
        for rank, row in zip(ranks[:20], v, strict=False):
            assert reaches(rank + 1e-9, q[near[0]], row, metric, unit)
            assert not reaches(rank - 1e-9, q[near[0]], row, metric, unit)
