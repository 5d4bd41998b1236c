import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from operators.top_k.calls import EXAMPLES
from samples import INDEX_TYPES, TOP_K_TYPES, assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.common.forms import Form, form_of
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.kernels.top_k.work import WORK
from dmlcpu.operators import OPERATORS
from dmlcpu.operators.top_k.call import Call
from dmlcpu.operators.top_k.plan import plan, prepare
from dmlcpu.runtime.threads import budget, use_budget


@pytest.mark.parametrize(("rows", "axis", "k", "largest", "values", "indices"), EXAMPLES)
def test_the_examples_of_the_directml_page(rows, axis, k, largest, values, indices):
    found = dmlcpu.top_k(np.array([[rows]], np.float32), k, axis=axis, largest=largest, index_dtype=np.uint32)
    assert found.values.tolist() == [[values]]
    assert found.indices.tolist() == [[indices]]
    assert found.indices.dtype == np.uint32


def test_nan_ranks_above_infinity_and_keeps_its_bits():
    payload = np.array([0x7FC00000, 0xFFC00001, 0x7F800000, 0x7FA00000, 0xFF800000], np.uint32)
    x = payload.view(np.float32)
    largest = dmlcpu.top_k(x, 5)
    assert largest.indices.tolist() == [0, 1, 3, 2, 4]
    assert largest.values.view(np.uint32).tolist() == payload[[0, 1, 3, 2, 4]].tolist()
    assert dmlcpu.top_k(x, 5, largest=False).indices.tolist() == [4, 2, 0, 1, 3]


def test_zeros_of_both_signs_tie_and_keep_their_sign():
    x = np.array([-0.0, 0.0, -0.0], np.float64)
    for largest in (True, False):
        found = dmlcpu.top_k(x, 3, largest=largest)
        assert found.indices.tolist() == [0, 1, 2]
        assert np.signbit(found.values).tolist() == [True, False, True]


def test_k_equal_to_n_sorts_and_k_zero_is_empty():
    x = np.array([[3, 1, 2]], np.int16)
    assert dmlcpu.top_k(x, 3).values.tolist() == [[3, 2, 1]]
    none = dmlcpu.top_k(x, 0)
    assert none.values.shape == none.indices.shape == (1, 0)
    assert none.values.dtype == np.int16


@pytest.mark.parametrize(("shape", "axis", "k"), [((0, 4), 1, 2), ((4, 0), 0, 3), ((0,), 0, 0), ((2, 0, 3), 2, 1)])
def test_empty_arrays(shape, axis, k):
    found = dmlcpu.top_k(np.empty(shape, np.float32), k, axis=axis)
    expected = (*shape[:axis], k, *shape[axis + 1 :])
    assert found.values.shape == found.indices.shape == expected


def test_the_extremes_of_integers():
    x = np.array([-128, 127, -128, 0], np.int8)
    assert dmlcpu.top_k(x, 4, largest=False).indices.tolist() == [0, 2, 3, 1]
    y = np.array([0, 2**64 - 1, 2**63, 2**63 - 1], np.uint64)
    assert dmlcpu.top_k(y, 4).indices.tolist() == [1, 2, 3, 0]


def test_a_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(3, 4))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert dmlcpu.top_k(x, 1, axis=0).values.tolist() == [[8, 9, 10, 11]]


def test_large_k_of_one_long_sequence_of_equal_keys():
    x = np.zeros(100_000, np.float32)
    x[70_000:] = 1
    found = dmlcpu.top_k(x, 40_000)
    assert found.indices.tolist() == [*range(70_000, 100_000), *range(10_000)]


@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((7, 300), 1), ((300, 7), 0), ((2, 1_000), 1), ((5, 9), 1)])
def test_unsorted_results_are_the_same_elements(dtype, shape, axis):
    x = np.random.default_rng(0).integers(0, 90, shape).astype(dtype)
    for k in (1, shape[axis] // 2, shape[axis]):
        best = reference.top_k(x, k, axis=axis)
        found = dmlcpu.top_k(x, k, axis=axis, sorted=False)
        np.testing.assert_array_equal(np.sort(found.indices, axis), np.sort(best.indices, axis))
        np.testing.assert_array_equal(found.values, np.take_along_axis(x, found.indices, axis))


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
def test_out_is_written_and_returned(index_type):
    x = np.array([[5, 7, 6], [1, 2, 3]], np.uint16)
    room = np.zeros((2, 4), np.uint16), np.zeros((4, 2), index_type).T
    out = room[0][:, ::2], room[1][:, ::2]
    found = dmlcpu.top_k(x, 2, index_dtype=index_type, out=out)
    assert found.values is out[0]
    assert found.indices is out[1]
    assert room[0].tolist() == [[7, 0, 6, 0], [3, 0, 2, 0]]
    assert room[1].tolist() == [[1, 0, 2, 0], [2, 0, 1, 0]]


def test_lists_and_torch_like_objects():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.0, 3.0, 2.0])

    assert dmlcpu.top_k([1, 3, 2], 1).indices.tolist() == [1]
    assert dmlcpu.top_k(Tensor(), 2).indices.tolist() == [1, 2]


