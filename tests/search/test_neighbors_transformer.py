"""`NeighborsTransformer` finds what scikit-learn finds, whatever the samples, and distances keep their digits."""

import importlib.util

import numpy as np
import pytest
from processes import run

sklearn_neighbors = pytest.importorskip("sklearn.neighbors")
# Warnings of other packages are no errors of this one.
pytestmark = pytest.mark.filterwarnings("default")

RNG = np.random.default_rng(0)
CORPUS = RNG.standard_normal((400, 24)).astype(np.float32)
QUERIES = RNG.standard_normal((9, 24)).astype(np.float32)


@pytest.fixture
def neighbors():
    from dmlcpu.search import NeighborsTransformer

    return NeighborsTransformer


def test_estimator_checks(neighbors):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    results = checks.check_estimator(neighbors(), on_skip=None)
    assert {each["status"] for each in results} <= {"passed", "skipped"}
    assert sum(each["status"] == "passed" for each in results) > 30


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_estimator_does_what_scikit_learns_does(neighbors, metric, dtype):
    theirs = sklearn_neighbors.KNeighborsTransformer(n_neighbors=6, metric=metric)
    x = CORPUS.astype(dtype)
    theirs.fit(x)
    ours = neighbors(6, metric=metric).fit(x)
    for name, *arguments in [("transform", x), ("transform", QUERIES.astype(dtype)), ("kneighbors_graph",)]:
        found, expected = getattr(ours, name)(*arguments), getattr(theirs, name)(*arguments)
        assert found.shape == expected.shape
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.indptr.tolist() == expected.indptr.tolist()
        assert np.allclose(found.data, expected.data, rtol=1e-6, atol=3e-7)
    assert (
        ours.kneighbors(QUERIES, 3, return_distance=False).tolist()
        == theirs.kneighbors(QUERIES, 3, return_distance=False).tolist()
    )
    assert list(ours.get_feature_names_out())[:1] == ["neighborstransformer0"]


def spoiled():
    """Yield samples of which a few are far, so that bytes of the others would say little."""
    rng = np.random.default_rng(0)
    for count, share in ((1500, 0.05), (200, 0.05)):
        x = rng.standard_normal((count, 20))
        x[rng.random(count) < share, -1] = -9999  # a code for what is missing
        yield x
    x = rng.standard_normal((1500, 50))
    x[0] *= 1e6
    yield x
    x = rng.standard_normal((1500, 20))
    x[:, -1] = 1000 * rng.integers(0, 2, 1500)
    yield x
    yield CORPUS.astype(float) + 1e6


@pytest.mark.parametrize("x", [*spoiled()], ids=["missing", "few", "one far", "two groups", "far from the origin"])
def test_neighbours_are_those_of_scikit_learn(neighbors, x):
    """By its trees, as its brute force loses digits of samples far from the origin."""
    theirs = sklearn_neighbors.NearestNeighbors(n_neighbors=10, algorithm="kd_tree").fit(x)
    distances, indices = neighbors(n_neighbors=10).fit(x).kneighbors()
    expected, places = theirs.kneighbors()
    assert np.allclose(distances, expected, rtol=1e-9, atol=1e-9)
    assert (indices == places).mean() == 1


def test_small_distances_keep_their_digits(neighbors):
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((2000, 2))
    found = neighbors(n_neighbors=10, metric="cosine").fit(plane).kneighbors()[0]
    angles = np.arctan2(plane[:, 1], plane[:, 0])
    apart = np.abs(angles[:, None] - angles)
    apart = np.sort(np.minimum(apart, 2 * np.pi - apart), axis=1)[:, 1:11]
    assert found.dtype == np.float64
    assert np.allclose(found, 1 - np.cos(apart), rtol=1e-6, atol=1e-15)
    near = np.array([[100000001.0, 100000000], [100000000, 100000001], [0, 0]])
    assert neighbors(n_neighbors=1).fit(near).kneighbors()[0][:2].ravel().tolist() == [2**0.5] * 2
    seconds = np.r_[1.76e9 + np.arange(100.0) * 60, 0.0][:, None]
    found = neighbors(n_neighbors=2).fit(seconds).kneighbors()[0]
    assert found[1:99].tolist() == [[60, 60]] * 98


def test_a_sample_is_not_its_own_neighbour_among_equal_ones(neighbors):
    x = np.array([[1.0, 2], [1, 2], [1, 2], [5, 5], [1, 2]])
    distances, indices = neighbors(n_neighbors=2).fit(x).kneighbors()
    assert not (indices == np.arange(5)[:, None]).any()
    assert distances[[0, 1, 2, 4]].tolist() == [[0, 0]] * 4
    assert indices[0].tolist() == [1, 2]
    assert indices[4].tolist() == [0, 1]


def test_threads_of_the_estimator(neighbors):
    expected = neighbors(5).fit(CORPUS).kneighbors(QUERIES)
    for jobs in (1, 2, -1):
        found = neighbors(5, n_jobs=jobs).fit(CORPUS).kneighbors(QUERIES)
        assert all(np.array_equal(*each) for each in zip(found, expected, strict=True))
    for jobs in (0, -2):
        with pytest.raises(ValueError, match=rf"NeighborsTransformer: n_jobs is {jobs}; allowed: None, -1 or a number"):
            neighbors(5, n_jobs=jobs).fit(CORPUS)
    with pytest.raises(ValueError, match="NeighborsTransformer: p is 1; allowed: 2"):
        neighbors(5, p=1).fit(CORPUS)


def test_a_pipeline_on_the_graph(neighbors):
    pipeline, classifier = pytest.importorskip("sklearn.pipeline"), sklearn_neighbors.KNeighborsClassifier
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


# UMAP and what it imports would be compiled for 45 s, which a few samples do not need.
EMBED = """
import warnings
warnings.simplefilter("default")
import numpy as np
import umap

found, graphs = np.load("found.npz"), []
for who in ("ours", "theirs"):
    precomputed = found[f"{who}_indices"], found[f"{who}_distances"]
    model = umap.UMAP(n_neighbors=10, precomputed_knn=precomputed, n_epochs=5, random_state=0, n_jobs=1)
    assert model.fit_transform(found["x"]).shape == (60, 2)
    graphs.append(model.graph_.toarray())
assert graphs[0].any()
assert np.allclose(*graphs, atol=1e-5), abs(graphs[0] - graphs[1]).max()
"""


def test_umap_takes_precomputed_neighbours(neighbors, tmp_path, monkeypatch):
    if not importlib.util.find_spec("umap"):
        pytest.skip("umap-learn is not installed")
    x, found = CORPUS[:60], {}
    theirs = sklearn_neighbors.NearestNeighbors(n_neighbors=10, algorithm="kd_tree")  # 0 from a sample to itself
    for who, model in (("ours", neighbors(10)), ("theirs", theirs)):
        found[f"{who}_distances"], found[f"{who}_indices"] = model.fit(x).kneighbors(x)
    monkeypatch.chdir(tmp_path)
    np.savez("found.npz", x=x, **found)
    run(EMBED, NUMBA_DISABLE_JIT="1")
