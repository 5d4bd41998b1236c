"""`FloatIndex` finds what its stated score says, whatever the data, the types, the threads and the way it takes."""

import itertools
import logging

import ml_dtypes
import numpy as np
import pytest
from random_searches import FLOATS, METRICS, as_type, hostile
from samples import THREADS

import dmlcpu
from dmlcpu import reference
from dmlcpu.runtime.threads import use_budget
from dmlcpu.search import FloatIndex, exact, knn, semantic_search, vectors as vectors_module


def same(found, expected):
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("of_queries", FLOATS, ids=str)
def test_every_pair_of_types(rng, metric, dtype, of_queries):
    vectors, queries = as_type(hostile(rng, 1500, 24, "normal"), dtype), as_type(hostile(rng, 5, 24, "x"), of_queries)
    vectors[7], vectors[9] = 0, vectors[8]
    scores, found, report = FloatIndex(vectors, metric).search(queries, 10, report=True)
    assert same((scores, found), reference.exact_knn(queries, vectors, 10, metric))
    assert set(report.passes.tolist()) <= {1, 2}
    assert report.scored.max() < 1500


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("depth", [1, 2, 7, 8, 9, 31, 64, 129, 1000, 4096])
def test_every_depth(rng, metric, depth):
    vectors, queries = rng.standard_normal((2, 1100, depth)).astype(np.float32)
    queries = queries[:9]
    expected = reference.exact_knn(queries, vectors, 3, metric)  # it takes most of the time
    for count in THREADS:
        with use_budget(count, grain=1):
            assert same(FloatIndex(vectors, metric).search(queries, 3), expected)


def ways(monkeypatch, **constants):
    for name, value in constants.items():
        monkeypatch.setattr(exact, name, value)


@pytest.mark.parametrize("metric", METRICS)
def test_a_search_goes_on_until_it_is_proven(rng, metric, monkeypatch, codes_decide):
    """The first candidates, more of them, or all vectors: each way is right, and each is gone."""
    vectors, queries = rng.standard_normal((900, 12)).astype(np.float32), rng.standard_normal((40, 12))
    expected = reference.exact_knn(queries, vectors, 4, metric)
    index, seen = FloatIndex(vectors, metric), set()
    for first, most in ((200, 1 << 14), (4, 1 << 14), (4, 30), (4, 5), (4, 3)):
        ways(monkeypatch, _CANDIDATES=first, _TIMES=1, _WIDER=5, _MOST=most, _FEWEST=1)
        scores, found, report = index.search(queries, 4, report=True)
        assert same((scores, found), expected)
        seen.add(tuple(np.unique(report.passes).tolist()))
        if most == 3:  # fewer than 4 candidates cannot be enough
            assert report.passes.tolist() == [3] * 40
            assert report.scored.tolist() == [900] * 40
        assert (report.scored[report.passes < 3] <= 900 + 4).all()
    assert {number for each in seen for number in each} == {1, 2, 3}


def test_a_sample_says_that_codes_are_hopeless(rng, monkeypatch, codes_decide):
    """One dimension is so great that codes of the others say nothing: no second selection is tried."""
    vectors = hostile(rng, 2000, 20, "normal")
    vectors[:, 3] = 1e4 * rng.choice([-1, 1], 2000)
    queries, looked_at = vectors[:5] + 0.1 * rng.standard_normal((5, 20)), []
    help_of, select = exact._can_help, exact._candidates
    monkeypatch.setattr(exact, "_can_help", lambda *given: looked_at.append(help_of(*given)) or looked_at[-1])
    ways(monkeypatch, _CANDIDATES=16)
    selections = []
    monkeypatch.setattr(exact, "_candidates", lambda *given: selections.append(len(given[2])) or select(*given))
    scores, found, report = FloatIndex(vectors, "l2").search(queries, 5, report=True)
    assert same((scores, found), reference.exact_knn(queries, vectors, 5, "l2"))
    (helps,) = looked_at
    assert len(helps) == selections[1] > 1
    assert not helps.any()
    assert len(selections) == 2  # of the first candidates, and of the sample
    assert sorted(report.passes.tolist()) == [1] * (5 - len(helps)) + [3] * len(helps)