X = np.zeros((2, 3), np.float32)


VALUES, INDICES = np.zeros((2, 1), np.float32), np.zeros((2, 1), np.int64)  # never written


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"sorted": 0}, TypeError, "sorted is 0; allowed: True or False"),
        ({"k": 4}, DmlError, "k is 4; allowed: 0 to 3 (the elements along axis 1)"),
        ({"k": -1, "axis": 0}, DmlError, "k is -1; allowed: 0 to 2 (the elements along axis 0)"),
        ({"k": 1.0}, TypeError, "k is 1.0; allowed: an integer"),
        ({"k": True}, TypeError, "k is True; allowed: an integer"),
        ({"axis": 2}, DmlError, "axis is 2; allowed: -2 to 1 (x has 2 dimensions)"),
        ({"largest": 1}, TypeError, "largest is 1; allowed: True or False"),
        (
            {"largest": True, "mode": "largest"},
            TypeError,
            "mode and largest are both given; allowed: one of them, as they say the same",
        ),
        ({"mode": "biggest"}, DmlError, "mode is 'biggest'; allowed: 'largest', 'smallest'"),
        ({"mode": True}, TypeError, "mode is True; allowed: 'largest', 'smallest'"),
        ({"nan": "first"}, DmlError, "nan is 'first'; allowed: 'greatest', 'last'"),
        ({"k": [1, 4]}, DmlError, "k[1] is 4; allowed: 0 to 3 (the elements along axis 1)"),
        (
            {"x": np.zeros((2, 2, 3)), "k": [[1], [4]]},
            DmlError,
            "k[1, 0] is 4; allowed: 0 to 3 (the elements along axis 2)",
        ),
        ({"x": np.zeros((2, 2, 3)), "k": [4]}, DmlError, "k[0] is 4; allowed: 0 to 3 (the elements along axis 2)"),
        (
            {"k": np.array([[-1, 2, 1]]), "axis": 0},
            BindingError,
            "k.shape is (1, 3); allowed: a shape that broadcasts to (3,) (x.shape without axis 0)",
        ),
        (
            {"k": [1, 2, 3]},
            BindingError,
            "k.shape is (3,); allowed: a shape that broadcasts to (2,) (x.shape without axis 1)",
        ),
        ({"k": [1.0, 2.0]}, UnsupportedError, "k.dtype is float64; allowed: an integer type"),
        ({"k": [1, 2], "fill_value": [0.0, 1.0]}, BindingError, "fill_value.ndim is 1; allowed: 0"),
        (
            {"x": X.astype(int), "k": [1, 2], "fill_value": 0.5},
            BindingError,
            "fill_value is 0.5; allowed: what int64 (x's type) holds",
        ),
        ({"x": 3.0}, DmlError, "x.ndim is 0; allowed: at least 1"),
        (
            {"x": X.astype(complex)},
            UnsupportedError,
            "x.dtype is complex128; allowed: bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, "
            "bfloat16, float32, float64",
        ),
        (
            {"x": np.array([None, 1])},
            TypeError,
            "x is an array of dtype object; allowed: an array of fixed-size elements",
        ),
        ({"x": np.ma.masked_less([1, 2], 2)}, TypeError, "x is a masked array; allowed: an array without a mask"),
        ({"x": None}, TypeError, "x is NoneType; allowed: an array of fixed-size elements"),
        ({"index_dtype": "spam"}, TypeError, "index_dtype is 'spam'; allowed: int64, int32, uint64, uint32"),
        ({"index_dtype": np.int16}, UnsupportedError, "index_dtype is int16; allowed: int64, int32, uint64, uint32"),
        ({"index_dtype": ">i8"}, UnsupportedError, "index_dtype is >i8; allowed: int64, int32, uint64, uint32"),
        ({"index_dtype": None}, UnsupportedError, "index_dtype is None; allowed: int64, int32, uint64, uint32"),
        ({"out": (VALUES,)}, TypeError, "out is a tuple of 1; allowed: a tuple (values, indices) of two arrays"),
        ({"out": VALUES}, TypeError, "out is ndarray; allowed: a tuple (values, indices) of two arrays"),
        ({"out": ([[0.0], [0.0]], INDICES)}, TypeError, "out[0] is list; allowed: a numpy.ndarray"),
        ({"k": 2, "out": (VALUES, INDICES)}, BindingError, "out[0].shape is (2, 1); allowed: (2, 2)"),
        ({"out": (VALUES, VALUES)}, BindingError, "out[1].dtype is float32; allowed: int64"),
        ({"out": (X[:, :1], INDICES)}, BindingError, "out[0] is sharing memory with x; allowed: its own memory"),
        (
            {"out": (np.zeros(4, np.float32)[::2], INDICES)},
            BindingError,
            "out[0].shape is (2,); allowed: (2, 1)",
        ),
        (
            {"out": (VALUES, np.zeros((2, 1, 2), np.int64)[:, ::-1])},
            BindingError,
            "out[1].shape is (2, 1, 2); allowed: (2, 1)",
        ),
        (
            {"k": [1, 2], "out": (VALUES, INDICES)},
            DmlError,
            "k is an array up to 2; allowed: up to 1 (the places of the outputs)",
        ),
        (
            {"k": [1, 0], "out": (np.zeros((2, 4), np.float32), INDICES)},
            BindingError,
            "out[0].shape is (2, 4); allowed: (2, 3)",
        ),
        (
            {"k": [1, 0], "out": (np.zeros(2, np.float32), INDICES)},
            BindingError,
            "out[0].shape is (2,); allowed: (2, 1)",
        ),
        (
            {"out": (np.broadcast_to(np.float32(0), (2, 1)), INDICES)},
            BindingError,
            "out[0] is read-only; allowed: an array that can be written to",
        ),
        (
            {"out": (np.lib.stride_tricks.as_strided(VALUES, (2, 1), (0, 4)), INDICES)},
            BindingError,
            "out[0] is laid out so that elements overlap; allowed: an array whose elements are apart",
        ),
        (
            {"out": (np.zeros(9, np.uint8)[1:].view(np.float32).reshape(2, 1), INDICES)},
            BindingError,
            "out[0] is not aligned to its element size; allowed: an aligned array",
        ),
    ],
)
def test_refusals(changed, error, message):
    arguments = {"x": X, "k": 1, **changed}
    with pytest.raises(error) as caught:
        dmlcpu.top_k(**arguments)
    assert str(caught.value) == f"top_k: {message}"


