import functools
import pickle
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import dmlcpu
from dmlcpu import reference
from dmlcpu.reference.searches import int8_knn
from dmlcpu.search import FloatIndex, Int8Index, knn
from dmlcpu.search.ranking import MOST_CANDIDATES
from dmlcpu.search.vectors import Stored

METRICS = ("ip", "l2", "cosine")


def normals(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def same(found, expected):
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
def test_a_query_finds_the_same_alone_and_among_others(rng, metric, dtype, thread_count):
    vectors = (100 * normals(rng, 700, 50)).astype(dtype)
    queries = (100 * normals(rng, 40, 50)).astype(dtype)
    index = Int8Index(vectors, metric)
    scores, found = index.search(queries, 20)
    for row in (0, 7, 39):
        assert same(index.search(queries[row], 20), (scores[row], found[row]))
        assert same(index.search(queries[row : row + 1], 3), (scores[row : row + 1, :3], found[row : row + 1, :3]))


def test_integer_scores_are_exact_beyond_float32(rng):
    vectors = np.full((3, 16_384), 255, np.uint8)
    vectors[1, 0] = 254
    scores, found = Int8Index(vectors).search(vectors[:1], 3)
    assert scores.tolist() == [[255 * 255 * 16_384, 255 * 255 * 16_384, 255 * 255 * 16_384 - 255]]
    assert found.tolist() == [[0, 2, 1]]
    scores, found = Int8Index(vectors, "l2").search(np.zeros((1, 16_384), np.uint8), 2)
    assert scores.tolist() == [[255 * 255 * 16_383 + 254 * 254, 255 * 255 * 16_384]]
    scores, _ = Int8Index(np.full((1, 16_384), -128, np.int8), "l2").search(np.full(16_384, 255, np.uint8), 1)
    assert scores.tolist() == [16_384 * 383 * 383]


@pytest.mark.parametrize("metric", METRICS)
def test_zero_vectors(metric):
    zero = np.zeros((2, 4), np.float32)
    scores, found = Int8Index(zero, metric).search(zero, 3)
    worst = np.inf if metric == "l2" else -np.inf
    assert scores.tolist() == [[0, 0, worst]] * 2
    assert found.tolist() == [[0, 1, -1]] * 2


def test_allowed_vectors(rng):
    vectors, queries = rng.integers(-9, 9, (300, 8)).astype(np.int8), rng.integers(-9, 9, (5, 8)).astype(np.int8)
    ids = rng.permutation(1000)[:300]
    index = Int8Index(vectors, ids=ids)
    for allowed in (np.arange(0, 300, 2), np.array([7, 8, 150]), np.array([], int), np.arange(300)):
        mask = np.isin(np.arange(300), allowed)
        scores, places = int8_knn(queries, vectors, 10, mask=mask)
        expected = scores, np.where(places < 0, -1, ids[places])
        assert same(index.search(queries, 10, mask=mask), expected)
        assert same(index.search(queries, 10, allowlist=[*ids[allowed], 5000, *ids[allowed]]), expected)
        assert same(index.search(queries, 10, mask=mask, allowlist=ids), expected)


def test_a_memory_mapped_array_is_searched_without_a_copy(rng, tmp_path):
    np.save(tmp_path / "f.npy", normals(rng, 50, 8))
    floats = np.load(tmp_path / "f.npy", mmap_mode="r")
    assert same(knn(floats, floats, 5), reference.knn(floats, floats, 5))
    np.save(tmp_path / "v.npy", rng.integers(-9, 9, (50, 8)).astype(np.int8))
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    index = Int8Index(mapped)
    assert np.shares_memory(index.stored.vectors, mapped)
    assert same(index.search(mapped[:3], 5), reference.knn(mapped[:3], mapped, 5))


@pytest.mark.parametrize("layout", ["transposed", "reversed", "every other", "bigendian"])
def test_layouts(rng, layout):
    plain = normals(rng, 30, 12)
    laid = {
        "transposed": np.asfortranarray(plain),
        "reversed": np.ascontiguousarray(plain[::-1])[::-1],
        "every other": np.repeat(plain, 2, axis=1)[:, ::2],
        "bigendian": plain.astype(">f4"),
    }[layout]
    assert same(
        Int8Index(laid, "l2", floats=True).search(laid, 4, rescore=2), int8_knn(plain, plain, 4, "l2", rescore=2)
    )


def test_a_quantized_vector_is_within_half_a_step(rng):
    vectors = normals(rng, 20, 30)
    index = Int8Index(vectors)
    for i in range(20):
        step = np.abs(vectors[i]).max() / 127
        assert np.abs(index.reconstruct(i) - vectors[i]).max() <= 0.5001 * step
    assert Int8Index(vectors, floats=True).reconstruct(3).tolist() == vectors[3].tolist()


def test_rescoring_finds_what_floats_find(rng):
    vectors, queries = normals(rng, 2000, 32), normals(rng, 20, 32)
    exact = np.argsort(-(queries.astype(float) @ vectors.T.astype(float)), axis=1)[:, :10]
    scores, found = Int8Index(vectors, floats=True).search(queries, 10, rescore=5)
    assert np.array_equal(found, exact)
    products = (queries.astype(float)[:, None] * vectors[exact].astype(float)).sum(2)
    assert np.allclose(scores, products, rtol=1e-6)


def test_floats_may_be_a_file(rng, tmp_path):
    vectors = normals(rng, 40, 6)
    np.save(tmp_path / "floats.npy", vectors)
    kept = Int8Index(vectors, "cosine", floats=tmp_path / "floats.npy")
    assert isinstance(kept.stored.floats, np.memmap)
    expected = Int8Index(vectors, "cosine", floats=True).search(vectors, 3, rescore=2)
    assert same(kept.search(vectors, 3, rescore=2), expected)


def ranged(rng, dtype):
    """Return floats, their bytes as sentence-transformers makes them, and the ranges."""
    width, middle = np.linspace([0.1, -2], [3, 5], 24, dtype=np.float32).T
    floats = normals(rng, 1500, 24) * width + middle
    ranges = np.vstack([floats.min(axis=0), floats.max(axis=0)])
    codes = np.clip(np.floor((floats - ranges[0]) / ((ranges[1] - ranges[0]) / 255)), 0, 255)
    return floats, (codes if dtype == "uint8" else codes - 128).astype(dtype), ranges


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_ranges_make_affine_bytes_estimate_floats(rng, metric, dtype):
    floats, codes, ranges = ranged(rng, dtype)
    queries = floats[::100] + normals(rng, 15, 24)
    exact, best = reference.exact_knn(queries, floats, 10, metric)
    index = Int8Index(codes, metric, ranges=ranges)
    scores, found = index.search(queries, 10)
    shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), best.tolist(), strict=True)]
    assert np.mean(shared) > 9
    assert np.allclose(scores, exact, rtol=0.03, atol=0.1)
    for row in (0, 14):  # alone as among others
        assert same(index.search(queries[row], 10), (scores[row], found[row]))
    if metric == "ip":
        plain = Int8Index(codes, metric).search(queries, 10)[1]  # what the page says is lost
        assert np.mean([len(set(a) & set(b)) for a, b in zip(plain.tolist(), best.tolist(), strict=True)]) < 7


