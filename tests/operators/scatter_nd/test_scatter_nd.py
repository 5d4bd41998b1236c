import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from samples import NUMERIC_TYPES, assert_same_bits, few_values

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.operators import OPERATORS
from dmlcpu.operators.scatter_nd import plan as scatter_plan
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.threads import use_budget

X = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32)


def test_the_example_of_the_directml_page():
    indices, updates = [[4], [3], [1], [7]], np.array([9, 10, 11, 12], np.float32)
    assert dmlcpu.scatter_nd(X, indices, updates).tolist() == [1, 11, 3, 10, 9, 6, 7, 12]


def test_the_shape_example_of_the_directml_page():
    x = np.zeros((3, 4, 5, 6, 7), np.float16)
    indices = [[[[[0, 1, 2], [2, 3, 4]]]]]
    updates = np.arange(84, dtype=np.float16).reshape(1, 1, 1, 2, 6, 7)
    y = dmlcpu.scatter_nd(x, indices, updates)
    assert (y[0, 1, 2] == updates[0, 0, 0, 0]).all()
    assert (y[2, 3, 4] == updates[0, 0, 0, 1]).all()
    assert np.count_nonzero(y) == 83


def test_the_input_is_not_written():
    x = X.copy()
    dmlcpu.scatter_nd(x, [[0]], np.array([9], np.float32))
    assert (x == X).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_last_of_duplicate_updates_wins(threads):
    rng = np.random.default_rng(3)
    indices = rng.integers(0, 4, (50_000, 1))
    with use_budget(threads, grain=1):
        y = dmlcpu.scatter_nd(np.zeros(4, np.int64), indices, np.arange(50_000))
    assert y.tolist() == [int(np.flatnonzero(indices[:, 0] == place)[-1]) for place in range(4)]


def test_adding_into_few_rows_gives_the_bits_of_a_plain_loop():
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 4, 200_000)
    updates = rng.standard_normal((200_000, 2), dtype=np.float32)
    expected = np.zeros((4, 2), np.float32)
    np.add.at(expected, rows, updates)
    for threads in (1, 2, 8):
        with use_budget(threads, grain=1):
            y = dmlcpu.scatter_nd(np.zeros((4, 2), np.float32), rows[:, None], updates, reduction="add")
        assert y.tobytes() == expected.tobytes()


def test_negative_indices_count_from_the_end():
    assert dmlcpu.scatter_nd([1, 2, 3], [[-1], [-3]], [8, 9]).tolist() == [9, 2, 8]


def test_drop_and_clip():
    x, indices, updates = np.zeros((2, 2), int), [[0, 5], [-9, 1], [1, 1]], [1, 2, 3]
    assert dmlcpu.scatter_nd(x, indices, updates, mode="drop").tolist() == [[0, 0], [0, 3]]
    assert dmlcpu.scatter_nd(x, indices, updates, mode="clip").tolist() == [[0, 2], [0, 3]]


def test_uint64_indices_beyond_int64_are_out_of_range_not_negative():
    indices = np.array([[2**64 - 1]], np.uint64)
    with pytest.raises(dmlcpu.IndexOutOfRangeError) as caught:
        dmlcpu.scatter_nd([1, 2], indices, [9])
    assert str(caught.value) == (
        "scatter_nd: indices[0, 0] is 18446744073709551615; allowed: 0 to 1 (coordinate 0 of tuple 0; that dimension "
        "has 2 elements)"
    )
    assert dmlcpu.scatter_nd([1, 2], indices, [9], mode="drop").tolist() == [1, 2]
    assert dmlcpu.scatter_nd([1, 2], indices, [9], mode="clip").tolist() == [1, 9]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_bad_index_is_named_and_nothing_is_written(threads):
    indices = np.zeros((100, 50, 2), np.int32)
    indices[61, 7, 1], indices[99, 0, 0] = -6, 4
    out = np.full((4, 5), 7)
    with use_budget(threads, grain=1), pytest.raises(dmlcpu.IndexOutOfRangeError) as caught:
        dmlcpu.scatter_nd(np.zeros((4, 5), int), indices, np.ones((100, 50), int), out=out)
    assert str(caught.value) == (
        "scatter_nd: indices[61, 7, 1] is -6; allowed: -5 to 4 (coordinate 1 of tuple 3057; that dimension has 5 "
        "elements)"
    )
    assert isinstance(caught.value, IndexError)
    assert (out == 7).all()