def test_a_refusal_leaves_the_outputs_alone():
    values, indices = np.full((2, 2), 7, np.float32), np.full((2, 1), 7)
    with pytest.raises(dmlcpu.BindingError):
        dmlcpu.top_k(X, 2, out=(values, indices))
    assert (values == 7).all()
    assert (indices == 7).all()


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_subclasses_of_arrays_as_outputs():
    x = np.arange(12.0).reshape(4, 3)
    values, indices = np.asmatrix(np.zeros((4, 1))), np.asmatrix(np.zeros((4, 1), int))
    dmlcpu.top_k(x, 1, out=(values, indices))
    assert values.tolist() == [[2], [5], [8], [11]]
    with pytest.raises(TypeError, match=r"out\[0\] is MaskedArray; allowed: a numpy.ndarray"):
        dmlcpu.top_k(x, 1, out=(np.ma.zeros((4, 1)), np.zeros((4, 1), int)))


def test_values_and_indices_may_not_share_memory():
    room = np.zeros((2, 1), np.int64)
    with pytest.raises(dmlcpu.BindingError, match=r"out\[0\] is sharing memory with out\[1\]"):
        dmlcpu.top_k(np.zeros((2, 3), np.int64), 1, out=(room, room))


GRID = np.zeros((6, 4), np.float32)


