"""Searches where people already are, each with the real package, if it is installed."""

import importlib
import warnings

import numpy as np
import pytest

import dmlcpu
from dmlcpu import reference
from dmlcpu.search import Int8Index, semantic_search

RNG = np.random.default_rng(0)
CORPUS = RNG.standard_normal((400, 24)).astype(np.float32)
QUERIES = RNG.standard_normal((9, 24)).astype(np.float32)

# Warnings of other packages are no errors of this one.
pytestmark = pytest.mark.filterwarnings("default")


def package(name):
    """Import a package, or skip the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"{name} is not installed ({error})")


def hits(found):
    return [[hit["corpus_id"] for hit in one] for one in found]


def scores_of(found):
    return [[hit["score"] for hit in one] for one in found]


@pytest.mark.parametrize("function", ["cos_sim", "dot_score"])
def test_semantic_search_is_that_of_sentence_transformers(function):
    util, torch = package("sentence_transformers.util"), package("torch")
    tensors = torch.from_numpy(QUERIES), torch.from_numpy(CORPUS)
    expected = util.semantic_search(*tensors, top_k=7, score_function=getattr(util, function))
    found = semantic_search(*tensors, top_k=7, score_function=getattr(util, function))
    assert hits(found) == hits(expected)
    assert np.allclose(scores_of(found), scores_of(expected), rtol=1e-5)
    given = importlib.import_module("inspect").signature
    theirs, ours = given(util.semantic_search).parameters, given(semantic_search).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name in ("query_chunk_size", "corpus_chunk_size", "top_k"):
        assert ours[name].default == theirs[name].default


def test_semantic_search_without_sentence_transformers():
    exact, best = reference.knn(QUERIES, CORPUS, 5, "cosine", rescore=1000)
    index = Int8Index(CORPUS, "cosine", floats=True)
    for corpus in (CORPUS, index):
        found = semantic_search(QUERIES, corpus, top_k=5)
        assert hits(found) == best.tolist()
        assert scores_of(found) == exact.tolist()
    assert semantic_search(QUERIES[0], index, top_k=1) == semantic_search(QUERIES, index, top_k=1)[:1]
    assert len(semantic_search(QUERIES, CORPUS[:3], top_k=5)[0]) == 3
    for bad, message in [
        ({"score_function": max}, "score_function is 'max'; allowed: 'cosine', 'ip', cos_sim, dot_score"),
        ({"query_chunk_size": 0}, "query_chunk_size is 0; allowed: an integer of at least 1"),
        ({"corpus_embeddings": Int8Index(CORPUS, "l2")}, "corpus_embeddings.metric is 'l2'; allowed: 'cosine', 'ip'"),
    ]:
        with pytest.raises(dmlcpu.DmlError, match=message):
            semantic_search(**{"query_embeddings": QUERIES, "corpus_embeddings": CORPUS, **bad})


def test_an_index_in_the_place_of_faiss():
    """`semantic_search_faiss` searches ours as it is; with ranges, its own rescoring finds what floats find."""
    package("faiss")
    quantization = package("sentence_transformers.util.quantization")
    ranges = np.vstack([CORPUS.min(axis=0), CORPUS.max(axis=0)])
    codes = quantization.quantize_embeddings(CORPUS, precision="uint8", ranges=ranges)
    options = {"corpus_precision": "uint8", "top_k": 10, "ranges": ranges, "rescore_multiplier": 4}
    best = reference.knn(QUERIES, CORPUS, 10, rescore=1000)[1].tolist()

    def shared(index):
        found = hits(quantization.semantic_search_faiss(QUERIES, corpus_index=index, **options)[0])
        return np.mean([len(set(a) & set(b)) for a, b in zip(found, best, strict=True)])

    assert shared(Int8Index(codes, ranges=ranges)) > 9.5
    assert shared(Int8Index(codes)) < 9  # its bytes are affine: their products are not those of floats


def test_bytes_stand_for_the_middle_of_their_buckets():
    """sentence-transformers rounds down when it quantizes, and decodes to the lower end: half a step below ours."""
    quantization = package("sentence_transformers.util.quantization")
    ranges = np.vstack([CORPUS.min(axis=0), CORPUS.max(axis=0)])
    for precision in ("int8", "uint8"):
        codes = quantization.quantize_embeddings(CORPUS, precision=precision, ranges=ranges)
        decoded = Int8Index(codes, ranges=ranges).space.decoded(codes)
        theirs = quantization._dequantize_embeddings(codes.astype(int), precision, ranges)
        half = (ranges[1] - ranges[0]) / 255 / 2
        assert np.allclose(decoded, theirs + half, atol=1e-5)
        assert (np.abs(decoded - CORPUS) <= 1.001 * half + 1e-6).all()


def test_the_names_of_faiss():
    faiss = package("faiss")
    theirs = faiss.IndexIDMap(faiss.IndexFlatL2(24))
    ours = Int8Index(CORPUS[:0], "l2", floats=True)
    for index in (theirs, ours):
        index.add_with_ids(CORPUS, np.arange(400) * 2)
        assert index.remove_ids(np.array([4, 6, 8])) == 3
        assert (index.d, index.ntotal) == (24, 397)
    expected, places = theirs.search(QUERIES, 5)
    scores, found = ours.search(QUERIES, 5, rescore=8)
    assert found.tolist() == places.tolist()
    assert np.allclose(scores, expected, rtol=1e-4)


@pytest.fixture
def neighbors():
    for name in ("sklearn", "scipy"):
        package(name)
    from dmlcpu.search import Int8NeighborsTransformer

    return Int8NeighborsTransformer


def test_estimator_checks(neighbors):
    checks = package("sklearn.utils.estimator_checks")
    results = checks.check_estimator(neighbors(), on_skip=None)
    assert {each["status"] for each in results} <= {"passed", "skipped"}
    assert sum(each["status"] == "passed" for each in results) > 30


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_estimator_does_what_scikit_learns_does(neighbors, metric, dtype):
    theirs = package("sklearn.neighbors").KNeighborsTransformer(n_neighbors=6, metric=metric)
    x = CORPUS.astype(dtype)
    theirs.fit(x)
    ours = neighbors(6, metric=metric).fit(x)
    for name, *arguments in [("transform", x), ("transform", QUERIES.astype(dtype)), ("kneighbors_graph",)]:
        found, expected = getattr(ours, name)(*arguments), getattr(theirs, name)(*arguments)
        assert found.shape == expected.shape
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.indptr.tolist() == expected.indptr.tolist()
        assert np.allclose(found.data, expected.data, atol=3e-3 if metric == "euclidean" else 3e-6)
    assert (
        ours.kneighbors(QUERIES, 3, return_distance=False).tolist()
        == theirs.kneighbors(QUERIES, 3, return_distance=False).tolist()
    )
    assert list(ours.get_feature_names_out())[:1] == ["int8neighborstransformer0"]


def test_samples_far_from_the_origin_keep_their_neighbours(neighbors):
    x = CORPUS.astype(float)
    expected = neighbors(5).fit(x).kneighbors(x)
    found = neighbors(5).fit(x + 1e6).kneighbors(x + 1e6)
    assert (expected[1] == found[1]).all()
    assert np.allclose(expected[0], found[0], atol=1e-3)


def test_a_pipeline_on_the_graph(neighbors):
    pipeline, classifier = package("sklearn.pipeline"), package("sklearn.neighbors").KNeighborsClassifier
    x = np.vstack([CORPUS[:100] * 0.1, CORPUS[100:200] * 0.1 + 1])
    y = np.repeat([0, 1], 100)
    model = pipeline.make_pipeline(neighbors(8), classifier(n_neighbors=5, metric="precomputed"))
    assert model.fit(x[::2], y[::2]).score(x[1::2], y[1::2]) == 1


@pytest.mark.parametrize(
    ("options", "message"), [({"metric": "dot"}, "metric is 'dot'"), ({"mode": "edges"}, "mode is 'edges'")]
)
def test_wrong_options_of_the_estimator(neighbors, options, message):
    with pytest.raises(ValueError, match=message):
        neighbors(**options).fit(CORPUS)
    with pytest.raises(ValueError, match=r"n_neighbors is 400; allowed: 1 to 399 \(n_samples_fit is 400\)"):
        neighbors(5).fit(CORPUS).kneighbors(None, 400)


def test_umap_takes_precomputed_neighbours(neighbors):
    umap = package("umap")
    distances, indices = neighbors(15).fit(CORPUS).kneighbors(CORPUS)
    model = umap.UMAP(n_neighbors=15, precomputed_knn=(indices, distances), n_epochs=5, random_state=0, n_jobs=1)
    assert model.fit_transform(CORPUS).shape == (400, 2)


def test_txtai(tmp_path):
    factory = package("txtai.ann").ANNFactory
    x = CORPUS / np.linalg.norm(CORPUS, axis=1, keepdims=True)
    config = {"backend": "dmlcpu.search.txtai.Int8", "dimensions": 24, "int8": {"rescore": 4}}
    ann = factory.create(config)
    ann.index(x[:300])
    ann.append(x[300:])
    ann.delete([5, 6])
    assert ann.count() == 398
    expected = reference.knn(x[:3], x, 4, mask=~np.isin(np.arange(400), [5, 6]), rescore=4)
    ann.save(str(tmp_path / "txtai"))
    again = factory.create(config)
    again.load(str(tmp_path / "txtai"))
    for each in (ann, again):
        found = each.search(x[:3], 4)
        assert [[i for i, _ in row] for row in found] == expected[1].tolist()
        assert [[score for _, score in row] for row in found] == expected[0].tolist()
    again.append(x[:2])
    assert again.search(x[:1], 2)[0][1][0] == 400


def test_a_missing_package_is_named():
    if importlib.util.find_spec("txtai"):
        pytest.skip("txtai is installed")
    with pytest.raises(ImportError, match=r"txtai needs the package txtai: pip install 'dmlcpu\[txtai\]'"):
        importlib.import_module("dmlcpu.search.txtai")
