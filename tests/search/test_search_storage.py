"""Indices on disk: what is written is read again; what is truncated, foreign or hostile is refused."""

import json
import os
import pickle
import shutil
import tracemalloc

import numpy as np
import pytest

import dmlcpu
from dmlcpu.search import FloatIndex, Int8Index, storage
from dmlcpu.search.blocks import load_index

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((20, 6)).astype(np.float32)
RANGES = np.vstack([np.full(6, -1), np.full(6, 2)]).astype(np.float32)


def indices():
    codes = RNG.integers(0, 255, (20, 6)).astype(np.uint8)
    yield "bytes", Int8Index(codes)
    yield "floats", Int8Index(VECTORS, "cosine", ids=np.arange(20)[::-1] * 5, floats=True)
    yield "ranges", Int8Index(codes, "l2", ranges=RANGES)
    yield "doubles", Int8Index(VECTORS.astype(float), "l2", floats=True)
    yield "none", Int8Index(codes[:0], "cosine", ids=[])
    for metric in ("ip", "l2", "cosine"):
        yield f"float16 {metric}", FloatIndex(VECTORS.astype(np.float16), metric)
    yield "float32", FloatIndex(VECTORS, "cosine", ids=np.arange(20)[::-1] * 5)
    yield "float64", FloatIndex(VECTORS.astype(float) * 1e40, "l2")
    yield "no floats", FloatIndex(VECTORS[:0], "cosine", ids=[])


INDICES = dict(indices())


@pytest.fixture
def saved(tmp_path):
    Int8Index(VECTORS, "l2", ids=np.arange(20) * 2, floats=True).save(tmp_path / "a.index")
    return tmp_path / "a.index"


@pytest.fixture
def saved_floats(tmp_path):
    FloatIndex(VECTORS, "cosine", ids=np.arange(20) * 2).save(tmp_path / "f.index")
    return tmp_path / "f.index"