@pytest.mark.parametrize("metric", METRICS)
def test_guessed_bounds_change_nothing(rng, metric, monkeypatch, codes_decide):
    vectors, queries = rng.standard_normal((4000, 16)).astype(np.float32), rng.standard_normal((30, 16))
    guesses, guess = [], exact._guessed
    monkeypatch.setattr(exact, "_guessed", lambda *given: guesses.append(guess(*given)) or guesses[-1])
    monkeypatch.setattr(vectors_module, "SAMPLE", 500)
    ways(monkeypatch, _CANDIDATES=64, _FEWEST=4)
    for mask in (None, rng.random(4000) < 0.2):
        found = FloatIndex(vectors, metric).search(queries, 8, mask=mask)
        assert same(found, reference.exact_knn(queries, vectors, 8, metric, mask=mask))
    assert len(guesses) == 2
    assert np.isfinite(guesses).all()
    assert np.isinf(guess(*given_of(vectors, queries[:3], metric))).all()  # for few queries nothing is guessed


def given_of(vectors, queries, metric):
    """Return what a guess is made from."""
    stored = FloatIndex(vectors, metric).stored
    terms = exact.terms_of("x", queries, stored.frame, stored.limits)
    return exact._Asked(stored, stored, None, queries, terms, 8, None, None), np.arange(len(queries)), 64


@pytest.mark.parametrize("metric", METRICS)
def test_a_guess_that_is_too_great_is_found_out(rng, metric, monkeypatch, codes_decide):
    """Few bounds reach it: the search has to go on, and must not take them for all."""
    vectors, queries = rng.standard_normal((900, 16)).astype(np.float32), rng.standard_normal((12, 16))
    stored = FloatIndex(vectors, metric)
    bounds, _ = exact._candidates(
        stored.stored, exact.terms_of("x", queries, stored.stored.frame, stored.stored.limits), np.arange(12), 3, None,
        np.full(12, -np.inf, np.float32),
    )  # fmt: skip
    monkeypatch.setattr(exact, "_guessed", lambda asked, rows, count: bounds[rows, 2])
    scores, found, report = stored.search(queries, 8, report=True)
    assert same((scores, found), reference.exact_knn(queries, vectors, 8, metric))
    assert report.passes.min() > 1


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_query_finds_the_same_alone_and_among_others(rng, metric, dtype, thread_count):
    vectors, queries = (rng.standard_normal((n, 50)).astype(dtype) for n in (1200, 70))
    index = FloatIndex(vectors, metric)
    scores, found = index.search(queries, 20)
    for row in (0, 7, 69):
        assert same(index.search(queries[row], 20), (scores[row], found[row]))
        assert same(index.search(queries[row : row + 1], 3), (scores[row : row + 1, :3], found[row : row + 1, :3]))
    cuts = [0, *sorted(rng.integers(0, 71, 4).tolist()), 70]
    parts = [index.search(queries[a:b], 20) for a, b in itertools.pairwise(cuts)]
    assert same([np.concatenate(each) for each in zip(*parts, strict=True)], (scores, found))


@pytest.mark.parametrize("metric", METRICS)
def test_of_equal_scores_the_lower_position_comes_first(rng, metric, codes_decide, thread_count):
    vectors = rng.standard_normal((5, 9))[rng.integers(0, 5, 800)]
    scores, found = FloatIndex(vectors, metric).search(vectors[:3], 500)
    assert same((scores, found), reference.exact_knn(vectors[:3], vectors, 500, metric))
    for row, places in zip(scores, found, strict=True):
        equal = row[1:] == row[:-1]
        assert equal.sum() > 490
        assert (places[1:] > places[:-1])[equal].all()


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_sums_are_in_the_stated_order(rng, metric):
    """Numbers of several sizes, whose sums another order would change."""
    differs = np.zeros(4, bool)
    for _ in range(40):
        query, vector = rng.standard_normal((2, 29)) * 10.0 ** rng.integers(0, 3, (2, 29))
        terms = query * vector if metric == "ip" else (query - vector) ** 2
        eight = [sum(terms[lane::8].tolist()) for lane in range(8)]
        four = [eight[lane] + eight[lane + 4] for lane in range(4)]
        expected = (four[0] + four[2]) + (four[1] + four[3])
        assert FloatIndex(vector[None], metric).search(query, 1)[0].tolist() == [expected]
        differs |= [expected != other for other in (terms.sum(), sum(terms.tolist()), sum(eight), sum(four))]
    assert differs.all()


def test_cosines_of_one_direction_are_exactly_one(rng):
    x = rng.standard_normal((300, 33)).astype(np.float32)
    times = 2.0 ** rng.integers(-30, 30, (300, 1)).astype(np.float32)
    scores, found = FloatIndex(np.vstack([x * times, x * np.float32(-0.5)]), "cosine").search(x, 600)
    assert (scores[:, 0] == 1).all()
    assert found[:, 0].tolist() == list(range(300))
    assert (scores[:, -1] == -1).all()
    assert (np.abs(scores) <= 1).all()
    threes = np.float32([[1, 2, 3]]) * np.arange(1, 9, dtype=np.float32)[:, None]
    assert FloatIndex(threes, "cosine").search(threes[6], 8)[0].tolist() == [1] * 8


