"""Common to all functions on Dask arrays: refusals, graphs, schedulers, threads."""

import os
import threading

import numpy as np
import pytest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from dask_arrays import assert_equals  # noqa: E402
from processes import run  # noqa: E402
from samples import assert_same_bits, few_values, quantized, random_bits  # noqa: E402

import dmlcpu  # noqa: E402
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError, UnsupportedError  # noqa: E402
from dmlcpu.interop import dask as ours  # noqa: E402
from dmlcpu.runtime import threads  # noqa: E402


def unknown(x):
    return x[x > 0]  # of unknown size


x8, m8 = da.ones(8, chunks=3), da.ones((8, 8), dtype=np.uint8, chunks=3)
ONES = (1.0, None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ours.top_k(x8, 9), DmlError, "top_k: k is 9; allowed: 0 to 8"),
        (lambda: ours.top_k(x8, 1, axis=1), DmlError, "top_k: axis is 1; allowed: -1 to 0"),
        (lambda: ours.top_k(x8, 1, mode="best"), DmlError, "top_k: mode is 'best'"),
        (lambda: ours.top_k(x8, 1, nan="first"), DmlError, "top_k: nan is 'first'"),
        (lambda: ours.top_k(x8, 1, sorted=1), TypeError, "top_k: sorted is 1; allowed: True or False"),
        (lambda: ours.top_k(x8, 1, index_dtype="int8"), UnsupportedError, "top_k: index_dtype is int8"),
        (lambda: ours.top_k(x8, 1, split_every=1), DmlError, "top_k: split_every is 1; allowed: at least 2"),
        (lambda: ours.top_k(x8, x8.sum()), TypeError, "top_k: k is Array; allowed: an integer"),
        (lambda: ours.top_k(x8, [1]), TypeError, r"top_k: k is \[1\]; allowed: an integer"),
        (lambda: ours.top_k(x8.astype("M8[s]"), 1), UnsupportedError, "top_k: x.dtype is datetime64"),
        (lambda: ours.top_k(x8.astype(object), 1), TypeError, "top_k: x is an array of dtype object"),
        (lambda: ours.top_k(unknown(x8), 1), BindingError, r"top_k: x.shape is \(nan,\); allowed: known sizes"),
        (lambda: ours.top_k(da.ma.masked_equal(x8, 1), 1), TypeError, "x is a dask array of MaskedArray"),
        (lambda: ours.top_k(dask.delayed(np.zeros(8)), 1), TypeError, "allowed: an array, as dask"),
        (lambda: ours.top_k(x8, 1, out=x8), UnsupportedError, "top_k: out is Array; allowed: None"),
        (lambda: ours.scatter_nd(x8, x8, x8), UnsupportedError, "scatter_nd: indices.dtype is float64"),
        (lambda: ours.scatter_nd(x8, [[1]], x8), BindingError, r"updates.shape is \(8,\); allowed: \(1,\)"),
        (lambda: ours.scatter_nd(x8, [[1]], x8[:1].astype("f4")), BindingError, "updates.dtype is float32"),
        (lambda: ours.scatter_nd(x8, [[1]], [0.5, 2]), BindingError, r"updates.shape is \(2,\)"),
        (lambda: ours.scatter_nd(x8, [[1]], [1.0], mode="wrap"), DmlError, "mode is 'wrap'"),
        (lambda: ours.scatter_nd(x8[:0], [[1]], [1.0], mode="clip"), IndexOutOfRangeError, "empty dimension"),
        (lambda: ours.scatter_nd(x8, [[1]], unknown(x8)), BindingError, "scatter_nd: updates.shape is"),
        (lambda: ours.scatter_nd(x8, [[1]], [1.0], out=np.zeros(8)), UnsupportedError, "out is ndarray"),
        (lambda: ours.quantized_matmul(x8, *ONES, m8, *ONES, *ONES), UnsupportedError, "a.dtype is float64"),
        (lambda: ours.quantized_matmul(m8, *ONES, m8[1:], *ONES, *ONES), BindingError, "allowed: K = 8 rows"),
        (lambda: ours.quantized_matmul(m8, x8[1:], None, m8, *ONES, *ONES), BindingError, r"a_scale.shape is \(7,\)"),
        (lambda: ours.quantized_matmul(m8, 0.0, None, m8, *ONES, *ONES), DmlError, "a_scale is 0.0"),
        (lambda: ours.quantized_matmul(m8, *ONES, m8, 1.0, x8, *ONES), UnsupportedError, "b_zero_point.dtype is"),
        (lambda: ours.quantized_matmul(m8, *ONES, m8, *ONES, *ONES, out=m8), UnsupportedError, "out is Array"),
    ],
)
def test_refusals(call, error, message):
    """The functions' errors are raised when the graph is made."""
    with pytest.raises(error, match=message) as caught:
        call()
    assert type(caught.value) is error


def graphs(x, indices, updates, a):
    """Return results of each function, with every step that depends on chunks."""
    return (
        *ours.top_k(x, 3, axis=0),
        ours.scatter_nd(x, indices, updates, reduction="add"),
        ours.quantized_matmul(a, 0.5, None, a.T, a[0] + np.float32(1), None, 1.0, np.uint8(3)),
    )