@pytest.mark.parametrize(
    ("x", "axis", "rows", "columns", "is_packed"),
    [
        (GRID, 1, 6, 1, True),
        (GRID, 0, 4, 4, False),
        (GRID.T, 0, 6, 1, True),
        (GRID.T, 1, 4, 4, False),
        (GRID[::2], 1, 3, 1, False),
        (GRID[::-1], 1, 6, 1, False),
        (GRID[:, ::2], 1, 6, 1, False),
        (GRID[:, ::2], 0, 2, 1, False),
        (GRID.reshape(2, 3, 4), 1, 8, 4, False),
        (GRID.reshape(2, 3, 4), 2, 6, 1, True),
        (GRID.reshape(2, 3, 4)[:, :2], 2, 4, 1, False),
        (np.broadcast_to(GRID[:, :1], GRID.shape), 1, 6, 1, False),
        (GRID[0], 0, 1, 1, False),
    ],
)
def test_a_plan_says_how_the_sequences_lie(x, axis, rows, columns, is_packed):
    call = Call(Form(*form_of(x)), 1, axis, np.dtype(np.int64), largest=True)
    work = plan(call, (None, None), budget()).work.view(WORK)[0]
    assert (work["n"], work["k"], work["rows"]) == (x.shape[axis], 1, rows)
    assert (work["columns"], work["is_packed"]) == (columns, is_packed)
    assert work["index_words"] == 2


def said(caplog):
    """Return the plan's message; the compilation of a kernel may follow it."""
    return next(message for message in caplog.messages if message.startswith("top_k: "))


@pytest.mark.parametrize(
    ("x", "k", "axis", "threads", "reason"),
    [
        (np.zeros((99, 40)), 3, 0, 1, r"strided_insert \(40 columns side by side, k at most 16\)"),
        (np.zeros((999, 40)), 20, 0, 1, r"strided_tournament \(40 columns side by side\)"),
        (np.zeros((40, 99)), 3, 1, 1, r"lockstep \(several sequences, n k at most \d+\)"),
        (np.zeros((40, 99)), 98, 1, 1, r"select_sort \(fewer than 31 elements for each winner\)"),
        (np.zeros((999, 4))[:, ::2], 9, 0, 1, r"select_sort \(the others do not support it\)"),
        (np.zeros((4, 99_999)), 9, 1, 1, r"tournament \(31 elements and more for each winner\)"),
        (np.zeros((1, 99_999)), 9, 1, 2, r"split \(two threads and more for each sequence\)"),
    ],
)
def test_a_plan_says_why_it_took_the_kernel(caplog, x, k, axis, threads, reason):
    prepare.cache_clear()
    plan.cache_clear()
    with caplog.at_level("DEBUG", "dmlcpu"), use_budget(threads, grain=1):
        dmlcpu.top_k(x, k, axis=axis)
    assert re.fullmatch(rf"top_k: \(.*\), k {k} along axis {axis}: {reason}, \d+ parts", said(caplog))


def test_a_kernel_that_was_asked_for(caplog):
    prepare.cache_clear()
    plan.cache_clear()
    with caplog.at_level("DEBUG", "dmlcpu"), use_budget(1, kernel="select_sort"):
        dmlcpu.top_k(np.zeros((40, 99)), 3)
    assert "select_sort (requested)" in said(caplog)


@st.composite
def calls(draw):
    dtype = draw(st.sampled_from([t for t in TOP_K_TYPES if t.name != "bfloat16"]))
    x = draw(hnp.arrays(dtype, hnp.array_shapes(max_dims=4, max_side=40, min_side=1)))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    k = draw(st.integers(0, x.shape[axis]))
    return x, k, axis, draw(st.booleans())


@given(calls())
def test_hypothesis(call):
    x, k, axis, largest = call
    found = dmlcpu.top_k(x, k, axis=axis, largest=largest)
    assert_same_bits(found, reference.top_k(x, k, axis=axis, largest=largest))


def test_the_types_to_compile_for():
    assert set(OPERATORS["top_k"].types) == {t.name for t in TOP_K_TYPES}


def test_an_array_of_k_of_many_dimensions() -> None:
    x = np.arange(15, dtype=np.float32).reshape((1,) * 40 + (3, 5))
    values, indices = dmlcpu.top_k(x, np.array([1, 2, 0]).reshape((1,) * 40 + (3,)))
    np.testing.assert_array_equal(values.reshape(3, 2), [[4, -np.inf], [9, 8], [-np.inf, -np.inf]])
    np.testing.assert_array_equal(indices.reshape(3, 2), [[4, -1], [4, 3], [-1, -1]])
    with pytest.raises(dmlcpu.DmlError, match=r"k\.shape is"):
        dmlcpu.top_k(x, np.ones((1,) * 60, int))
