"""top_k in blocks."""

import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from samples import TOP_K_TYPES, assert_same_bits, values
from sources import Once, Unreadable, Watched, assert_refused_alike, in_blocks

from dmlcpu import reference
from dmlcpu.common.block_reader import InMemory
from dmlcpu.common.regions import Stopped, Tensor
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.operators.top_k import blocks, search
from dmlcpu.runtime.threads import use_budget


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    shape=st.lists(st.integers(0, 4), min_size=0, max_size=2),
    after=st.lists(st.integers(0, 4), min_size=0, max_size=2),
    n=st.integers(1, 300),
    dtype=st.sampled_from(TOP_K_TYPES),
    seed=st.integers(0, 1000),
)
def test_every_shape_axis_and_amount_of_memory(data, shape, after, n, dtype, seed):
    rng = np.random.default_rng(seed)
    axis, x = len(shape), values(rng, (*shape, n, *after), dtype)
    k = data.draw(st.integers(0, n))
    options = {
        "axis": axis,
        "largest": data.draw(st.booleans()),
        "nan": data.draw(st.sampled_from(["greatest", "last"])),
        "sorted": data.draw(st.booleans()),
    }
    source = Watched(x)
    arguments = {"x": source, "k": k, **options}
    least, most = blocks.estimate(**arguments).least(), blocks.estimate(**arguments).memory
    memory = data.draw(st.integers(least, max(least, 2 * most)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", data.draw(st.sampled_from([64, 4096, 1 << 20])))
        patch.setattr(blocks, "_RUN", 64)
        found = in_blocks("top_k", arguments, memory)
    assert_same_bits(found, reference.top_k(x, k, **options))
    assert source.read_bytes == (x.nbytes if k else 0)  # each element once


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_sequences_are_cut_and_ties_stay_in_order(axis, dtype, small_blocks):
    x = np.random.default_rng(0).integers(0, 5, (600, 40) if axis == 0 else (40, 600)).astype(dtype)
    source = Watched(x)
    found = in_blocks("top_k", {"x": source, "k": 7, "axis": axis})
    assert source.reads > 60
    assert_same_bits(found, reference.top_k(x, 7, axis=axis))


def test_k_may_differ_from_sequence_to_sequence(small_blocks):
    x = np.random.default_rng(0).random((50, 40), np.float32)
    k = np.arange(50)[:, None] % 7
    arguments = {"k": k[:, 0], "fill_value": 3.5, "index_dtype": "uint32"}
    expected = reference.top_k(x, **arguments)
    assert_same_bits(in_blocks("top_k", {"x": Watched(x), **arguments}), expected)


def test_what_is_in_memory_is_not_copied(small_blocks, monkeypatch):
    def read(self, region=None, into=None):
        assert into is None
        return real(self, region)

    real = InMemory.read
    monkeypatch.setattr(InMemory, "read", read)
    x = np.random.default_rng(0).random((50, 4000)).T
    for given_as in (x, x.tolist()):
        with use_budget(2, grain=1):
            found = in_blocks("top_k", {"x": given_as, "k": 3, "axis": 0}, 1 << 20)
        assert_same_bits(found, reference.top_k(x, 3, axis=0))


def test_shapes_and_types_are_told_without_reading():
    x = Unreadable(np.zeros((5, 6), np.float16))
    assert blocks.estimate(x=x, k=2, axis=0, index_dtype="int32").results == {
        "values": Tensor((2, 6), np.dtype("float16")),
        "indices": Tensor((2, 6), np.dtype("int32")),
    }
    assert blocks.estimate(x=x, k=[1, 4, 2, 2, 1]).results["values"].shape == (5, 4)
    assert blocks.estimate(x=x, k=2).memory >= 60 + 20 + 80
    assert blocks.estimate(x=x, k=2).kernel == "lockstep"
    assert blocks.estimate(x=x, k=0).kernel == "none"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"k": 7}, DmlError, "k is 7; allowed: 0 to 6"),
        ({"k": 1, "axis": 2}, DmlError, "axis is 2"),
        ({"k": [1, 2]}, BindingError, "k.shape is"),
        ({"k": 1, "index_dtype": "int8"}, UnsupportedError, "index_dtype is int8"),
        ({"k": 1, "nan": "first"}, DmlError, "nan is 'first'"),
        ({"k": [1] * 5, "fill_value": [1, 2]}, BindingError, "fill_value"),
        ({}, TypeError, r"top_k\(\) missing a required argument: 'k'"),
        ({"k": 1, "depth": 3}, TypeError, r"top_k\(\) got an unexpected keyword argument 'depth'"),
        ({"k": 1, "out": None}, TypeError, r"top_k\(\) got an unexpected keyword argument 'out'"),
    ],
)
def test_what_the_function_refuses_is_refused(arguments, error, message):
    x = np.zeros((5, 6), np.float32)
    if issubclass(error, DmlError):
        assert_refused_alike("top_k", {"x": x, **arguments}, error, message)
    else:
        with pytest.raises(error, match=message):
            blocks.estimate(x=Unreadable(x), **arguments)