def contents(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", INDICES)
def test_a_saved_index_is_the_same(tmp_path, name):
    index = INDICES[name]
    index.save(tmp_path / "one")
    again = type(index).load(tmp_path / "one")
    assert repr(again) == repr(index) == repr(load_index(tmp_path / "one"))
    options = {"rescore": 2} if isinstance(index, Int8Index) and index.has_floats else {}
    for found, expected in zip(again.search(VECTORS, 9, **options), index.search(VECTORS, 9, **options), strict=True):
        assert np.array_equal(found, expected)
    assert again.stored.limits == index.stored.limits
    for each in again.stored.arrays().values():
        assert isinstance(each, np.memmap) or not each.size
    again.save(tmp_path / "one")  # onto the files that it maps
    assert repr(type(index).load(tmp_path / "one")) == repr(index)
    assert contents(tmp_path) == ["one"]


def test_a_loaded_index_can_be_changed_without_its_files(saved):
    index = Int8Index.load(saved)
    index.add_with_ids(VECTORS[:2], [100, 101])
    assert index.remove_ids([0]) == 1
    assert (index.ntotal, Int8Index.load(saved).ntotal) == (21, 20)


def test_pickles_of_a_loaded_index_have_the_numbers(saved):
    text = pickle.dumps(Int8Index.load(saved))
    shutil.rmtree(saved)
    assert pickle.loads(text).ntotal == 20


def refused(folder, match, index_class=Int8Index):
    with pytest.raises(dmlcpu.DmlError, match=match) as caught:
        index_class.load(folder)
    assert caught.value.operator == f"{index_class.__name__}.load"


@pytest.mark.parametrize("name", ["vectors", "scales", "squares", "ids", "floats"])
def test_truncated_and_missing_files(saved, name):
    file = saved / f"{name}.npy"
    whole = file.read_bytes()
    for length in (0, 5, 60, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(saved, rf"{name}\.npy")
    file.write_bytes(whole + b"\0")
    refused(saved, rf"{name}\.npy is .* bytes of elements; allowed: .*, as its header says")
    file.unlink()
    refused(saved, rf"{name}\.npy is missing")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def objects(path):
    np.save(path, np.array([Evil()], dtype=object), allow_pickle=True)


@pytest.mark.parametrize("name", ["vectors", "ids", "index.json"])
def test_nothing_is_unpickled_or_evaluated(saved, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    file = saved / (name if "." in name else f"{name}.npy")
    for write in (objects, lambda path: path.write_bytes(pickle.dumps(Evil()))):
        write(tmp_path / "evil.npy")
        shutil.copy(tmp_path / "evil.npy", file)
        refused(saved, name)
    file.write_bytes(b"\x93NUMPY\x01\x00\x40\x00" + b"{'descr': __import__('os').mkdir('evil'), }".ljust(63) + b"\n")
    refused(saved, name)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("vectors", np.ones((20, 6), np.uint8)),
        ("vectors", np.ones((6, 20), np.int8)),
        ("vectors", np.asfortranarray(np.ones((20, 6), np.int8))),
        ("scales", np.ones(20, ">f4")),
        ("scales", np.ones(20, np.float64)),
        ("scales", np.full(20, np.nan, np.float32)),
        ("scales", np.full(20, -1, np.float32)),
        ("squares", np.full(20, -1, np.int32)),
        ("ids", np.zeros(20, np.int64)),
        ("ids", np.arange(20) - 3),
        ("floats", np.ones((20, 6), "S4")),
        ("floats", np.ones((20, 7), np.float32)),
    ],
)
def test_foreign_arrays(saved, name, array):
    np.save(saved / f"{name}.npy", array)
    refused(saved, rf"{name}\.npy")


def changed(header, path, value):
    *around, last = path
    for each in around:
        header = header[each]
    if value is None:
        del header[last]
    else:
        header[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "faiss"),
        (("version",), 2),
        (("version",), True),
        (("metric",), "hamming"),
        (("metric",), ["l2"]),
        (("metric",), "ip"),  # has no squares
        (("metric",), None),
        (("more",), 1),
        (("arrays",), []),
        (("arrays", "vectors"), None),
        (("arrays", "../secret"), {"dtype": "int8", "shape": [20]}),
        (("arrays", "squares"), None),
        (("arrays", "squares", "dtype"), "float64"),
        (("arrays", "vectors", "dtype"), "object"),
        (("arrays", "vectors", "dtype"), {}),
        (("arrays", "vectors", "dtype"), "uint8"),
        (("arrays", "vectors", "shape"), [20]),
        (("arrays", "vectors", "shape"), [20, -6]),
        (("arrays", "vectors", "shape"), [20.0, 6]),
        (("arrays", "vectors", "shape"), [True, 6]),
        (("arrays", "vectors", "shape"), [20, 1 << 60]),
        (("arrays", "vectors", "shape"), [21, 6]),
        (("arrays", "vectors", "offset"), 4),
        (("arrays", "ids", "shape"), [19]),
    ],
)
def test_foreign_headers(saved, path, value):
    header = json.loads((saved / "index.json").read_text())
    changed(header, path, value)
    (saved / "index.json").write_text(json.dumps(header))
    refused(saved, "index.json")


@pytest.mark.parametrize(
    "text", ["", "[", "null", "3", "[1]", "[" * 100_000, '{"format": 1}', "\xff", " " * 70_000 + "{}"]
)
def test_headers_that_are_none(saved, text):
    (saved / "index.json").write_bytes(text.encode("latin-1"))
    refused(saved, "index.json")


