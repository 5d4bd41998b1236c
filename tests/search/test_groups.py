"""Vectors that defeat their codes are encoded again, and the answer stays the same."""

import concurrent.futures
import pickle

import numpy as np
import pytest
from random_searches import METRICS, hostile

from dmlcpu import reference
from dmlcpu.search import FloatIndex, exact, groups


@pytest.fixture
def at_once(monkeypatch, codes_decide):
    """One query for which codes decide nothing is enough."""
    monkeypatch.setattr(exact, "_DEFEATS", 1)
    monkeypatch.setattr(exact, "_CANDIDATES", 16)


def same(found, expected):
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


def in_groups(rng, count, depth, centres=2, apart=1e5):
    vectors = apart * rng.standard_normal((centres, depth))[rng.integers(0, centres, count)]
    return (vectors + rng.standard_normal((count, depth))).astype(np.float32)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_far_groups_have_their_own_centres(rng, metric, dtype, at_once, thread_count):
    vectors = in_groups(rng, 3000, 24, 3, apart=300).astype(dtype)
    queries = vectors[:20] + rng.standard_normal((20, 24)).astype(dtype)
    index, expected = FloatIndex(vectors, metric), reference.exact_knn(queries, vectors, 5, metric)
    index.stored.defeats.queries = 1
    scores, found, report = index.search(queries, 5, report=True)
    assert same((scores, found), expected)
    assert len(index.stored.defeats.groups.groups) == 3
    assert report.scored.max() < 3000 / 4
    assert set(report.passes.tolist()) == {2}
    for k in (1, 900, 3005):  # more than a group has, and more than all have
        assert same(index.search(queries, k), reference.exact_knn(queries, vectors, k, metric))


def test_groups_are_looked_for_after_some_queries(rng, monkeypatch, codes_decide):
    vectors = in_groups(rng, 3000, 24)
    monkeypatch.setattr(exact, "_DEFEATS", 10)
    index, scored = FloatIndex(vectors, "l2"), []
    for first in range(0, 48, 4):
        scores, found, report = index.search(vectors[first : first + 4] + 0.1, 5, report=True)
        assert same((scores, found), reference.exact_knn(vectors[first : first + 4] + 0.1, vectors, 5, "l2"))
        scored.append(int(report.scored.max()))
        assert (index.stored.defeats.groups is None) == (index.stored.defeats.queries < 10)
    assert scored[0] > 3000 > 500 > scored[-1]
    index.add(vectors[:1] + 1)  # other vectors are others' groups
    assert index.stored.defeats.groups is None


def test_masks_need_no_groups(rng, at_once):
    vectors, mask = in_groups(rng, 3000, 24), rng.random(3000) < 0.5
    index = FloatIndex(vectors, "l2")
    found = index.search(vectors[:9], 5, mask=mask)
    assert same(found, reference.exact_knn(vectors[:9], vectors, 5, "l2", mask=mask))
    assert not index.stored.defeats.is_known
    index.search(vectors[:9], 5)
    assert index.stored.defeats.groups
    assert same(index.search(vectors[:9], 5, mask=mask), found)


def test_groups_do_not_help_where_all_are_scored_anyway(rng, at_once):
    vectors = in_groups(rng, 3000, 24)
    index = FloatIndex(vectors, "l2")
    index.search(vectors[:9], 5)
    scores, found, report = index.search(vectors[:9], 400, report=True)
    assert same((scores, found), reference.exact_knn(vectors[:9], vectors, 400, "l2"))
    assert report.passes.tolist() == [3] * 9


@pytest.mark.parametrize("row", [0, 7])
def test_a_file_that_has_nan_by_now_has_no_groups(rng, row, at_once, tmp_path):
    """Row 0 is looked at, row 7 is not: of 3,000 vectors, a third is."""
    vectors = in_groups(rng, 3000, 24)
    FloatIndex(vectors, "l2").save(tmp_path / "index")
    floats = np.load(tmp_path / "index" / "floats.npy", mmap_mode="r+")
    floats[row, 3] = np.nan
    floats.flush()
    index = FloatIndex.load(tmp_path / "index")
    for _ in range(2):
        _, found = index.search(vectors[100:150], 5)
        others = np.delete(np.arange(3000), row)
        assert np.array_equal(found, others[reference.exact_knn(vectors[100:150], vectors[others], 5, "l2")[1]])
    assert index.stored.defeats.groups is None


