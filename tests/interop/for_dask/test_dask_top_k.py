"""top_k on Dask's arrays, against the function on the whole array, bit for bit."""

import itertools

import numpy as np
import pytest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from dask_arrays import assert_equals, chunked  # noqa: E402
from samples import INDEX_TYPES, TOP_K_TYPES, assert_same_bits, values  # noqa: E402

import dmlcpu  # noqa: E402
from dmlcpu.interop import dask as ours  # noqa: E402
from dmlcpu.interop.dask import tasks  # noqa: E402


@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_top_k(dtype):
    """All forms of calls with float32, and four with each other type."""
    rng = np.random.default_rng(1)
    first = 0 if dtype == np.float32 else TOP_K_TYPES.index(dtype)  # so that all forms have some type
    for number in range(first, first + (12 if dtype == np.float32 else 4)):
        shape = tuple(int(n) for n in rng.integers(1, 10, 1 + number % 3))
        x, axis = values(rng, shape, dtype), number % len(shape) - len(shape)
        options = {
            "axis": axis,
            "mode": ("largest", "smallest")[number % 2],
            "nan": ("greatest", "last")[number // 2 % 2],
            "index_dtype": INDEX_TYPES[number % 4],
        }
        lazy = chunked(rng, x)
        for k in ({1, shape[axis]}, {0, shape[axis] // 2})[number // 4 % 2 if dtype == np.float32 else number % 2]:
            case = f"{lazy.chunks} k {k} {options}"
            found = ours.top_k(lazy, k, split_every=2 + number % 2, **options)
            assert found.values.numblocks[axis] == 1
            assert_equals(found, dmlcpu.top_k(x, k, **options), case)


@pytest.mark.parametrize("chunks", [(1,) * 12, (0, 5, 0, 0, 7, 0), (12,), (11, 1)])
def test_top_k_of_ties_and_nan_across_chunks(chunks):
    x = np.array([1, np.nan, 1, 0.0, -0.0, 1, -np.nan, 1, 0.0, np.inf, np.nan, 1], np.float32)
    for k, largest, nan in itertools.product((0, 1, 4, 7, 12), (True, False), ("greatest", "last")):
        found = ours.top_k(da.from_array(x, chunks=(chunks,)), k, largest=largest, nan=nan, split_every=2)
        assert_equals(found, dmlcpu.top_k(x, k, largest=largest, nan=nan))


def test_unsorted_top_k_has_the_same_elements():
    x = np.random.default_rng(2).integers(0, 50, 3_000)
    right = dmlcpu.top_k(x, 1_000)
    for chunks in (3_000, 700):
        found = dask.compute(*ours.top_k(da.from_array(x, chunks=chunks), 1_000, sorted=False))
        order = np.lexsort((found[1], -found[0]))
        assert_same_bits([each[order] for each in found], right)


def test_top_k_of_arrays_without_elements():
    for shape, axis in (((0,), 0), ((0, 5), 1), ((5, 0), 0), ((3, 0, 2), 1)):
        x = np.zeros(shape, np.float32)
        for k in {0, shape[axis]}:
            assert_equals(ours.top_k(da.from_array(x, chunks=2), k, axis=axis), dmlcpu.top_k(x, k, axis=axis))


def test_top_k_takes_arrays_that_are_not_lazy(tmp_path):
    x = np.random.default_rng(3).standard_normal((4, 30))
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for given in (x, x.tolist(), mapped, x.astype(">f8"), da.from_array(x.astype(">f8"), chunks=7)):
        assert_equals(ours.top_k(given, 3), dmlcpu.top_k(x, 3))


def test_tree_merges_split_every_chunks_at_a_time(monkeypatch):
    seen, merge = [], tasks.top_k
    monkeypatch.setattr(tasks, "top_k", lambda x, k, **options: (seen.append(x.size), merge(x, k, **options))[1])
    ours.top_k(da.arange(1_000, chunks=10), 4, split_every=3).values.compute()
    assert max(seen) == 12
    assert seen.count(10) == 100
