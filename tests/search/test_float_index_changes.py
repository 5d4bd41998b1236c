"""A `FloatIndex` whose vectors change: what is added, removed, moved and returned, also while others search."""

import pickle

import numpy as np
import pytest
from random_searches import METRICS

import dmlcpu
from dmlcpu import reference
from dmlcpu.search import FloatIndex


def same(found, expected):
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_added_and_removed_vectors(rng, metric, dtype, codes_decide):
    vectors, queries = (rng.standard_normal((n, 10)).astype(dtype) for n in (500, 6))
    index = FloatIndex(vectors[:0], metric)
    for start in range(0, 500, 70):
        index.add(vectors[start : start + 70])
    assert (index.ntotal, len(index), index.d, index.is_trained) == (500, 500, 10, True)
    assert same(index.search(queries, 8), reference.exact_knn(queries, vectors, 8, metric))
    assert index.remove_ids([3, 5, 5, 1000, -1]) == 2
    kept = np.delete(vectors, [3, 5], axis=0)
    assert same(index.search(queries, 8), reference.exact_knn(queries, kept, 8, metric))
    index.add(vectors[:5].tolist())
    both = np.vstack([kept, vectors[:5]])
    assert same(index.search(queries, 8), reference.exact_knn(queries, both, 8, metric))
    index.reset()
    assert index.ntotal == 0
    index.add(1e6 * vectors[:30].astype(np.float64))  # an empty index takes any type and another center
    assert index.reconstruct_n().dtype == np.float64
    far = 1e6 * queries.astype(np.float64)
    expected = reference.exact_knn(far, 1e6 * vectors[:30].astype(np.float64), 8, metric)
    assert same(index.search(far, 8), expected)


def test_additions_far_from_the_others_are_found(rng, codes_decide):
    near, far = rng.standard_normal((600, 12)).astype(np.float32), 1e5 * rng.standard_normal((600, 12))
    far = far.astype(np.float32)
    for metric in METRICS:
        index = FloatIndex(near, metric)
        index.add(far)
        index.add(far * np.float32(1e25))  # beyond what has codes
        everything = np.vstack([near, far, far * np.float32(1e25)])
        queries = np.vstack([near[:3], far[:3], far[:2] * np.float32(1e25)])
        assert same(index.search(queries, 9), reference.exact_knn(queries, everything, 9, metric))


def test_vectors_with_ids(rng):
    vectors = rng.standard_normal((40, 9))
    index = FloatIndex(vectors[:0], "l2")
    index.add_with_ids(vectors[:25], np.arange(25) * 3)
    index.add_with_ids(vectors[25:], np.arange(25, 40, dtype=np.uint16) * 3)
    scores, places = reference.exact_knn(vectors[:4], vectors, 6, "l2")
    assert same(index.search(vectors[:4], 6), (scores, places * 3))
    assert index.reconstruct(9).tolist() == vectors[3].tolist()
    assert index.reconstruct_batch([9, 0]).tolist() == vectors[[3, 0]].tolist()
    assert index.assign(vectors[:2], 2).tolist() == (places[:2, :2] * 3).tolist()
    assert index.remove_ids(np.array([9, 10])) == 1
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match="reconstruct: i is 9; allowed: an id of the index"):
        index.reconstruct(9)
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match=r"reconstruct_batch: ids\[1\] is 9; allowed: an id of"):
        index.reconstruct_batch([0, 9])


def test_vectors_of_another_index_move(rng):
    x = rng.standard_normal((30, 5))
    one, other = FloatIndex(x[:20], "l2"), FloatIndex(x[20:], "l2")
    one.merge_from(other)
    assert (one.ntotal, other.ntotal) == (30, 0)
    assert same(one.search(x[:4], 5), reference.exact_knn(x[:4], x, 5, "l2"))
    one, other = FloatIndex(x[:20], ids=np.arange(20)), FloatIndex(x[20:], ids=np.arange(10))
    with pytest.raises(dmlcpu.DmlError, match=r"FloatIndex.merge_from: ids\[0\] is 0; allowed: ids that the index"):
        one.merge_from(other)
    assert (one.ntotal, other.ntotal) == (20, 10)
    one.merge_from(other, 100)
    assert one.search(x[25], 1)[1].tolist() == [105] or one.reconstruct(105).tolist() == x[25].tolist()
    for wrong in (one, FloatIndex(x, "cosine"), dmlcpu.search.Int8Index(x)):
        with pytest.raises(dmlcpu.DmlError, match=r"FloatIndex.merge_from: other is .*; allowed: another FloatIndex"):
            one.merge_from(wrong)
    with pytest.raises(dmlcpu.DmlError, match="allowed: another FloatIndex with d=5"):
        one.merge_from(FloatIndex(np.ones((3, 4)), ids=[1, 2, 3]))


@pytest.mark.parametrize("metric", METRICS)
def test_search_by_radius(rng, metric):
    vectors, queries = rng.standard_normal((900, 6)), rng.standard_normal((5, 6))
    ids = rng.permutation(5000)[:900]
    scores, found = FloatIndex(vectors, metric, ids).search(queries, 900)
    for radius in (scores[0, 0], scores[0, 10], scores[0, 300], np.median(scores), -np.inf, np.inf):
        lims, hits, names = FloatIndex(vectors, metric, ids).range_search(queries, radius)
        inside = scores < radius if metric == "l2" else scores > radius
        assert lims.tolist() == [0, *np.cumsum(inside.sum(axis=1))]
        assert hits.tolist() == scores[inside].tolist()
        assert names.tolist() == found[inside].tolist()
    assert [each.tolist() for each in FloatIndex([[0.0], [1.0]], "l2").range_search([[0]], 1.0)] == [[0, 1], [0], [0]]
    assert FloatIndex(vectors[:0]).range_search(queries, 0)[0].tolist() == [0] * 6
    with pytest.raises(dmlcpu.DmlError, match=r"FloatIndex\.range_search: radius is nan; allowed: a number"):
        FloatIndex(vectors).range_search(queries, float("nan"))


def test_found_vectors_are_returned(rng):
    x = rng.standard_normal((4, 3))
    index = FloatIndex(x, ids=[5, 6, 7, 8])
    scores, found, vectors = index.search_and_reconstruct(x[:2], 5)
    assert same((scores, found), index.search(x[:2], 5))
    assert vectors.shape == (2, 5, 3)
    assert vectors[0, :4].tolist() == x[found[0, :4] - 5].tolist()
    assert not vectors[:, 4].any()
    assert index.reconstruct_n(1, 2).tolist() == x[1:3].tolist()
    for ni in (-2, 4):
        with pytest.raises(dmlcpu.IndexOutOfRangeError, match=f"reconstruct_n: ni is {ni}; allowed: -1, or 0 to 3"):
            index.reconstruct_n(1, ni)


@pytest.mark.parametrize("metric", METRICS)
def test_pickles(rng, metric):
    vectors = rng.standard_normal((30, 8)).astype(np.float16)
    index = FloatIndex(vectors, metric, np.arange(30) + 100)
    again = pickle.loads(pickle.dumps(index))
    assert repr(again) == repr(index) == f"FloatIndex(30 x 8 float16, metric='{metric}', ids)"
    assert same(again.search(vectors, 5), index.search(vectors, 5))
    again.add_with_ids(vectors[:1], [7])
    assert (again.ntotal, index.ntotal) == (31, 30)
    assert (index.metric, index.metric_type) == (metric, int(metric == "l2"))
