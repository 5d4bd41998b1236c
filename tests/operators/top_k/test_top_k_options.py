import sys

import numpy as np
import pytest
from samples import TOP_K_TYPES, assert_same_bits, read_only, strided

import dmlcpu
from dmlcpu import reference
from dmlcpu.operators.top_k.plan import prepare


def test_mode_and_largest_say_the_same():
    x = np.array([3, 1, 2, 3])
    for mode, largest in (("largest", True), ("smallest", False)):
        assert dmlcpu.top_k(x, 3, mode=mode).indices.tolist() == dmlcpu.top_k(x, 3, largest=largest).indices.tolist()


@pytest.mark.parametrize("dtype", [t for t in TOP_K_TYPES if t.kind not in "biu"], ids=str)
def test_nan_last(dtype):
    x = np.array([1, np.nan, -np.inf, np.inf, -np.nan, -0.0, 0.0]).astype(dtype)
    assert dmlcpu.top_k(x, 7, nan="last").indices.tolist() == [3, 0, 5, 6, 2, 1, 4]
    assert dmlcpu.top_k(x, 7, nan="last", mode="smallest").indices.tolist() == [2, 5, 6, 0, 3, 1, 4]
    assert dmlcpu.top_k(x, 7).indices.tolist() == [1, 4, 3, 0, 5, 6, 2]


def test_a_k_for_each_sequence():
    x = np.array([[5, 1, 9], [2, 8, 4], [7, 7, 0]], np.int16)
    found = dmlcpu.top_k(x, [2, 0, 3], sorted=False)
    low = np.iinfo(np.int16).min
    assert found.values.tolist() == [[9, 5, low], [low] * 3, [7, 7, 0]]
    assert found.indices.tolist() == [[2, 0, -1], [-1] * 3, [0, 1, 2]]
    found = dmlcpu.top_k(
        x, np.array([1, 2, 0], np.uint8), axis=0, mode="smallest", fill_value=-5, index_dtype=np.uint32
    )
    assert found.values.tolist() == [[2, 1, -5], [-5, 7, -5]]
    assert found.indices.tolist() == [[1, 0, 2**32 - 1], [2**32 - 1, 2, 2**32 - 1]]
    out = np.full((3, 1), 77, np.int16), np.full((3, 1), 77)
    assert dmlcpu.top_k(x, [1], out=out).values is out[0]
    assert (out[0].tolist(), out[1].tolist()) == ([[9], [8], [7]], [[2], [1], [0]])
    assert dmlcpu.top_k(x[:0], np.zeros(0, int)).values.shape == (0, 0)
    assert dmlcpu.top_k(np.zeros(3, bool), np.array(2)).values.shape == (2,)


def test_outputs_may_be_where_k_and_the_fill_value_are():
    x = np.arange(9.0).reshape(3, 3)
    indices, values = np.zeros((3, 3), np.int64), np.full((3, 3), -7.0)
    indices[:, 0] = [1, 2, 3]
    found = dmlcpu.top_k(x, indices[:, 0], fill_value=values[0, :1].reshape(()), out=(values, indices))
    assert found.indices.tolist() == [[2, -1, -1], [2, 1, -1], [2, 1, 0]]
    assert found.values.tolist() == [[2, -7, -7], [5, 4, -7], [8, 7, 6]]


@pytest.mark.parametrize("change", [np.copy, strided])
@pytest.mark.parametrize("axis", [0, -1])
def test_outputs_may_have_more_places_than_the_greatest_of_an_array_of_k(axis, change):
    x = np.array([[5, 1, 9], [2, 8, 4], [7, 7, 0]], np.int16)
    expected = reference.top_k(x, [2, 0, 3], axis=axis, fill_value=-5)
    assert expected.values.shape == (3, 3)
    out = change(np.full((3, 3), 77, np.int16)), change(np.full((3, 3), 77))
    for k in ([1, 0, 2], [2, 0, 3]):
        assert dmlcpu.top_k(x, k, axis=axis, fill_value=-5, out=out).values is out[0]
        for found, best, empty in zip(out, expected, (-5, -1), strict=True):
            winners = np.expand_dims(k, axis) > np.arange(3).reshape((-1, 1) if axis == 0 else (1, -1))
            np.testing.assert_array_equal(found, np.where(winners, best, empty))