def test_queries_of_affine_bytes_are_decoded(rng):
    _, codes, ranges = ranged(rng, "uint8")
    index = Int8Index(codes, "l2", ranges=ranges)
    scores, found = index.search(codes[:50], 1)
    assert found.ravel().tolist() == list(range(50))
    assert scores.max() < 0.02 * index.search(codes[:50], 1500)[0].max()
    assert index.reconstruct(3).tolist() == codes[3].tolist()


def test_a_dimension_with_one_value_has_no_step(rng):
    codes = np.zeros((3, 2), np.uint8)
    codes[:, 1] = [0, 100, 255]
    index = Int8Index(codes, ranges=[[5.0, 0.0], [5.0, 255.0]])
    scores, found = index.search(np.array([[1.0, 0.0], [0.0, 1.0]]), 3)
    assert np.allclose(scores, [[5, 5, 5], [255.5, 100.5, 0.5]], rtol=1e-6)
    assert found.tolist() == [[0, 1, 2], [2, 1, 0]]


@pytest.mark.parametrize("metric", METRICS)
def test_added_and_removed_vectors(rng, metric):
    vectors, queries = normals(rng, 120, 10), normals(rng, 6, 10)
    index = Int8Index(vectors[:0], metric, floats=True)
    for start in range(0, 120, 7):
        index.add(vectors[start : start + 7])
    assert index.ntotal == len(index) == 120
    assert same(index.search(queries, 8, rescore=2), int8_knn(queries, vectors, 8, metric, rescore=2))
    assert index.remove_ids([3, 5, 5, 400, -1]) == 2
    kept = np.delete(vectors, [3, 5], axis=0)
    assert same(index.search(queries, 8), int8_knn(queries, kept, 8, metric))
    index.add(vectors[:5])
    assert same(index.search(queries, 8), int8_knn(queries, np.vstack([kept, vectors[:5]]), 8, metric))


def test_vectors_with_ids(rng):
    vectors = rng.integers(-50, 50, (40, 9)).astype(np.int8)
    index = Int8Index(vectors[:0])
    index.add_with_ids(vectors[:25], np.arange(25) * 3)
    index.add_with_ids(vectors[25:], np.arange(25, 40, dtype=np.uint16) * 3)
    scores, places = reference.knn(vectors[:4], vectors, 6)
    assert same(index.search(vectors[:4], 6), (scores, places * 3))
    assert index.reconstruct(9).tolist() == vectors[3].tolist()
    assert index.remove_ids(np.array([9, 10])) == 1
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match="reconstruct: i is 9; allowed: an id of the index"):
        index.reconstruct(9)


