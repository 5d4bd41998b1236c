"""What each query may find: the same in every form, in both indices, and if a search is done in parts."""

import numpy as np
import pytest

import dmlcpu
from dmlcpu.reference.searches import exact_knn, int8_knn
from dmlcpu.search import FloatIndex, Int8Index, arguments, knn

RNG = np.random.default_rng(0)
VECTORS, QUERIES = RNG.integers(-20, 20, (300, 9)).astype(np.float32), RNG.integers(-20, 20, (6, 9)).astype(np.float32)
IDS = RNG.permutation(5000)[:300]
OUT = RNG.random((6, 300)) < 0.4
INDICES = {
    FloatIndex: (VECTORS, QUERIES, exact_knn),
    Int8Index: (VECTORS.astype(np.int8), QUERIES.astype(np.int8), int8_knn),
}


@pytest.fixture(params=INDICES, ids=lambda each: each.__name__)
def index_class(request):
    return request.param


@pytest.fixture(params=["at once", "in parts"], autouse=True)
def parts(request, monkeypatch):
    """Let a search be done at once, or two queries at a time."""
    if request.param == "in parts":
        monkeypatch.setattr(arguments, "_MOST_BITS", 600)


def assert_found(index_class, ids, allowed, metric="l2", k=12, **options):
    vectors, queries, oracle = INDICES[index_class]
    scores, places = oracle(queries, vectors, k, metric, mask=allowed)
    if ids is not None:
        places = np.where(places < 0, -1, ids[places])
    found = index_class(vectors, metric, ids).search(queries, k, **options)[:2]
    assert found[1].tolist() == places.tolist()
    assert found[0].tolist() == scores.tolist()


@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
@pytest.mark.parametrize("ids", [None, IDS], ids=["positions", "ids"])
def test_lists_of_each_query(index_class, ids, metric):
    names = np.arange(300) if ids is None else ids
    lists = [names[each].tolist() for each in OUT]
    noisy = [[*each, *each[:3], 10**6 + 7, 2**62] for each in lists]
    starts = np.cumsum([0, *map(len, lists)])
    for exclude in (lists, noisy, (starts, np.concatenate(lists))):
        assert_found(index_class, ids, ~OUT, metric, exclude=exclude)
    assert_found(index_class, ids, OUT, metric, allowlist=noisy)


@pytest.mark.parametrize("ids", [None, IDS], ids=["positions", "ids"])
def test_matrices_have_positions(index_class, ids):
    assert_found(index_class, ids, ~OUT, exclude=OUT)
    assert_found(index_class, ids, OUT, mask=OUT)
    sparse = pytest.importorskip("scipy.sparse").csr_array(OUT.astype(np.float32))
    sparse.data[::7] = 0  # as an unknown rating in a matrix of ratings
    assert_found(index_class, ids, sparse.toarray() == 0, exclude=sparse)


def test_all_of_them_together(index_class):
    line, some = RNG.random(300) < 0.7, IDS[:200]
    allowed = line & np.isin(IDS, some) & ~OUT
    lists = [IDS[each].tolist() for each in OUT]
    assert_found(index_class, IDS, allowed, mask=line, allowlist=some, exclude=lists)
    assert_found(index_class, IDS, np.broadcast_to(line & np.isin(IDS, some), (6, 300)), mask=line, allowlist=some)


def test_fewer_are_allowed_than_are_asked_for(index_class):
    allowed = np.zeros((6, 300), bool)
    for row in range(1, 6):
        allowed[row, RNG.integers(0, 300, row)] = True
    lists = [np.flatnonzero(each).tolist() for each in allowed]
    assert_found(index_class, None, allowed, allowlist=lists)
    assert_found(index_class, IDS, allowed, mask=allowed, k=400)
    few = allowed[5]
    assert_found(index_class, None, few, mask=few)
    assert_found(index_class, None, few, allowlist=lists[5], k=1)
    assert_found(index_class, None, np.zeros(300, bool), allowlist=[])
    assert_found(index_class, None, np.zeros((6, 300), bool), exclude=np.ones((6, 300), bool))


def test_each_query_finds_what_its_own_list_allows(index_class):
    lists = [[1, 2], [3, 4], [5, 6]]
    vectors, queries, _ = INDICES[index_class]
    found = index_class(vectors).search(queries[:3], 2, allowlist=lists)[1]
    assert [sorted(each) for each in found.tolist()] == lists


def test_one_query(index_class):
    vectors, queries, oracle = INDICES[index_class]
    index, expected = index_class(vectors), oracle(queries[0], vectors, 5, mask=~OUT[0])[1].tolist()
    numbers = np.flatnonzero(OUT[0])
    for exclude in (numbers, numbers.tolist(), [numbers.tolist()], OUT[:1]):
        assert index.search(queries[0], 5, exclude=exclude)[1].tolist() == expected
        assert knn(queries[0], vectors, 5, exclude=exclude)[1].tolist() == expected
    assert index.search(queries[0], 5, mask=~OUT[0])[1].tolist() == expected
    assert index.search(queries[0], 5, mask=~OUT[:1])[1].tolist() == expected


def test_refusals_name_the_search(index_class):
    vectors, queries, _ = INDICES[index_class]
    index, name = index_class(vectors), index_class.__name__
    for options, message in [
        ({"exclude": [[1]]}, "exclude is 1 list; allowed: a list of ints for each of the 6 queries"),
        ({"exclude": [[1], [2], [3], [4], [5], [-6]]}, "exclude["),
        ({"mask": np.ones((5, 300), bool)}, "mask.shape is (5, 300); allowed: (300,) or (6, 300)"),
        ({"allowlist": [[1]] * 7}, "allowlist is 7 lists; allowed: a list of ints for each of the 6 queries"),
        ({"exclude": OUT[:, :299]}, "exclude.shape is (6, 299); allowed: (6, 300)"),
        ({"exclude": (np.arange(6), np.arange(5))}, "exclude[0].shape is (6,); allowed: (7,)"),
    ]:
        with pytest.raises(dmlcpu.DmlError) as caught:
            index.search(queries, 2, **options)
        assert f"{name}.search: {message}" in str(caught.value)