def test_no_coordinates_replace_everything_and_the_last_update_wins():
    updates = np.arange(6).reshape(3, 2)
    assert dmlcpu.scatter_nd(np.array([9, 9]), np.empty((3, 0), int), updates).tolist() == [4, 5]
    y = dmlcpu.scatter_nd(np.array([10, 10]), np.empty((3, 0), int), updates, reduction="add")
    assert y.tolist() == [16, 19]


@pytest.mark.parametrize(
    ("shape", "indices_shape"),
    [((3, 2), (0, 1)), ((3, 2), (2, 0, 2)), ((3, 0), (2, 1)), ((0, 2), (0, 1)), ((), (0, 0))],
)
def test_empty_arrays_give_a_copy(shape, indices_shape):
    x = np.full(shape, 5, np.int16)
    updates = np.ones(indices_shape[:-1] + shape[indices_shape[-1] :], np.int16)
    y = dmlcpu.scatter_nd(x, np.zeros(indices_shape, int), updates)
    assert y.shape == shape
    assert (y == 5).all()
    assert y is not x


@pytest.mark.parametrize(("shape", "coordinates"), [((5, 0), 1), ((0,), 0), ((0, 3), 0)])
def test_more_than_a_block_of_updates_of_an_empty_output(shape, coordinates):
    """Packed strides of an empty array differ with the version of NumPy: those of older ones are in order."""
    x = np.ndarray(shape, np.int16, buffer=bytearray(2), strides=packed_strides(shape, 2))
    indices, updates = np.zeros((300, coordinates), int), np.zeros((300, *shape[coordinates:]), np.int16)
    assert dmlcpu.scatter_nd(x, indices, updates, out=x) is x


def test_an_index_into_empty_slices_is_still_checked():
    x = np.zeros((3, 0))
    with pytest.raises(dmlcpu.IndexOutOfRangeError):
        dmlcpu.scatter_nd(x, [[3]], np.zeros((1, 0)))


def test_nothing_can_be_clipped_into_an_empty_dimension():
    with pytest.raises(dmlcpu.IndexOutOfRangeError) as caught:
        dmlcpu.scatter_nd(np.zeros((2, 0)), [[0, 0]], [1.0], mode="clip")
    assert str(caught.value) == (
        "scatter_nd: indices is clipped into an empty dimension; allowed: none: dimension 1 has 0 elements"
    )


def test_integers_wrap_bool_is_logic_and_nan_propagates():
    assert dmlcpu.scatter_nd(np.array([250], np.uint8), [[0]], np.array([10], np.uint8), reduction="add") == [4]
    assert dmlcpu.scatter_nd(np.array([100], np.int8), [[0]], np.array([3], np.int8), reduction="mul") == [44]
    flags = np.array([True, True, False, False])
    others = np.array([True, False, True, False])
    every = [[0], [1], [2], [3]]
    assert dmlcpu.scatter_nd(flags, every, others, reduction="add").tolist() == [True, True, True, False]
    assert dmlcpu.scatter_nd(flags, every, others, reduction="mul").tolist() == [True, False, False, False]
    for reduction in ("min", "max"):
        y = dmlcpu.scatter_nd([np.nan, 1.0], [[0], [1]], [1.0, np.nan], reduction=reduction)
        assert np.isnan(y).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_rounded_after_every_update(dtype):
    x = np.zeros(1, dtype)
    y = dmlcpu.scatter_nd(x, np.zeros((5000, 1), int), np.ones(5000, dtype), reduction="add")
    assert y[0] == {"float16": 2048, "bfloat16": 256}[np.dtype(dtype).name]


def test_in_place_copies_nothing_and_works_on_any_view():
    x = np.zeros((4, 6))
    view = x[::2, ::-2]
    assert dmlcpu.scatter_nd(view, [[1]], [[1.0, 2.0, 3.0]], out=view) is view
    assert x[2].tolist() == [0, 3, 0, 2, 0, 1]
    assert x.sum() == 6
    dmlcpu.scatter_nd(x, [[0, 0]], [5.0], out=x[:])  # the same memory under another name
    assert x[0, 0] == 5


def test_updates_in_lists_take_the_type_of_x():
    y = dmlcpu.scatter_nd(X, [[0]], [1])
    assert y.dtype == np.float32