def test_nothing_is_computed_while_a_graph_is_made():
    def made(block_info=None):
        raise AssertionError("computed")

    def never(shape, dtype):
        sizes = tuple(da.core.normalize_chunks(2, shape))
        return da.map_blocks(made, chunks=sizes, dtype=dtype, meta=np.empty((0,) * len(shape), dtype))

    for lazy in graphs(never((9, 4), "f8"), never((5, 1), "i8"), never((5, 4), "f8"), never((6, 6), "u1")):
        with pytest.raises(AssertionError, match="computed"):
            lazy.compute()


def test_names_depend_only_on_the_arguments():
    rng = np.random.default_rng(9)
    arrays = (
        rng.random((9, 4)),
        rng.integers(0, 9, (5, 1)),
        rng.random((5, 4)),
        quantized(rng, (6, 6), np.dtype("u1")),
    )

    def names(arrays, **options):
        return [each.name for each in graphs(*[da.from_array(each, chunks=2) for each in arrays], **options)]

    first = names(arrays)
    assert first == names(arrays)
    assert len(set(first)) == len(first)
    arrays[0][0, 0] += 1
    assert [same for same, other in zip(first, names(arrays), strict=True) if same == other] == first[3:]
    x = da.ones(6, chunks=2)
    options = [{}, {"mode": "smallest"}, {"nan": "last"}, {"index_dtype": "i4"}, {"split_every": 2}, {"sorted": False}]
    assert len({ours.top_k(x, 2, **each).indices.name for each in options}) == len(options)


def lazy_and_expected():
    """Return results of each function in many chunks, and the expected arrays."""
    rng = np.random.default_rng(10)
    x, updates = few_values(rng, (60, 40), np.dtype("f4")), few_values(rng, (50, 40), np.dtype("f4"))
    indices, a = rng.integers(-60, 60, (50, 1)), quantized(rng, (50, 50), np.dtype("u1"))
    arguments = (a, 0.5, 3, a.T, (a[0] + np.float32(1)), None, 900.0, np.uint8(3))
    expected = (*dmlcpu.top_k(x, 3, axis=0), dmlcpu.scatter_nd(x, indices, updates, reduction="add"))
    lazy = [da.from_array(each, chunks=24) for each in (x, indices, updates, a)]
    found = (*ours.top_k(lazy[0], 3, axis=0), ours.scatter_nd(*lazy[:3], reduction="add"))
    product = ours.quantized_matmul(lazy[3], 0.5, 3, lazy[3].T, lazy[3][0] + np.float32(1), *arguments[5:])
    return (*found, product), (*expected, dmlcpu.quantized_matmul(*arguments))


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_schedulers(scheduler):
    lazy, expected = lazy_and_expected()
    count = 1 if scheduler == "processes" else 2  # each process imports all
    assert_same_bits(dask.compute(*lazy, scheduler=scheduler, num_workers=count), expected)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_distributed(processes):
    distributed = pytest.importorskip("distributed")
    from clusters import local_cluster

    lazy, expected = lazy_and_expected()
    x, bad = da.zeros(4, chunks=2), da.from_array(np.array([[0], [1], [7]]), chunks=1)
    with (
        dask.config.set(scheduler=None),
        local_cluster(2, threads=2, processes=processes) as cluster,
        distributed.Client(cluster) as client,
    ):
        for _ in range(2):
            assert_same_bits(client.gather(client.compute(list(lazy))), expected)
        with pytest.raises(IndexOutOfRangeError, match=r"indices\[2, 0\] is 7; allowed: -4 to 3"):
            client.compute(ours.scatter_nd(x, bad, [1.0, 2, 3])).result()
        if not processes:
            return
        names = client.run(lambda: [each.name for each in threading.enumerate()])
        assert len(names) == 2
        assert not [name for each in names.values() for name in each if name.startswith("dmlcpu")]


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="nothing is launched")
def test_task_uses_one_thread_except_under_the_synchronous_scheduler(monkeypatch):
    """The budget would allow five threads, and each task's work is worth them."""
    launched, launch = [], threads.launch
    record = lambda *launch_of: (launched.append(launch_of[-1] + 1), launch(*launch_of))[1]  # noqa: E731
    monkeypatch.setattr(threads, "launch", record)
    lazy, expected = lazy_and_expected()
    with threads.use_budget(5, grain=1):
        assert_same_bits(dask.compute(*lazy, scheduler="threads", num_workers=8), expected)
        assert launched == []
        assert_same_bits(dask.compute(*lazy, scheduler="synchronous"), expected)
        assert max(launched) == 5
        assert threads.budget().threads == 5


def test_without_compiling():
    code = """
    import numpy as np, dask, dask.array as da, dmlcpu
    from dmlcpu.interop import dask as ours
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 255, (5, 9)).astype("u1"), rng.integers(0, 99, (9, 4)).astype("i1")
    arguments = a, 0.1, np.uint8(3), b, [0.1, 0.2, 0.3, 0.4], np.int8(-2), 9.0, np.uint8(7)
    found = ours.quantized_matmul(da.from_array(a, chunks=2), *arguments[1:]).compute(scheduler="synchronous")
    print((found == dmlcpu.quantized_matmul(*arguments)).all())
    """
    assert run(code, NUMBA_DISABLE_JIT="1").strip() == "True"


def test_top_k_keeps_any_bits():
    x = random_bits(np.random.default_rng(11), (300,), np.dtype(np.float32))
    assert_equals(ours.top_k(da.from_array(x, chunks=70), 300), dmlcpu.top_k(x, 300))