def test_folders_that_are_none(tmp_path):
    refused(tmp_path, "index.json is missing")
    with pytest.raises(FileNotFoundError):
        Int8Index.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(dmlcpu.DmlError, match="a file and no index"):
        Int8Index.load(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_pipes_do_not_hang(saved):
    for name in ("vectors.npy", "index.json"):
        kept = (saved / name).read_bytes()
        (saved / name).unlink()
        os.mkfifo(saved / name)
        refused(saved, "no regular file")
        (saved / name).unlink()
        (saved / name).write_bytes(kept)


FLOAT_ARRAYS = ["vectors", "scales", "squares", "ids", "floats", "bias", "centre", "limits"]


def test_the_files_of_a_float_index(saved_floats):
    assert contents(saved_floats) == sorted(["index.json", *(f"{name}.npy" for name in FLOAT_ARRAYS)])
    header = json.loads((saved_floats / "index.json").read_text())
    assert header["format"] == "dmlcpu.search.FloatIndex"
    assert header["arrays"].keys() == set(FLOAT_ARRAYS)


@pytest.mark.parametrize("name", FLOAT_ARRAYS)
def test_truncated_and_missing_files_of_floats(saved_floats, name):
    file = saved_floats / f"{name}.npy"
    whole = file.read_bytes()
    for length in (0, 5, 60, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(saved_floats, rf"{name}\.npy", FloatIndex)
    file.write_bytes(whole + b"\0")
    refused(saved_floats, rf"{name}\.npy is .* bytes of elements; allowed: .*, as its header says", FloatIndex)
    file.unlink()
    refused(saved_floats, rf"{name}\.npy is missing", FloatIndex)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("vectors", np.ones((20, 6), np.uint8)),
        ("scales", np.full(20, np.nan, np.float32)),
        ("scales", np.full(20, -1, np.float32)),
        ("scales", np.ones(20)),
        ("squares", np.full(20, -1.0)),
        ("squares", np.full(20, np.inf)),
        ("ids", np.zeros(20, np.int64)),
        ("floats", np.ones((20, 7), np.float32)),
        ("floats", np.ones((20, 6), np.float64)),
        ("bias", np.ones(19, np.float32)),
        ("bias", np.full(20, np.nan, np.float32)),
        ("bias", np.full(20, -np.inf, np.float32)),
        ("centre", np.full(6, np.nan)),
        ("centre", np.full(6, np.inf)),
        ("centre", np.ones(5)),
        ("limits", np.full(4, np.nan)),
        ("limits", np.full(4, np.inf)),
        ("limits", np.full(4, -1.0)),
        ("limits", np.ones(3)),
        ("limits", np.array([0.0, 1, 1, 1])),  # of the factor
        ("limits", np.array([1e308, 1, 1, 1])),
        ("limits", np.array([3e-300, 1, 1, 1])),
    ],
)
def test_foreign_arrays_of_floats(saved_floats, name, array):
    np.save(saved_floats / f"{name}.npy", array)
    refused(saved_floats, rf"{name}\.npy", FloatIndex)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "dmlcpu.search.Other"),
        (("version",), 2),
        (("metric",), "l2"),  # has no squares
        (("arrays", "centre"), None),
        (("arrays", "limits"), None),
        (("arrays", "bias"), None),
        (("arrays", "floats"), None),
        (("arrays", "ranges"), {"dtype": "float32", "shape": [2, 6]}),
        (("arrays", "squares", "dtype"), "int32"),
        (("arrays", "limits", "shape"), [20]),
        (("arrays", "centre", "shape"), [20]),
        (("arrays", "floats", "dtype"), "int8"),
        (("arrays", "vectors", "shape"), [20, 7]),
    ],
)
def test_foreign_headers_of_floats(saved_floats, path, value):
    header = json.loads((saved_floats / "index.json").read_text())
    changed(header, path, value)
    (saved_floats / "index.json").write_text(json.dumps(header))
    refused(saved_floats, "index.json", FloatIndex)