def test_threads_look_for_groups_once(rng, at_once, monkeypatch):
    vectors, looked = in_groups(rng, 3000, 24), []
    look = exact.groups_of
    monkeypatch.setattr(exact, "groups_of", lambda stored: looked.append(1) or look(stored))
    index = FloatIndex(vectors, "l2")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: index.search(vectors[:40], 5), range(16)))
    assert len(looked) == 1
    assert all(same(each, results[0]) for each in results)
    assert not index.stored.defeats.lock.locked()
    assert same(pickle.loads(pickle.dumps(index)).search(vectors[:40], 5), results[0])


def test_a_search_within_the_search_for_groups_does_not_wait(rng, at_once, monkeypatch):
    """As a signal handler may do."""
    vectors, inner = in_groups(rng, 3000, 24), []
    look, index = exact.groups_of, FloatIndex(vectors, "l2")
    monkeypatch.setattr(exact, "groups_of", lambda stored: inner.append(index.search(vectors[:9], 5)) or look(stored))
    found = index.search(vectors[:9], 5)
    assert len(inner) == 1
    assert same(inner[0], found)
    assert index.stored.defeats.groups


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 3, 40, 700, 1999, 2000])
def test_equal_vectors_are_searched_once(rng, metric, k, at_once):
    """The vectors of -1, 0 and 1 that there are in three dimensions: equal ranks of different vectors, too."""
    vectors = rng.integers(-1, 2, (2000, 3)).astype(np.float32)
    queries = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0.5, -1, 2]], np.float32)
    index = FloatIndex(vectors, metric)
    index.stored.defeats.queries = 1
    scores, found, report = index.search(queries, k, report=True)
    assert same((scores, found), reference.exact_knn(queries, vectors, k, metric))
    assert report.scored.max() <= 27


def test_vectors_that_are_not_equal_have_other_hashes(rng):
    """Signs and round numbers, whose bits differ at the upper ends alone."""
    for dtype in ("float16", "float32", "float64"):
        signs = rng.choice([-1.0, 1.0], (200, 24)).astype(dtype)
        vectors = np.concatenate([np.repeat(signs[:1], 600, axis=0), signs, signs])
        assert len(groups._repeats(vectors).firsts) == 200


def test_vectors_that_are_seldom_equal_stay(rng):
    vectors = rng.standard_normal((2000, 8)).astype(np.float32)
    vectors[:200] = 0
    assert groups._repeats(vectors) is None
    vectors[:300] = 0
    assert len(groups._repeats(vectors).firsts) == 1701


def test_hashes_that_are_equal_by_chance_mean_nothing(rng, monkeypatch):
    vectors = rng.integers(0, 2, (500, 3)).astype(np.float32)
    repeats = groups._repeats(vectors)
    assert len(repeats.firsts) == 8
    monkeypatch.setattr(groups, "_hashes", lambda bits, _: np.zeros(len(bits), np.uint64))
    by_chance = groups._repeats(vectors)
    for each in (repeats, by_chance):
        assert sorted(each.order.tolist()) == list(range(500))
        for number, (start, end) in enumerate(zip(each.starts[:-1], each.starts[1:], strict=True)):
            places = each.order[start:end]
            assert (np.diff(places) > 0).all()
            assert (vectors[places] == vectors[places[0]]).all()
            assert (each.place[places] == number).all()


@pytest.mark.parametrize("kind", ["normal", "small integers", "one far dimension"])
def test_other_vectors_stay_as_they_are(rng, kind):
    assert groups.groups_of(FloatIndex(hostile(rng, 2000, 24, kind)).stored) is None