F, I = np.zeros((2, 3), np.float32), np.zeros((1, 1), np.int64)  # noqa: E741
U = np.zeros((1, 3), np.float32)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"updates": np.zeros((3,), np.float32)},
            BindingError,
            "updates.shape is (3,); allowed: (1, 3) (indices.shape[:-1] + x.shape[1:]; updates are not broadcast)",
        ),
        (
            {"indices": [0, 1], "updates": np.zeros((2, 3), np.float32)},
            BindingError,
            "indices.shape is (2,); allowed: (2, 1): the last axis holds the coordinates of a tuple, as in "
            "indices[..., None]",
        ),
        (
            {"x": np.zeros(9), "indices": [0, 2, 5], "updates": np.zeros(3)},
            BindingError,
            "indices.shape is (3,); allowed: (3, 1): the last axis holds the coordinates of a tuple, as in "
            "indices[..., None]",
        ),
        ({"updates": U.astype(np.float64)}, BindingError, "updates.dtype is float64; allowed: float32 (x's type)"),
        (
            {"x": np.zeros(3, np.uint8), "updates": [300]},
            BindingError,
            "updates is 300; allowed: what uint8 (x's type) holds",
        ),
        (
            {"indices": np.zeros((1, 3), int)},
            BindingError,
            "indices.shape[-1] is 3; allowed: 0 to 2 (x has 2 dimensions)",
        ),
        ({"indices": 1}, BindingError, "indices.ndim is 0; allowed: at least 1 (the last dimension holds a tuple)"),
        ({"indices": I.astype(float)}, UnsupportedError, "indices.dtype is float64; allowed: any integer type"),
        ({"reduction": "sum"}, DmlError, "reduction is 'sum'; allowed: 'none', 'add', 'mul', 'min', 'max'"),
        ({"reduction": None}, TypeError, "reduction is None; allowed: 'none', 'add', 'mul', 'min', 'max'"),
        ({"mode": "wrap"}, DmlError, "mode is 'wrap'; allowed: 'raise', 'drop', 'clip'"),
        (
            {"x": F.astype(np.complex64), "updates": U.astype(np.complex64), "reduction": "min"},
            UnsupportedError,
            "x.dtype with reduction 'min' is complex64; allowed: a type whose values are ordered",
        ),
        (
            {"x": np.array(["a"]), "updates": ["b"], "reduction": "add"},
            UnsupportedError,
            "x.dtype with reduction 'add' is <U1; allowed: bool, uint8, uint16, uint32, uint64, int8, int16, int32, "
            "int64, float16, bfloat16, float32, float64, complex64, complex128",
        ),
        ({"out": np.zeros(3, np.float32)}, BindingError, "out.shape is (3,); allowed: (2, 3)"),
        (
            {"x": U, "updates": U[:1], "out": U},
            BindingError,
            "out is sharing memory with updates; allowed: its own memory",
        ),
    ],
)
def test_refusals(changed, error, message):
    arguments = {"x": F, "indices": I, "updates": U, **changed}
    with pytest.raises(error) as caught:
        dmlcpu.scatter_nd(**arguments)
    assert str(caught.value) == f"scatter_nd: {message}"


@pytest.mark.parametrize(
    ("x_type", "value", "found"),
    [
        ("u1", 1.5, "a list of float64"),
        ("?", 2, "a list of int64"),
        ("?", "False", "a list of <U5"),
        ("i4", "7", "a list of <U1"),
        ("f4", None, "a list of object"),
        ("f4", 1j, "a list of complex128"),
        ("f2", 100000.0, "a number that overflows"),
        ("U2", "abc", "a list of <U3"),
        ("U3", 12345, "a list of int64"),
        ("S2", "ab", "a list of <U2"),
        ("M8[D]", np.datetime64("2020-01-01T12:30"), "a list of datetime64[m]"),
        ("i4,f8", (1.7, 2.5), "a list of float64"),
    ],
)
def test_lists_that_would_lose_something_are_refused(x_type, value, found):
    with pytest.raises(dmlcpu.BindingError) as caught:
        dmlcpu.scatter_nd(np.zeros(3, x_type), I, [value])
    assert (caught.value.field, caught.value.found) == ("updates", found)


def test_out_may_not_partly_overlap_x():
    room = np.zeros(10)
    with pytest.raises(dmlcpu.BindingError) as caught:
        dmlcpu.scatter_nd(room[:8], [[0]], [1.0], out=room[2:])
    assert str(caught.value) == (
        "scatter_nd: out is sharing memory with x (it may be x itself, but not a part of it); allowed: its own memory"
    )
    assert not room.any()