def test_an_earlier_search_is_not_changed_by_additions(rng):
    vectors = rng.integers(-50, 50, (40, 9)).astype(np.int8)
    index = Int8Index(vectors[:20])
    before = index.stored
    index.add(vectors[20:30])
    index.add(vectors[30:])
    assert len(before) == 20
    assert before.vectors.tolist() == vectors[:20].tolist()
    assert index.stored.vectors.tolist() == vectors.tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_pickles(rng, metric):
    vectors = normals(rng, 30, 8)
    index = Int8Index(vectors, metric, np.arange(30) + 100, floats=True)
    again = pickle.loads(pickle.dumps(index))
    assert repr(again) == repr(index) == f"Int8Index(30 x 8 int8, metric='{metric}', ids, floats)"
    assert same(again.search(vectors, 5, rescore=3), index.search(vectors, 5, rescore=3))
    again.add_with_ids(vectors[:1], [7])
    assert (again.ntotal, index.ntotal) == (31, 30)


@pytest.mark.parametrize(("make", "dtype"), [(Int8Index, np.int8), (FloatIndex, np.float64)])
def test_searches_in_threads_see_whole_changes(rng, make, dtype):
    vectors = rng.integers(-50, 50, (64, 16)).astype(dtype)
    index, wrong, done = make(vectors, "l2"), [], threading.Event()

    def search():
        while not done.is_set():
            _, found = index.search(vectors, 1)
            if found.ravel().tolist() != list(range(64)):
                wrong.append(found)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        index.add(vectors + 1)
        index.remove_ids(np.arange(64, 128))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert index.ntotal == 64


def test_many_queries_with_a_large_k_are_searched_in_blocks(rng):
    for dtype in ("int8", "float32"):
        vectors = (50 * normals(rng, 1500, 3)).astype(dtype)
        queries = vectors[: 2 * MOST_CANDIDATES // 1500 + 1]
        assert same(knn(queries, vectors, 1500, "l2"), reference.knn(queries, vectors, 1500, "l2"))


def test_one_query_and_empty_searches(rng):
    vectors = rng.integers(-50, 50, (10, 4)).astype(np.int8)
    index = Int8Index(vectors)
    scores, found = index.search(vectors[0], 3)
    assert scores.shape == found.shape == (3,)
    assert [each.shape for each in index.search(vectors[:0], 3)] == [(0, 3)] * 2
    assert [each.shape for each in index.search(vectors, 0)] == [(10, 0)] * 2
    scores, found = Int8Index(vectors[:0], "l2").search(vectors, 2)
    assert (scores == np.inf).all()
    assert (found == -1).all()


def test_vectors_of_a_file_with_nan_are_found_last(rng, tmp_path):
    floats = normals(rng, 5, 3)
    vectors = rng.integers(-9, 9, (5, 3), np.int8)
    floats[1:3] = np.nan
    np.save(tmp_path / "floats.npy", floats)
    scores, found = Int8Index(vectors, "l2", floats=tmp_path / "floats.npy").search(floats[0], 5, rescore=1)
    assert (scores[3:] == np.inf).all()
    assert found[3:].tolist() == [1, 2]


def test_removed_vectors_leave_memory(rng):
    index = Int8Index(normals(rng, 30, 4), floats=True)
    index.add(normals(rng, 30, 4))
    held = [weakref.ref(array.base) for array in index.stored.arrays().values()]
    index.remove_ids(range(50))
    assert [each() for each in held] == [None] * len(held)


def test_rescoring_takes_little_memory(rng):
    index = Int8Index(normals(rng, 2000, 4), "l2", floats=True)
    queries = normals(rng, 4000, 4)
    index.search(queries[:2], 10, rescore=100)
    tracemalloc.start()
    index.search(queries, 10, rescore=100)  # 4,000,000 candidates
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20


def test_many_cosines_of_1_are_found_in_order_of_position():
    """By float32 alone, some of them are a little less than 1."""
    vectors = np.arange(1, 128, dtype=np.int8)[:, None]
    scores, found = Int8Index(vectors, "cosine").search(np.arange(1, 128, 9, np.int8)[:, None], 3)
    assert (scores == 1).all()
    assert (found == [0, 1, 2]).all()


@pytest.mark.parametrize("name", ["order", "lengths", "int_bias", "float_bias", "sample", "defeats"])
def test_what_another_thread_computes_is_not_waited_for(name, monkeypatch):
    """It is another index's, or the thread is gone: a forked process has none of the others."""
    first, second = (
        Stored(np.zeros((3, 4), np.int8), np.ones(3, np.float32), np.ones(3, np.int32), np.arange(3)) for _ in range(2)
    )
    begun, goes_on, done = threading.Event(), threading.Event(), threading.Event()

    def late(self):
        begun.set()
        assert goes_on.wait(60)
        return real(self)

    kept = vars(Stored)[name]
    attribute = "_function" if hasattr(kept, "_function") else "func"
    real = getattr(kept, attribute)
    monkeypatch.setattr(kept, attribute, functools.wraps(real)(late))
    threads = [threading.Thread(target=lambda: getattr(first, name))]
    threads[0].start()
    assert begun.wait(60)
    monkeypatch.setattr(kept, attribute, real)
    threads.append(threading.Thread(target=lambda: (getattr(second, name), done.set())))
    threads[1].start()
    try:
        assert done.wait(20)
    finally:
        goes_on.set()
        for thread in threads:
            thread.join()
    assert getattr(first, name) is getattr(first, name)
