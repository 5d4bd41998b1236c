"""scatter_nd on Dask's arrays, against the function on the whole arrays, bit for bit."""

import itertools

import numpy as np
import pytest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from dask_arrays import assert_equals, chunked  # noqa: E402
from samples import COMPLEX, NUMERIC_TYPES, OTHER_TYPES, values  # noqa: E402

import dmlcpu  # noqa: E402
from dmlcpu.errors import IndexOutOfRangeError  # noqa: E402
from dmlcpu.interop import dask as ours  # noqa: E402
from dmlcpu.interop.dask import tasks  # noqa: E402


def draw_scatter(rng, dtype, *, reductions, modes):
    """Draw a call of scatter_nd, as (x, indices, updates) and options; indices repeat."""
    reduction, mode = rng.choice(reductions), rng.choice(modes)
    shape = tuple(int(n) for n in rng.integers(1, 8, rng.integers(1, 4)))
    coordinates = int(rng.integers(0, len(shape) + 1))
    leading = tuple(int(n) for n in rng.integers(0, 12, rng.integers(0, 3)))
    beyond = 0 if mode == "raise" else 2
    index_type = np.dtype(rng.choice(["int8", "int32", "int64", "uint8", "uint64"]))
    indices = np.zeros((*leading, coordinates), index_type)
    for number, n in enumerate(shape[:coordinates]):
        lowest = -n - beyond if index_type.kind == "i" else 0
        indices[..., number] = rng.integers(lowest, n + beyond, leading).astype(index_type)
    x, updates = values(rng, shape, dtype), values(rng, leading + shape[coordinates:], dtype)
    return (x, indices, updates), {"reduction": str(reduction), "mode": str(mode)}


TYPES = [*NUMERIC_TYPES, *OTHER_TYPES[:4]]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_scatter_nd(dtype):
    rng = np.random.default_rng([4, TYPES.index(dtype)])
    reductions = ["none", "add", "mul", "min", "max"]
    reductions = reductions[:3] if dtype in COMPLEX else reductions if dtype in NUMERIC_TYPES else reductions[:1]
    for _ in range(9 if dtype == np.float32 else 3):
        arguments, options = draw_scatter(rng, dtype, reductions=reductions, modes=["raise", "drop", "clip"])
        lazy = [chunked(rng, each, always=False) for each in arguments]
        case = f"{[each.shape for each in arguments]} {options}"
        assert_equals(ours.scatter_nd(*lazy, split_every=2, **options), dmlcpu.scatter_nd(*arguments, **options), case)


@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_indices_far_out_of_range(mode):
    x, updates = np.zeros(5), np.arange(1.0, 5)
    for index_type in (np.int64, np.uint64, np.int32, np.uint32):
        limits = np.iinfo(index_type)
        indices = np.array([[limits.max], [limits.min], [limits.max - 1], [3]], index_type)
        found = ours.scatter_nd(da.from_array(x, chunks=2), indices, updates, mode=mode, reduction="add")
        assert_equals(found, dmlcpu.scatter_nd(x, indices, updates, mode=mode, reduction="add"))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_updates_of_one_place_are_applied_in_order_across_chunks(reduction):
    """Sums of float32 and the last update depend on the order; five chunks of updates go to three chunks of x."""
    rng = np.random.default_rng(5)
    x, places = rng.standard_normal(9).astype(np.float32), rng.integers(-9, 9, (2_000, 1))
    updates = rng.uniform(-2, 2, 2_000).astype(np.float32)
    arguments = (x, places, updates)
    lazy = [da.from_array(x, chunks=3), da.from_array(places, chunks=(150, 1)), da.from_array(updates, chunks=430)]
    expected = dmlcpu.scatter_nd(*arguments, reduction=reduction)
    assert_equals(ours.scatter_nd(*lazy, reduction=reduction), expected)
    if reduction in ("none", "add"):
        backwards = dmlcpu.scatter_nd(x, places[::-1], updates[::-1], reduction=reduction)
        assert backwards.tobytes() != expected.tobytes()


def test_task_gets_only_the_updates_of_its_chunk(monkeypatch):
    seen, apply = [], tasks.apply
    monkeypatch.setattr(
        tasks, "apply", lambda block, pieces, **options: (seen.append(pieces), apply(block, pieces, **options))[1]
    )
    x, updates = da.zeros(100, chunks=10), da.arange(60.0, chunks=20)
    ours.scatter_nd(x, np.arange(60)[:, None], updates, split_every=2).compute()
    assert sorted(piece[1].size for pieces in seen for piece in pieces if piece) == [10] * 6
    assert max(map(len, seen)) == 2


@pytest.mark.parametrize("shape", [(7, 2), (2, 3, 2), (2,)])
def test_first_index_out_of_range_raises_the_error_of_the_function(shape):
    x = np.zeros((5, 6))
    for index_type, bad in [(np.int64, ()), *itertools.product((np.int64, np.int8, np.uint64), ((3,), (1, 3)))]:
        indices = np.zeros(shape, index_type)
        for place in bad:
            indices.flat[place % indices.size] = 9
        updates = np.zeros(shape[:-1])
        lazy = ours.scatter_nd(da.from_array(x, chunks=2), da.from_array(indices, chunks=1), updates)
        if not bad:
            lazy.compute()
            continue
        with pytest.raises(IndexOutOfRangeError) as expected:
            dmlcpu.scatter_nd(x, indices, updates)
        for part in (lazy, lazy[4:, 4:]):  # for any chunk
            with pytest.raises(IndexOutOfRangeError) as found:
                part.compute()
            assert str(found.value) == str(expected.value)
