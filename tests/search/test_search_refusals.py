"""What searches refuse, and in which words."""

import numpy as np
import pytest

import dmlcpu
from dmlcpu.search import FloatIndex, Int8Index, knn, semantic_search

BYTES, FLOATS = np.ones((3, 4), np.int8), np.ones((3, 4), np.float32)
BAD = np.array([[1, 2, 3, 4], [1, np.nan, 3, 4]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Int8Index(np.ones(3, np.int8)),
            r"Int8Index: vectors.shape is (3,); allowed: a matrix (N, D)",
        ),
        (
            lambda: Int8Index(np.ones((3, 0), np.int8)),
            "Int8Index: vectors.shape[1] is 0; allowed: 1 to 16384 dimensions",
        ),
        (
            lambda: Int8Index(np.ones((3, 4), np.int16)),
            "Int8Index: vectors.dtype is int16; allowed: int8, uint8, float32",
        ),
        (lambda: Int8Index(BYTES, "dot"), "Int8Index: metric is 'dot'; allowed: 'ip', 'l2', 'cosine'"),
        (lambda: Int8Index(BAD), "Int8Index: vectors[1, 1] is nan; allowed: finite numbers of at most 1e+16"),
        (lambda: Int8Index(BAD * np.inf), "Int8Index: vectors[0, 0] is inf; allowed: finite numbers"),
        (
            lambda: Int8Index(BYTES, ids=[1, 2]),
            "Int8Index: ids.shape is (2,); allowed: (3,), one id a vector",
        ),
        (lambda: Int8Index(BYTES, ids=[1, 2, 1]), "Int8Index: ids[2] is 1 again; allowed: different ids"),
        (lambda: Int8Index(BYTES, ids=[1, -2, 3]), "Int8Index: ids[1] is -2; allowed: at least 0"),
        (lambda: Int8Index(BYTES, ids=[1.5, 2, 3]), "Int8Index: ids.dtype is float64; allowed: integers"),
        (
            lambda: Int8Index(FLOATS, ranges=FLOATS[:2]),
            "Int8Index: vectors.dtype is float32; allowed: int8 or uint8",
        ),
        (lambda: Int8Index(BYTES, ranges=FLOATS), "Int8Index: ranges.shape is (3, 4); allowed: (2, 4)"),
        (
            lambda: Int8Index(BYTES, ranges=BAD),
            "Int8Index: ranges[:, 1] is 2.0 to nan; allowed: a least and a greatest",
        ),
        (
            lambda: Int8Index(BYTES, floats=True),
            "Int8Index: floats is True with vectors of bytes; allowed: the vectors",
        ),
        (
            lambda: Int8Index(BYTES, floats=FLOATS[:2]),
            "Int8Index: floats.shape is (2, 4); allowed: (3, 4), as the vectors",
        ),
        (
            lambda: Int8Index(BYTES).search(FLOATS[:, :3], 1),
            "Int8Index.search: queries.shape is (3, 3); allowed: (M, 4)",
        ),
        (
            lambda: Int8Index(BYTES).search(BAD, 1),
            "Int8Index.search: queries[1, 1] is nan; allowed: finite numbers",
        ),
        (
            lambda: Int8Index(BYTES).search(BYTES, -1),
            "Int8Index.search: k is -1; allowed: an integer of at least 0",
        ),
        (
            lambda: Int8Index(BYTES).search(BYTES, 1, rescore=2),
            "Int8Index.search: rescore is 2; allowed: None, as the index has no floats: build it with `floats`",
        ),
        (
            lambda: Int8Index(FLOATS, floats=True).search(BYTES, 1, rescore=0),
            "rescore is 0; allowed: an integer of at least 1",
        ),
        (
            lambda: Int8Index(BYTES).search(BYTES, 1, mask=[True]),
            "Int8Index.search: mask.shape is (1,); allowed: (3,)",
        ),
        (
            lambda: Int8Index(BYTES).search(BYTES, 1, mask=[1, 0, 1]),
            "Int8Index.search: mask.dtype is int64; allowed: bool",
        ),
        (
            lambda: Int8Index(BYTES).search(BYTES, 1, allowlist=[0.5]),
            "allowlist.dtype is float64; allowed: integers",
        ),
        (
            lambda: Int8Index(BYTES).add(BYTES.view(np.uint8)),
            "Int8Index.add: vectors.dtype is uint8; allowed: int8 (the index's",
        ),
        (
            lambda: Int8Index(FLOATS).add(BYTES),
            "Int8Index.add: vectors.dtype is int8; allowed: floats, as the index was",
        ),
        (
            lambda: Int8Index(BYTES).add(BYTES[:, :3]),
            "Int8Index.add: vectors.shape is (3, 3); allowed: (n, 4)",
        ),
        (lambda: Int8Index(BYTES).add(BYTES, floats=FLOATS), "Int8Index.add: floats is given; allowed: None"),
        (
            lambda: Int8Index(BYTES, floats=FLOATS).add(BYTES),
            "Int8Index.add: floats is None; allowed: the vectors as floats",
        ),
        (
            lambda: Int8Index(BYTES).add_with_ids(BYTES, [1, 2, 3]),
            "Int8Index.add_with_ids: ids is given; allowed: None: the index has no ids",
        ),
        (lambda: Int8Index(BYTES, ids=[1, 2, 3]).add(BYTES), "Int8Index.add: ids is None; allowed: an id for"),
        (
            lambda: Int8Index(BYTES, ids=[1, 2, 3]).add_with_ids(BYTES, [4, 5, 2]),
            "ids[2] is 2; allowed: ids that the index",
        ),
        (lambda: Int8Index(BYTES).reconstruct(3), "Int8Index.reconstruct: i is 3; allowed: 0 to 2"),
        (lambda: Int8Index(BYTES).reconstruct(-1), "Int8Index.reconstruct: i is -1; allowed: 0 to 2"),
        (lambda: Int8Index(BYTES).reconstruct(1 << 63), "Int8Index.reconstruct: i is 9223372036854775808; allowed"),
        (lambda: Int8Index(BYTES[:2], floats=BAD), "Int8Index: floats[1, 1] is nan; allowed: finite numbers"),
        (
            lambda: Int8Index(FLOATS.astype(np.float16), floats=True).add(np.float32(1e5) * FLOATS),
            "Int8Index.add: floats[0, 0] is inf; allowed: finite numbers",
        ),
        (lambda: FloatIndex(np.ones(3)), "FloatIndex: vectors.shape is (3,); allowed: a matrix (N, D)"),
        (lambda: FloatIndex(np.ones((3, 0))), "FloatIndex: vectors.shape[1] is 0; allowed: 1 to 16384 dimensions"),
        (lambda: FloatIndex(BYTES), "FloatIndex: vectors.dtype is int8; allowed: float32, float16, bfloat16, float64"),
        (lambda: FloatIndex(FLOATS, "dot"), "FloatIndex: metric is 'dot'; allowed: 'ip', 'l2', 'cosine'"),
        (lambda: FloatIndex(BAD), "FloatIndex: vectors[1, 1] is nan; allowed: finite numbers of at most 2**500"),
        (lambda: FloatIndex(BAD * 1e200), "FloatIndex: vectors[0, 0] is 1e+200; allowed: finite numbers of at most"),
        (lambda: FloatIndex(BAD.astype(np.float32)), "FloatIndex: vectors[1, 1] is nan; allowed: finite numbers"),
        (lambda: FloatIndex(FLOATS, ids=[1, 2, 1]), "FloatIndex: ids[2] is 1 again; allowed: different ids"),
        (
            lambda: FloatIndex(FLOATS).search(FLOATS[:, :3], 1),
            "FloatIndex.search: queries.shape is (3, 3); allowed: (M, 4)",
        ),
        (
            lambda: FloatIndex(FLOATS).search(FLOATS[None], 1),
            "FloatIndex.search: queries.shape is (1, 3, 4); allowed: (M, 4) or (4,), with queries.reshape(-1, 4)",
        ),
        (lambda: FloatIndex(FLOATS).search(BAD, 1), "FloatIndex.search: queries[1, 1] is nan; allowed: finite numbers"),
        (lambda: FloatIndex(FLOATS).search(BYTES, 1), "FloatIndex.search: queries.dtype is int8; allowed: float32"),
        (lambda: FloatIndex(FLOATS).search(FLOATS, -1), "FloatIndex.search: k is -1; allowed: an integer of at least"),
        (
            lambda: FloatIndex(FLOATS).add(FLOATS.astype(np.float64)),
            "FloatIndex.add: vectors.dtype is float64; allowed: float32 (the index's type)",
        ),
        (lambda: FloatIndex(FLOATS).add(BAD.tolist()), "FloatIndex.add: vectors[1, 1] is nan; allowed: finite"),
        (
            lambda: FloatIndex(FLOATS.astype(np.float16)).add([[1e6, 1, 1, 1]]),
            "FloatIndex.add: vectors[0, 0] is inf; allowed: finite numbers",
        ),
        (
            lambda: FloatIndex(FLOATS).add_with_ids(FLOATS, [1, 2, 3]),
            "FloatIndex.add_with_ids: ids is given; allowed: None: the index has no ids",
        ),
        (lambda: FloatIndex(FLOATS, ids=[1, 2, 3]).add(FLOATS), "FloatIndex.add: ids is None; allowed: an id for"),
        (
            lambda: FloatIndex(FLOATS).search("a", 1),
            "FloatIndex.search: queries is a scalar of <U1; allowed: a matrix (N, D)",
        ),
        (lambda: FloatIndex(FLOATS).search(FLOATS, 1, exclude=[[1]]), "exclude is 1 list; allowed: a list of ints"),
        (lambda: FloatIndex(FLOATS[:, :1]).search(FLOATS, 1), ": the vectors of the index have 1 dimension"),
        (lambda: semantic_search(FLOATS, FLOATS, score_function=3), "semantic_search: score_function is 3; allowed"),
        (lambda: knn(BYTES, FLOATS, 1), "knn: queries.dtype is int8; allowed: float32"),
        (lambda: knn(FLOATS, BAD, 1), "knn: vectors[1, 1] is nan; allowed: finite numbers"),
        (lambda: knn(FLOATS, FLOATS, 1, "dot"), "knn: metric is 'dot'; allowed: 'ip', 'l2', 'cosine'"),
        (lambda: knn(BYTES[:, :3], BYTES, 1), "knn: queries.shape is (3, 3); allowed: (M, 4)"),
        (lambda: knn(FLOATS, FLOATS, 1, mask=[1, 2, 3]), "knn: mask.dtype is int64; allowed: bool"),
        (lambda: semantic_search(FLOATS, BAD), "semantic_search: corpus_embeddings[1, 1] is nan; allowed: finite"),
        (lambda: semantic_search(BAD, FLOATS), "semantic_search: query_embeddings[1, 1] is nan; allowed: finite"),
        (
            lambda: semantic_search(FLOATS, Int8Index(FLOATS, floats=True), rescore=0),
            "semantic_search: rescore is 0; allowed: an integer of at least 1",
        ),
        (lambda: knn(FLOATS, FLOATS, -1), "knn: k is -1; allowed: an integer of at least 0"),
        (lambda: knn(BYTES, BYTES, 1, rescore=2), "knn: rescore is 2; allowed: None: vectors are int8, not floats"),
        (lambda: semantic_search(FLOATS, FLOATS, top_k=-1), "semantic_search: top_k is -1; allowed: an integer"),
        (
            lambda: semantic_search(FLOATS[:, :3], FLOATS),
            "semantic_search: query_embeddings.shape is (3, 3); allowed: (M, 4)",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(dmlcpu.DmlError) as caught:
        call()
    assert message in str(caught.value)


def test_an_error_of_an_index_keeps_its_class():
    with pytest.raises(dmlcpu.UnsupportedError, match=r"^knn: queries\.dtype is int8"):
        knn(BYTES, FLOATS, 1)


@pytest.mark.parametrize("index_class", [FloatIndex, Int8Index])
def test_a_path_without_an_index_is_named_with_what_belongs_there(index_class, tmp_path):
    name = index_class.__name__
    expected = f"{name}.load: no such folder; allowed: a folder that {name}.save wrote"
    with pytest.raises(FileNotFoundError, match=f"{expected}: .*nope") as caught:
        index_class.load(tmp_path / "nope")
    assert caught.value.filename == str(tmp_path / "nope")
    for call in (index_class.load, index_class(FLOATS).save):
        with pytest.raises(TypeError, match=rf"{name}\.{call.__name__}: path is None; allowed: the path of a folder"):
            call(None)
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as error:
        index_class(FLOATS).save(tmp_path / "file" / "x")
    assert error.value.filename == str(tmp_path / "file" / "x")


@pytest.mark.parametrize("call", [FloatIndex, lambda path: Int8Index(FLOATS, floats=path)])
def test_a_path_without_vectors_is_named_with_what_belongs_there(call, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"(vectors|floats) names no file; allowed: a \.npy file: .*nope"):
        call(str(tmp_path / "nope"))


def test_a_refused_addition_adds_nothing():
    index = Int8Index(FLOATS, "l2", ids=[1, 2, 3], floats=True)
    for arguments in ((BAD, [4, 5]), (FLOATS, [7, 7, 8]), (FLOATS, [3, 7, 8])):
        with pytest.raises(dmlcpu.DmlError):
            index.add_with_ids(*arguments)
    assert index.ntotal == 3
    assert index.search(FLOATS[0], 4)[1].tolist() == [1, 2, 3, -1]


def test_wrong_kinds():
    with pytest.raises(TypeError, match=r"Int8Index.search: k is 1.5; allowed: an integer"):
        Int8Index(BYTES).search(BYTES, 1.5)
    with pytest.raises(TypeError, match="Int8Index: metric is 3; allowed"):
        Int8Index(BYTES, 3)
    with pytest.raises(TypeError, match="knn: metric is 3; allowed"):
        knn(BYTES, BYTES, 1, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: knn(None, FLOATS, 1), "knn: queries is NoneType; allowed"),
        (lambda: knn(object(), BYTES, 1), "knn: queries is object; allowed"),
        (
            lambda: semantic_search(FLOATS, Int8Index(FLOATS, floats=True), rescore="4"),
            "semantic_search: rescore is '4'",
        ),
        (lambda: semantic_search(None, FLOATS), "semantic_search: query_embeddings is NoneType; allowed"),
        (lambda: semantic_search(FLOATS, None), "semantic_search: corpus_embeddings is NoneType; allowed"),
    ],
)
def test_wrong_kinds_name_the_function_and_its_argument(call, message):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(message)