def test_a_cosine_of_nearly_one_is_less_than_one():
    one = np.ones(4000)
    near = one.copy()
    near[17] = np.nextafter(1, 2)
    scores, found = FloatIndex([near, one], "cosine").search(one, 2)
    assert found.tolist() == [1, 0] or scores.tolist() == [1, 1]  # the nearer one is no worse
    assert scores[0] == 1
    far = one.copy()
    far[17] = 1.001
    scores, found = FloatIndex([far, one], "cosine").search(one, 2)
    assert found.tolist() == [1, 0]
    assert scores[1] < scores[0] == 1


@pytest.mark.parametrize("metric", METRICS)
def test_zero_vectors_have_no_negative_zeros(metric):
    zero = np.zeros((2, 4), np.float32)
    scores, found = FloatIndex(zero, metric).search(-zero, 3)
    worst = np.inf if metric == "l2" else -np.inf
    assert scores.tolist() == [[0, 0, worst]] * 2
    assert not np.signbit(scores[:, :2]).any()
    assert found.tolist() == [[0, 1, -1]] * 2


@pytest.mark.parametrize("metric", METRICS)
def test_the_greatest_numbers_have_finite_scores(metric):
    most = 2.0**500
    vectors = np.full((3, 16_384), most)
    vectors[1] *= -1
    queries = np.full((1, 16_384), most)
    scores, found = FloatIndex(vectors, metric).search(queries, 3)
    assert same((scores, found), reference.exact_knn(queries, vectors, 3, metric))
    assert np.isfinite(scores).all()
    assert found.tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("exponent", [-323, -320, -200, -162, -161, -160, -158, -155, -40, 30, 100, 146])
def test_numbers_of_every_size(rng, metric, exponent, codes_decide, monkeypatch):
    ways(monkeypatch, _CANDIDATES=8, _FEWEST=1)
    vectors = rng.standard_normal((700, 8)) * 10.0**exponent
    queries = np.vstack([vectors[:6] * (1 + 1e-3 * rng.standard_normal((6, 8))), vectors[:1] * 1e3, np.ones((1, 8))])
    found = FloatIndex(vectors, metric).search(queries, 10)
    assert same(found, reference.exact_knn(queries, vectors, 10, metric))


def test_tiny_queries_among_small_vectors_beside_great_ones():
    """Bounds of queries that are not centered are so small that float32 loses them."""
    rng = np.random.default_rng(0)
    small = 2.0**-26 * (1 + rng.random(20_000))
    vectors = np.empty((40_000, 1))
    vectors[::2, 0], vectors[1::2, 0] = small, -small
    sampled = np.linspace(0, 39_999, 256).astype(int)
    for centre in (2.0**-70, 2.0**-120):
        vectors[sampled] = centre
        vectors[sampled[:60], 0], vectors[sampled[60:120], 0] = small[:60], -small[:60]
        vectors[-1], vectors[0] = -1, -0.9
        queries = 2.0 ** np.array([[-125.0], [-128], [-130], [-140], [-149]])
        for dtype in (np.float32, np.float64):
            stored = vectors.astype(dtype)
            index = FloatIndex(stored)
            assert index.space.centre == [np.float32(centre)]
            assert same(index.search(queries, 10), reference.exact_knn(queries, stored, 10))


def test_k_and_shapes(rng):
    vectors = rng.standard_normal((10, 4))
    index = FloatIndex(vectors, "l2")
    scores, found = index.search(vectors[0], 13)
    assert scores.shape == found.shape == (13,)
    assert found[10:].tolist() == [-1] * 3
    assert scores[10:].tolist() == [np.inf] * 3
    assert [each.shape for each in index.search(vectors[:0], 3)] == [(0, 3)] * 2
    assert [each.shape for each in index.search(vectors, 0)] == [(10, 0)] * 2
    scores, found, report = FloatIndex(vectors[:0]).search(vectors, 2, report=True)
    assert (scores == -np.inf).all()
    assert (found == -1).all()
    assert report.scored.tolist() == report.passes.tolist() == [0] * 10