def test_an_error_in_reading_is_the_callers(small_blocks):
    class Torn(Watched):
        def read(self, region=None, into=None):
            if self.reads == 5:
                raise OSError("torn")
            return super().read(region, into)

    x = Torn(np.zeros((50, 400), np.float32))
    sinks = {name: Once(tensor) for name, tensor in blocks.estimate(x=x, k=1).results.items()}
    with pytest.raises(OSError, match="torn"):
        blocks.run({"x": x, "k": 1}, sinks, 1 << 20, lambda: False)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 5, 15])
def test_every_element_beats_those_before(k, largest, small_blocks, monkeypatch):
    x = np.arange(4000.0, dtype=np.float32).reshape(500, 8)
    selected = []
    select = search.Search._select
    monkeypatch.setattr(search.Search, "_select", lambda self, *args: (selected.append(args), select(self, *args)))
    found = in_blocks("top_k", {"x": Watched(x), "k": k, "axis": 0, "largest": largest}, 1 << 16)
    assert_same_bits(found, reference.top_k(x, k, axis=0, largest=largest))
    assert (len(selected) > 10) == largest


@pytest.mark.parametrize("workers", [2, 3])
def test_threads_share_the_blocks(workers, small_blocks):
    x = np.random.default_rng(0).integers(0, 9, (60, 100)).astype(np.float32)
    served = set()

    class Noted(Once):
        def write(self, region, block):
            served.add(threading.current_thread().name)
            super().write(region, block)

    k = np.arange(60) % 5
    arguments = {"x": Watched(x), "k": k}
    sinks = {name: Noted(tensor) for name, tensor in blocks.estimate(**arguments).results.items()}
    with use_budget(workers, grain=1):
        blocks.run(arguments, sinks, 1 << 20)
    assert all(name.startswith("dmlcpu-block") for name in served)
    assert all((sink.times == 1).all() for sink in sinks.values())
    assert arguments["x"].read_bytes == x.nbytes
    assert_same_bits(tuple(sink.array for sink in sinks.values()), reference.top_k(x, k))


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("shape", [(900, 40), (3, 900, 5, 8)])
def test_threads_share_sequences_side_by_side(shape, workers, small_blocks):
    class Noted(Watched):
        def read(self, region=None, into=None):
            assert threading.current_thread().name.startswith("dmlcpu-block")
            return super().read(region, into)

    x = np.random.default_rng(0).integers(0, 50, shape).astype(np.float32)
    arguments = {"x": Noted(x), "k": 7, "axis": shape.index(900)}
    with use_budget(workers, grain=1):
        found = in_blocks("top_k", arguments, 1 << 20)
    assert arguments["x"].read_bytes == x.nbytes
    assert_same_bits(found, reference.top_k(x, 7, axis=shape.index(900)))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("shape", "axis"), [((3, 4000, 2048), 1), ((2000, 8192), 1), ((4000, 4, 1024), 0)])
def test_no_more_memory_is_taken_than_may_be(shape, axis, workers):
    class Made:
        """A Source whose elements are made when they are read."""

        def __init__(self):
            self.shape, self.dtype = shape, np.dtype(np.float32)

        def read(self, region=None, into=None):
            return rng.random(out=into, dtype=np.float32)

    class Nowhere:
        def write(self, region, block):
            pass

    rng = np.random.default_rng(0)
    arguments, sinks = {"x": Made(), "k": 50, "axis": axis}, {"values": Nowhere(), "indices": Nowhere()}
    with use_budget(workers, grain=1):
        blocks.run(arguments, sinks, 1 << 30)  # kernels are loaded
        most = blocks.estimate(**arguments).memory
        for memory in (most // 8, most // 3):
            tracemalloc.start()
            try:
                blocks.run(arguments, sinks, memory)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak < memory + (1 << 20), f"within {memory:,} bytes: {peak:,}"


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("fails", ["read", "write", "stopping"])
def test_what_ends_one_thread_ends_all(fails, is_cut, small_blocks):
    class Torn(Watched):
        def read(self, region=None, into=None):
            if fails == "read" and self.reads == 5:
                raise OSError("torn")
            return super().read(region, into)

    class Full(Once):
        def write(self, region, block):
            if fails == "write" and self.times.any():
                raise OSError("full")
            super().write(region, block)

    def stopping():
        return fails == "stopping" and x.reads == 5

    x = Torn(np.zeros((3, 3000, 10) if is_cut else (500, 100), np.float32))
    arguments = {"x": x, "k": 1, "axis": 1}
    sinks = {name: Full(tensor) for name, tensor in blocks.estimate(**arguments).results.items()}
    with use_budget(3, grain=1), pytest.raises((OSError, Stopped), match=r"torn|full|^$"):
        blocks.run(arguments, sinks, 1 << 20, stopping)
    assert x.reads < (520 if fails == "write" and is_cut else 50)  # of 756, or 500
