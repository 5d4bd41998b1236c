"""What is known of a call by the forms of its arrays: looked up, checked, and converted."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError
from dmlcpu.operators.scatter_nd.function import prepare, request
from dmlcpu.runtime.threads import Budget


def test_usual_calls_are_looked_up(monkeypatch):
    """They are not checked again."""
    x, indices, updates = np.zeros(4), np.array([[1], [2]]), np.ones(2)
    for out in (None, np.empty(4), x):
        assert dmlcpu.scatter_nd(x, indices, updates, out=out).tolist() == [0, 1, 1, 0]
        with monkeypatch.context() as patch:
            patch.setattr("dmlcpu.operators.scatter_nd.plan.check", None)
            assert dmlcpu.scatter_nd(x, indices, updates, out=out).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("views", list(itertools.product([False, True], repeat=3)))
def test_views_are_looked_up_by_their_strides(monkeypatch, views):
    arrays = (np.arange(12.0).reshape(4, 3), np.array([[1], [2]]), np.full((2, 3), 7.0))
    given = [np.repeat(each, 2, axis=0)[::2] if is_view else each for each, is_view in zip(arrays, views, strict=True)]
    expected = reference.scatter_nd(*arrays)
    for out in (None, np.empty((4, 3))):
        np.testing.assert_array_equal(dmlcpu.scatter_nd(*given, out=out), expected)
        with monkeypatch.context() as patch:
            patch.setattr("dmlcpu.operators.scatter_nd.plan.check", None)
            np.testing.assert_array_equal(dmlcpu.scatter_nd(*given, out=out), expected)


def test_a_usual_call_looks_where_its_output_is():
    memory = np.zeros(8, np.int64)
    x, indices = memory[:4], memory[4:].reshape(4, 1)
    indices[...] = 1
    for out, name in ((indices[:, 0], "indices"), (memory[1:5], "indices")):
        with pytest.raises(BindingError, match=f"scatter_nd: out is sharing memory with {name}"):
            dmlcpu.scatter_nd(x, indices, np.ones(4, np.int64), out=out)
    owned = {name: np.ones((4, 1), np.int64) for name in ("indices", "updates")}
    for name, out in owned.items():
        with pytest.raises(BindingError, match=f"scatter_nd: out is sharing memory with {name}"):
            dmlcpu.scatter_nd(np.zeros((4, 1), np.int64), **owned, out=out)
    both = np.arange(6)
    with pytest.raises(BindingError, match="sharing memory with x"):
        dmlcpu.scatter_nd(both[:4], indices, np.ones(4, np.int64), out=both[1:5])


@pytest.mark.parametrize("in_place", [False, True])
def test_kernels_get_aligned_words_of_types_of_any_size(in_place):
    """A type with fields equals the same one with aligned fields, whose arrays have wider words."""
    memory, seen = np.zeros(8 * 8 + 1, np.uint8), []
    for dtype, x in (
        (np.dtype("i4,i4", align=True), np.zeros(8, "i4,i4")),
        (np.dtype("i4,i4"), memory[1:]),
        (np.dtype("S8"), memory[1:]),
        (np.dtype("S8"), memory[:-1]),
    ):
        x, updates = x.view(dtype), np.ones(1, dtype)
        out = x if in_place else None
        key, arrays = request(x, np.array([[2]]), updates, "none", "raise", out)
        prepared = prepare(*key, Budget(1))
        words = [prepared.view(each, prepared.element) for each in (arrays[0], updates)]
        assert all(each.flags.aligned for each in words)
        seen.append(prepared.element.itemsize)
        result = dmlcpu.scatter_nd(x, np.array([[2]]), updates, out=out)
        assert result[2] == updates[0]
        assert result.dtype.isalignedstruct == dtype.isalignedstruct
    assert seen == [8, 1, 1, 8]


def test_results_have_the_very_type_of_x():
    """Types that are equal may differ: a plan that was made for one serves the other."""
    marked, plain = np.dtype("f4", metadata={"from": "elsewhere"}), np.dtype("f4")
    for dtype in (marked, plain, marked):
        x, updates = np.zeros(3, dtype), np.ones(1, dtype)
        for run in (dmlcpu.scatter_nd, lambda *args: dmlcpu.bind(dmlcpu.scatter_nd, *args)()):
            result = run(x, np.array([[1]]), updates)
            assert result.tolist() == [0, 1, 0]
            assert result.dtype.metadata == dtype.metadata


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.dtype("i4,f8")])
def test_byte_swapped_arrays_are_converted(place, dtype):
    arguments = [np.zeros(4, dtype), np.array([[1], [-1]]), np.ones(2, dtype)]
    expected = reference.scatter_nd(*arguments)
    arguments[place] = arguments[place].astype(arguments[place].dtype.newbyteorder())
    result = dmlcpu.scatter_nd(*arguments)
    assert result.dtype == expected.dtype
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("index_type", [np.int8, np.uint16])
def test_short_indices_are_read_at_each_call_of_a_bound_operator(index_type):
    x, indices = np.arange(200.0), np.array([[1], [150]], np.uint8).astype(index_type)
    run = dmlcpu.bind(dmlcpu.scatter_nd, x, indices, np.array([7.0, 8.0]))
    for first in (1, 2):
        indices[0] = first
        assert run().tolist() == reference.scatter_nd(x, indices, [7, 8]).tolist()
    if index_type == np.uint16:
        indices[0] = 200
        with pytest.raises(dmlcpu.IndexOutOfRangeError, match=r"indices\[0, 0\] is 200; allowed: -200 to 199"):
            run()