@pytest.mark.parametrize("has_ids", [False, True])
def test_files_with_gaps_take_no_memory(tmp_path, has_ids):
    """A small folder seems to hold an index of many vectors; ids that are gaps are no ids."""
    count = 1 << 22
    types = {"vectors": (np.int8, (count, 1)), "scales": (np.float32, (count,)), "squares": (np.int32, (count,))}
    types |= {"ids": (np.int64, (count,))} if has_ids else {}
    arrays = {name: {"dtype": np.dtype(dtype).name, "shape": list(shape)} for name, (dtype, shape) in types.items()}
    header = {"format": "dmlcpu.search.Int8Index", "version": 1, "metric": "l2", "arrays": arrays}
    folder = tmp_path / "sparse.index"
    folder.mkdir()
    (folder / "index.json").write_text(json.dumps(header))
    for name, (dtype, shape) in types.items():
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape).flush()
    tracemalloc.start()
    try:
        if has_ids:
            refused(folder, "ids.npy is with an id twice; allowed: different ids")
        else:
            assert len(Int8Index.load(folder)) == count
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_more_dimensions_than_an_index_has(saved_floats):
    header = json.loads((saved_floats / "index.json").read_text())
    shape = header["arrays"]["vectors"]["shape"]
    for name, array in {"vectors": [0, 1 << 20], "floats": [0, 1 << 20], "centre": [1 << 20]}.items():
        header["arrays"][name]["shape"] = array
        dtype = header["arrays"][name]["dtype"]
        np.lib.format.open_memmap(saved_floats / f"{name}.npy", "w+", dtype, tuple(array)).flush()
    for name in header["arrays"].keys() - {"vectors", "floats", "centre", "limits"}:
        header["arrays"][name]["shape"] = [0]
        np.save(saved_floats / f"{name}.npy", np.empty(0, header["arrays"][name]["dtype"]))
    (saved_floats / "index.json").write_text(json.dumps(header))
    assert shape[1] < 1 << 20
    refused(saved_floats, r"vectors.shape\[1\] is 1048576", FloatIndex)


def test_ids_that_are_not_in_order_are_checked_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_CHECKED", 3)
    for ids, is_right in (
        ([9, 2, 5, 1, 7, 0, 3], True),
        ([9, 2, 5, 1, 7, 0, 9], False),
        ([1, 2, 3, 3, 4, 5, 6], False),
    ):
        index = Int8Index(np.arange(7, dtype=np.int8)[:, None], ids=list(range(7)))
        index.save(tmp_path / "x.index")
        np.save(tmp_path / "x.index" / "ids.npy", np.array(ids))
        if is_right:
            assert len(Int8Index.load(tmp_path / "x.index")) == len(ids)
        else:
            refused(tmp_path / "x.index", "ids.npy is with an id twice")


def test_an_index_is_of_its_class(saved, saved_floats):
    refused(saved, "index.json: format is .*Int8Index.*; allowed: 'dmlcpu.search.FloatIndex'", FloatIndex)
    refused(saved_floats, "index.json: format is .*FloatIndex.*; allowed: 'dmlcpu.search.Int8Index'")
    assert [type(load_index(each)) for each in (saved, saved_floats)] == [Int8Index, FloatIndex]
    FloatIndex(VECTORS).save(saved)  # which replaces one of another class
    assert repr(load_index(saved)) == "FloatIndex(20 x 6 float32, metric='ip')"
    kept = [f"{name}.npy" for name in FLOAT_ARRAYS if name not in ("ids", "squares")]
    assert contents(saved) == sorted(["index.json", *kept])


def test_an_older_index_is_loaded(tmp_path):
    """A folder as the first version of the package wrote it."""
    codes = RNG.integers(-9, 9, (20, 6)).astype(np.int8)
    arrays = {"vectors": codes, "squares": (codes.astype(np.int32) ** 2).sum(axis=1, dtype=np.int32)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    described = {name: {"dtype": str(array.dtype), "shape": list(array.shape)} for name, array in arrays.items()}
    header = {"format": "dmlcpu.search.Int8Index", "version": 1, "metric": "l2", "arrays": described}
    (tmp_path / "index.json").write_text(json.dumps(header, indent=1))
    found = Int8Index.load(tmp_path).search(codes[:5], 4)
    for one, other in zip(found, Int8Index(codes, "l2").search(codes[:5], 4), strict=True):
        assert np.array_equal(one, other)


def test_a_loaded_float_index_can_be_changed_without_its_files(saved_floats):
    index = FloatIndex.load(saved_floats)
    index.add_with_ids(VECTORS[:2], [100, 101])
    assert index.remove_ids([0]) == 1
    assert (index.ntotal, FloatIndex.load(saved_floats).ntotal) == (21, 20)
    text = pickle.dumps(FloatIndex.load(saved_floats))
    shutil.rmtree(saved_floats)
    again = pickle.loads(text)
    for found, expected in zip(
        again.search(VECTORS, 5), FloatIndex(VECTORS, "cosine", np.arange(20) * 2).search(VECTORS, 5), strict=True
    ):
        assert np.array_equal(found, expected)