@st.composite
def calls(draw):
    reduction = draw(st.sampled_from(["none", "add", "mul", "min", "max"]))
    dtype = draw(st.sampled_from([t for t in NUMERIC_TYPES if t.kind != "c"]))
    shape = draw(hnp.array_shapes(max_dims=4, max_side=5))
    coordinates = draw(st.integers(0, len(shape)))
    outer = draw(hnp.array_shapes(max_dims=2, max_side=9))
    indices = draw(hnp.arrays(np.int64, (*outer, coordinates), elements=st.integers(-7, 7)))
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    x, updates = few_values(rng, shape, dtype), few_values(rng, outer + shape[coordinates:], dtype)
    return (x, indices, updates), {"reduction": reduction, "mode": draw(st.sampled_from(["drop", "clip"]))}


@given(calls())
def test_hypothesis(call):
    arguments, options = call
    found = dmlcpu.scatter_nd(*arguments, **options)
    assert_same_bits((found,), (reference.scatter_nd(*arguments, **options),))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
@pytest.mark.parametrize("shape", [(3, 4), (300, 40), (12,), (3_000,)])  # small outputs are written speculatively
@pytest.mark.parametrize("in_place", [False, True])
def test_the_first_of_several_bad_indices_is_reported_and_nothing_is_written(threads, dtype, shape, in_place):
    indices = np.zeros((2_000, len(shape)), dtype)
    for where in ((777, -1), (778, 0), (1_900, 0)):  # in several blocks and shares
        indices[where] = 2**31 - 1 if dtype == np.int32 else 2**64 - 1
    out = np.full(shape, 5, np.float32)
    x = out if in_place else np.zeros(shape, np.float32)
    message = rf"indices\[777, {len(shape) - 1}\]"
    with use_budget(threads, grain=1), pytest.raises(dmlcpu.IndexOutOfRangeError, match=message):
        dmlcpu.scatter_nd(x, indices, np.ones(2_000, np.float32), out=out)
    assert (out == 5).all()


def test_a_kernel_that_does_not_take_the_work():
    x, out = np.zeros((4, 2)), np.zeros((4, 2))
    for kernel, indices, updates in (
        ("nosuch", [[0, 0]], [1.0]),
        ("apply_selected", [[0]], [[1.0, 2.0]]),
        ("apply_buckets", np.zeros((0, 2), int), []),
    ):
        with use_budget(2, kernel=kernel), pytest.raises(LookupError, match=f"no kernel {kernel} for"):
            dmlcpu.scatter_nd(x, np.array(indices), np.array(updates), out=out)


def test_many_elements_of_a_large_output_are_partitioned(monkeypatch, caplog):
    monkeypatch.setattr(scatter_plan, "_PARTITIONED_CACHES", 1)
    rng = np.random.default_rng(1)
    n, count = 9_876_543, 1_100_000  # a shape of which no other test has made a plan
    x = rng.integers(0, 100, n, np.int32)
    with caplog.at_level("DEBUG", "dmlcpu"):
        for indices in (rng.integers(-n, n, (count, 1)), rng.integers(0, 50, (count, 1))):  # spread, and in one bucket
            updates = rng.integers(0, 100, count, np.int32)
            expected = x.copy()
            expected[indices[:, 0]] = updates
            assert np.array_equal(dmlcpu.scatter_nd(x, indices, updates), expected)
            indices[count // 2] = n
            with pytest.raises(dmlcpu.IndexOutOfRangeError, match=rf"indices\[{count // 2}, 0\]"):
                dmlcpu.scatter_nd(x, indices, updates)
    assert re.search(r"apply_buckets \(at least 65536 updates into at least \d+ bytes\), \d parts", caplog.text)


def test_the_types_to_compile_for():
    assert set(OPERATORS["scatter_nd"].types) == {t.name for t in NUMERIC_TYPES if t.kind != "c"}


@pytest.mark.parametrize("shape", [(3, 2), (3,), (6, 4, 2)])
def test_a_strided_output_of_another_shape_is_refused(shape):
    out = np.zeros((2 * shape[0], *shape[1:]), np.float32)[::2]
    with pytest.raises(BindingError, match=rf"scatter_nd: out.shape is {re.escape(str(shape))}; allowed: \(2, 3\)"):
        dmlcpu.scatter_nd(F, I, U, out=out)