def test_what_a_report_says(rng):
    vectors, queries = rng.standard_normal((2, 3000, 32)).astype(np.float32)
    report = FloatIndex(vectors).search(queries[:7], 5, report=True)[2]
    assert (report.scored.dtype, report.passes.dtype) == (np.int64, np.int8)
    assert report.scored.shape == report.passes.shape == (7,)
    assert (report.scored >= 5).all()
    small = FloatIndex(vectors[:100]).search(queries[:7], 5, report=True)[2]
    assert (small.scored.tolist(), small.passes.tolist()) == ([100] * 7, [3] * 7)


def test_a_search_that_codes_do_not_help_says_so_once(rng, caplog):
    caplog.set_level(logging.WARNING, "dmlcpu")
    equal = np.ones((12_000, 8), np.float32)
    index = FloatIndex(equal)
    for _ in range(3):
        index.search(equal[:2], 3)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "all vectors are scored as floats" in caplog.text
    caplog.clear()
    normal = rng.standard_normal((12_000, 8))
    FloatIndex(normal).search(normal[:3], 3)
    assert not caplog.records


@pytest.mark.parametrize("layout", ["transposed", "reversed", "every other", "bigendian", "list"])
def test_layouts(rng, layout):
    plain = rng.standard_normal((30, 12)).astype(np.float32)
    laid = {
        "transposed": np.asfortranarray(plain),
        "reversed": np.ascontiguousarray(plain[::-1])[::-1],
        "every other": np.repeat(plain, 2, axis=1)[:, ::2],
        "bigendian": plain.astype(">f4"),
        "list": plain.tolist(),
    }[layout]
    expected = reference.exact_knn(plain, plain, 4, "l2")
    assert same(FloatIndex(laid, "l2").search(laid, 4), expected)
    assert same(knn(laid, laid, 4, "l2"), expected)


def test_vectors_are_kept_as_they_are(rng):
    x = rng.standard_normal((20, 5)).astype(np.float32)
    index = FloatIndex(x)
    assert np.shares_memory(index.stored.floats, x)
    brain = x.astype(ml_dtypes.bfloat16)
    kept = FloatIndex(brain)
    assert kept.reconstruct(3).dtype == np.float32  # .npy files have no bfloat16
    assert kept.reconstruct_n().tolist() == brain.astype(np.float32).tolist()
    assert FloatIndex([[1, 2], [3, 4]]).reconstruct_n().tolist() == [[1, 2], [3, 4]]


def test_a_file_is_memory_mapped(rng, tmp_path):
    x = rng.standard_normal((50, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for path in (tmp_path / "x.npy", str(tmp_path / "x.npy")):
        index = FloatIndex(path, "cosine")
        assert isinstance(index.stored.floats.base, np.memmap) or isinstance(index.stored.floats, np.memmap)
        assert same(index.search(x, 5), reference.exact_knn(x, x, 5, "cosine"))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(FloatIndex(mapped).stored.floats, mapped)
    np.save(tmp_path / "bytes.npy", np.ones((3, 4), np.int8))
    with pytest.raises(dmlcpu.DmlError, match=r"FloatIndex: vectors.dtype is int8; allowed: float32, float16"):
        FloatIndex(tmp_path / "bytes.npy")
    with pytest.raises(FileNotFoundError):
        FloatIndex(tmp_path / "none.npy")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_shares_of_threads_find_the_same(rng, threads, monkeypatch, codes_decide):
    vectors, queries = rng.standard_normal((1000, 20)).astype(np.float32), rng.standard_normal((13, 20))
    for constants in ({}, {"_SCANNED": 5, "_MOST": 3, "_CONVERTED": 700}):
        ways(monkeypatch, **constants)
        for dtype in FLOATS:
            stored = vectors.astype(dtype)
            with use_budget(threads, grain=1):
                found = FloatIndex(stored, "cosine").search(queries, 7)
            assert same(found, reference.exact_knn(queries, stored, 7, "cosine"))


def test_one_embedding_is_a_corpus(rng):
    """As sentence-transformers' own function, which gets what `encode("one text")` gives."""
    queries, corpus = rng.standard_normal((2, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    found = semantic_search(queries, corpus, top_k=1)
    assert found == semantic_search(queries, corpus[None], top_k=1)
    assert [[hit["corpus_id"] for hit in each] for each in found] == [[0], [0]]


def test_tensors_that_require_gradients(rng):
    torch = pytest.importorskip("torch")
    x = torch.tensor(rng.standard_normal((3, 8)), requires_grad=True)
    assert [each[0]["corpus_id"] for each in semantic_search(x, x, top_k=1)] == [0, 1, 2]