def test_a_bound_list_of_k_is_a_constant():
    x, k = np.array([[5, 1, 9], [2, 8, 4], [7, 7, 0]]), [2, 0, 1]
    run = dmlcpu.bind(dmlcpu.top_k, x, k, fill_value=-5)
    k.clear()
    for _ in range(2):
        assert_same_bits(run(), reference.top_k(x, [2, 0, 1], fill_value=-5))
        x += np.arange(9).reshape(3, 3) % 2 * 7


def test_awkward_k():
    x = np.arange(6.0).reshape(2, 3)
    assert dmlcpu.top_k(x, range(1, 3)).indices.tolist() == [[2, -1], [2, 1]]
    assert dmlcpu.top_k(np.empty((0, 4)), [3]).values.shape == (0, 3)
    assert dmlcpu.top_k(np.empty((0, 4)), []).values.shape == (0, 0)
    with pytest.raises(
        dmlcpu.BindingError, match="top_k: k is lists of different lengths; allowed: an array, or lists of one length"
    ):
        dmlcpu.top_k(x, [[1], [1, 2]])
    assert reference.top_k(x, 1, largest=np.False_).indices.tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("dtype", "last", "first"), [(bool, False, True), (np.uint8, 0, 255), (np.float16, -np.inf, np.inf)]
)
def test_what_fills_the_rest(dtype, last, first):
    x = np.array([[0, 1], [1, 1]], dtype)
    assert dmlcpu.top_k(x, [1, 2]).values[0, 1] == last
    assert dmlcpu.top_k(x, [1, 2], mode="smallest").values[0, 1] == first


def test_equal_options_of_other_types_are_told_apart():
    x = np.array([[3, 1, 2]])
    for good, wrong in (
        ({"axis": 1}, {"axis": 1.0}),
        ({"axis": 1}, {"axis": True}),
        ({"sorted": True}, {"sorted": 1}),
        ({"largest": True}, {"largest": 1.0}),
        ({"mode": "largest"}, {"mode": ["largest"]}),
        ({"index_dtype": "int32"}, {"index_dtype": "int16"}),
    ):
        for _ in range(2):
            assert dmlcpu.top_k(x, 1, **good).values.tolist() == [[3]]
            with pytest.raises((TypeError, dmlcpu.UnsupportedError), match=f"top_k: {next(iter(wrong))} is"):
                dmlcpu.top_k(x, 1, **wrong)
    for k in (1.0, True, "1"):
        with pytest.raises(TypeError, match="top_k: k is"):
            dmlcpu.top_k(x, k)


@pytest.mark.parametrize("change", [np.copy, np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], read_only])
def test_a_repeated_call_is_prepared_once(change):
    x = change(np.array([[3, 1, 2]]))
    for out in (None, (np.empty((1, 2), x.dtype), np.empty((1, 2), np.int64)), (strided(x[:, :2]), strided(x[:, :2]))):
        assert dmlcpu.top_k(x, 2, out=out).values.tolist() == [[3, 2]]
        before = prepare.cache_info()
        assert dmlcpu.top_k(x, 2, out=out).values.tolist() == [[3, 2]]
        after = prepare.cache_info()
        assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)


def test_a_repeated_call_makes_few_python_calls():
    x, calls = np.ones((1, 64), np.float32), []
    for _ in range(2):
        dmlcpu.top_k(x, 8)
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        dmlcpu.top_k(x, 8)
    finally:
        sys.setprofile(None)
    assert calls[0] == "top_k"
    assert len(calls) <= 10, calls


def test_results_have_the_metadata_of_their_own_input():
    marked = np.dtype(np.float32, metadata={"of": "x"})
    for dtype in (marked, np.dtype(np.float32)):
        assert dmlcpu.top_k(np.zeros((2, 3), dtype), 1).values.dtype.metadata == dtype.metadata
