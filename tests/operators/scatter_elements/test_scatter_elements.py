import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.scatter_elements.calls import random_call, watched_prefetches
from samples import INDEX_TYPES, NUMERIC_TYPES, assert_same_bits, strided, values

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.indexing import lines
from dmlcpu.operators import OPERATORS
from dmlcpu.operators.scatter_elements import plan as scatter_plan
from dmlcpu.runtime.threads import use_budget

ZEROS = np.zeros((3, 3), int)


@pytest.mark.parametrize(
    ("x", "indices", "updates", "options", "expected"),
    [
        ([0, 1, 2, 3, 4], [3, 1, 3, 0], [5, 6, 7, 8], {"axis": 0}, [8, 6, 2, 7, 4]),
        (
            ZEROS,
            [[1, 0, 2], [0, 2, 1]],
            [[10, 11, 12], [20, 21, 22]],
            {"axis": 0},
            [[20, 11, 0], [10, 0, 22], [0, 21, 12]],
        ),
        (ZEROS, [[-1, -3, -2]], [[1, 2, 3]], {"axis": 0}, [[0, 2, 0], [0, 0, 3], [1, 0, 0]]),
        (
            np.zeros((2, 3), int),
            [[0, 0, 2], [1, 1, 1]],
            [[1, 2, 4], [1, 2, 4]],
            {"axis": 1, "reduction": "add"},
            [[3, 0, 4], [0, 7, 0]],
        ),
        (np.zeros(1, "f4"), [0, 0, 0], np.array([1e8, 1, -1e8], "f4"), {"axis": 0, "reduction": "add"}, [0]),
        (np.zeros(1, "f4"), [0, 0, 0], np.array([1e8, -1e8, 1], "f4"), {"axis": 0, "reduction": "add"}, [1]),
        (np.zeros(4, int), [0, 4, -9], [1, 2, 3], {"axis": 0, "mode": "clip"}, [3, 0, 0, 2]),
        (np.zeros(4, int), [0, 4, -9], [1, 2, 3], {"axis": 0, "mode": "drop"}, [1, 0, 0, 0]),
        (np.zeros((2, 5), int), [[1, 3]], [[9, 8]], {"axis": 1}, [[0, 9, 0, 8, 0], [0, 0, 0, 0, 0]]),
    ],
)
def test_examples_by_hand(x, indices, updates, options, expected):
    for kernel in (None, "scatter_lines"):
        with use_budget(2, grain=1, kernel=kernel):
            assert dmlcpu.scatter_elements(x, indices, updates, **options).tolist() == expected
    assert reference.scatter_elements(x, indices, updates, **options).tolist() == expected


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]), st.sampled_from([None, "scatter_lines"]))
def test_random_calls_have_the_bits_of_the_reference(seed, parts, kernel):
    call = random_call(np.random.default_rng(seed))
    expected = call.expected()
    with use_budget(parts, grain=1, kernel=kernel):
        assert_same_bits(call.run(), expected, str(seed))
        out = strided(np.zeros(expected[0].shape, expected[0].dtype.newbyteorder("=")))
        assert_same_bits(call.run(out=out), expected, f"{seed} into a strided output")


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]))
def test_random_calls_in_place(seed, parts):
    call = random_call(np.random.default_rng(seed))
    x = np.array(call.args[0], call.args[0].dtype.newbyteorder("="))
    arguments, expected = (x, *call.args[1:]), call.expected()
    with use_budget(parts, grain=1):
        assert dmlcpu.scatter_elements(*arguments, **call.kwargs, out=x) is x
    assert_same_bits((x,), expected, str(seed))


def test_it_is_scatter_nd_of_one_tuple_an_element():
    rng = np.random.default_rng(1)
    x, updates = rng.random((5, 6, 7), np.float32), rng.random((5, 9, 7), np.float32)
    indices = rng.integers(-6, 6, updates.shape)
    tuples = np.moveaxis(np.indices(indices.shape), 0, -1)
    tuples[..., 1] = indices
    for reduction in ("none", "add", "mul", "min", "max"):
        expected = dmlcpu.scatter_nd(x, tuples, updates, reduction=reduction)
        assert_same_bits((dmlcpu.scatter_elements(x, indices, updates, axis=1, reduction=reduction),), (expected,))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", NUMERIC_TYPES, ids=str)
def test_every_type_along_each_axis(dtype, reduction):
    """Rows on both sides of a block of 256 elements, and of the eight that are validated together."""
    if dtype.kind == "c" and reduction in ("min", "max"):
        pytest.skip("complex numbers have no order")
    rng = np.random.default_rng(2)
    for columns, n in ((7, 3), (70, 5), (257, 2)):
        x, updates = values(rng, (4, columns), dtype), values(rng, (n, columns), dtype)
        for index_type in INDEX_TYPES:
            low = -4 if index_type.kind == "i" else 0
            indices = rng.integers(low, 4, (n, columns)).astype(index_type)
            expected = reference.scatter_elements(x, indices, updates, axis=0, reduction=reduction)
            for parts in (1, 3):
                with use_budget(parts, grain=1, kernel="scatter_lines"):
                    found = dmlcpu.scatter_elements(x, indices, updates, axis=0, reduction=reduction)
                    turned = dmlcpu.scatter_elements(x.T, indices.T, updates.T, axis=1, reduction=reduction)
                assert_same_bits((found, turned.T), (expected, expected), f"{columns} of {index_type}")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_last_of_duplicate_updates_wins(threads, axis):
    rng = np.random.default_rng(3)
    indices, updates = rng.integers(0, 4, (5_000, 40)), np.arange(200_000).reshape(5_000, 40)
    last = [[int(np.flatnonzero(indices[:, line] == place)[-1]) for line in range(40)] for place in range(4)]
    expected = np.take_along_axis(updates, np.array(last), 0)
    x = np.zeros((4, 40), np.int64)
    if axis:
        x, indices, updates, expected = (np.ascontiguousarray(each.T) for each in (x, indices, updates, expected))
    with use_budget(threads, grain=1):
        assert np.array_equal(dmlcpu.scatter_elements(x, indices, updates, axis=axis), expected)


@pytest.mark.parametrize("skew", range(0, 32, 5))
@pytest.mark.parametrize("columns", [31, 64, 100])
def test_shares_end_at_cache_lines_wherever_the_output_begins(skew, columns):
    rng = np.random.default_rng(4)
    room, indices = np.zeros(9 * columns + 32, np.float32), rng.integers(0, 9, (50, columns))
    x, updates = room[skew : skew + 9 * columns].reshape(9, columns), rng.random((50, columns), np.float32)
    expected = reference.scatter_elements(x, indices, updates, axis=0, reduction="add")
    for threads in (2, 3, 8):
        x[...] = 0
        with use_budget(threads, grain=1, kernel="scatter_lines"):
            dmlcpu.scatter_elements(x, indices, updates, axis=0, reduction="add", out=x)
        assert_same_bits((x,), (expected,), f"{threads} threads")
    assert room.sum() == pytest.approx(x.sum())


def kernels_of(caplog, *arguments, **options):
    """Return what the plan of a call says of it."""
    caplog.clear()
    with caplog.at_level("DEBUG", "dmlcpu"):
        found = dmlcpu.scatter_elements(*arguments, **options)
    assert_same_bits((found,), (reference.scatter_elements(*arguments, **options),))
    return caplog.text


def test_one_index_for_a_row_is_a_row_of_scatter_nd(caplog):
    rng = np.random.default_rng(5)
    x, updates = rng.random((6, 5, 8), np.float32), rng.random((6, 11, 8), np.float32)
    for axis, shape in ((1, (6, 11, 1)), (0, (13, 1, 1))):
        sizes = (6, 11, 8) if axis else (13, 5, 8)
        new = updates if axis else rng.random(sizes, np.float32)
        for dtype in INDEX_TYPES:
            rows = np.broadcast_to(rng.integers(0, x.shape[axis], shape).astype(dtype), sizes)
            assert "rows of" in kernels_of(caplog, x, rows, new, axis=axis, reduction="add")
    # One column less than x has, or an index of each element: no rows.
    few = np.broadcast_to(rng.integers(0, 5, (6, 11, 1)), (6, 11, 7))
    assert "scatter_lines" in kernels_of(caplog, x, few, updates[..., :7], axis=1)


def test_an_index_that_repeats_in_memory_is_found_and_one_other_is_enough(monkeypatch):
    monkeypatch.setattr(scatter_plan, "_MANY", 1)
    rng, calls = np.random.default_rng(6), []
    run_rows = scatter_plan._run_rows
    monkeypatch.setattr(scatter_plan, "_run_rows", lambda *given: calls.append(1) or run_rows(*given))
    x, updates = rng.random((9, 33), np.float32), rng.random((123, 33), np.float32)
    for dtype in INDEX_TYPES:
        indices = np.repeat(rng.integers(0, 9, (123, 1)), 33, axis=1).astype(dtype)
        for place in (None, (0, 32), (61, 0), (122, 31), (77, 16), (5, 1)):
            if place:
                indices[place] = (indices[place] + 1) % 9
            expected = reference.scatter_elements(x, indices, updates, axis=0, reduction="add")
            for parts in (1, 2, 5):
                with use_budget(parts, grain=1):
                    found = dmlcpu.scatter_elements(x, indices, updates, axis=0, reduction="add")
                assert_same_bits((found,), (expected,))
                assert bool(calls) == (place is None)
                calls.clear()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("shape", [(4, 50), (4, 7, 9), (6,), (5_000, 3)])
@pytest.mark.parametrize("target", ["new", "out", "strided", "in place"])
def test_the_first_bad_index_is_named_and_nothing_is_written(threads, dtype, shape, target):
    indices = np.zeros((60, *shape[1:]), dtype)
    bad = -shape[0] - 1 if np.dtype(dtype).kind == "i" else 2**64 - 1
    first = (41, *(n - 1 for n in shape[1:]))
    indices[first] = bad
    indices[(42, *(0 for _ in shape[1:]))] = shape[0]
    x = np.full(shape, 5, np.float32)
    out = {"new": None, "out": np.full(shape, 7, np.float32), "in place": x}.get(target)
    out = strided(np.full(shape, 7, np.float32)) if target == "strided" else out
    before = None if out is None else out.copy()
    with use_budget(threads, grain=1), pytest.raises(dmlcpu.IndexOutOfRangeError) as caught:
        dmlcpu.scatter_elements(x, indices, np.ones(indices.shape, np.float32), axis=0, out=out)
    low = -shape[0] if np.dtype(dtype).kind == "i" else 0
    assert str(caught.value) == (
        f"scatter_elements: indices[{', '.join(map(str, first))}] is {bad}; allowed: {low} to {shape[0] - 1} "
        f"(axis 0 has {shape[0]} elements)"
    )
    assert (x == 5).all()
    assert out is None or (out == before).all()


@pytest.mark.parametrize("kernel", [None, "scatter_lines"])
@pytest.mark.parametrize("dtype", ["i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("columns", [1, 40])
def test_extreme_indices_are_dropped_or_clipped_to_their_own_side(kernel, dtype, columns):
    limits = np.iinfo(dtype)
    given = [limits.min, limits.min + 1, 0, 2, 3, limits.max - 1, limits.max, limits.max // 2 + 1]
    indices = np.repeat(np.array(given, dtype)[:, None], columns, axis=1)
    updates = np.repeat(2 ** np.arange(8)[:, None], columns, axis=1)
    for mode in ("drop", "clip"):
        x = np.zeros((3, columns), np.int64)
        expected = reference.scatter_elements(x, indices, updates, axis=0, reduction="add", mode=mode)
        with use_budget(2, grain=1, kernel=kernel):
            found = dmlcpu.scatter_elements(x, indices, updates, axis=0, reduction="add", mode=mode)
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_rounded_after_every_update(dtype):
    y = dmlcpu.scatter_elements(
        np.zeros((1, 3), dtype), np.zeros((5000, 3), int), np.ones((5000, 3), dtype), axis=0, reduction="add"
    )
    assert (y == {"float16": 2048, "bfloat16": 256}[np.dtype(dtype).name]).all()


@pytest.mark.parametrize(
    ("shape", "sizes", "axis"),
    [((3, 2), (0, 2), 0), ((3, 2), (5, 0), 0), ((3, 0), (5, 0), 0), ((0, 3), (0, 3), 0), ((0,), (0,), 0)],
)
@pytest.mark.parametrize("mode", ["raise", "drop", "clip"])
def test_empty_arrays_give_a_copy(shape, sizes, axis, mode):
    x = np.full(shape, 5, np.int16)
    y = dmlcpu.scatter_elements(x, np.zeros(sizes, int), np.ones(sizes, np.int16), axis=axis, mode=mode)
    assert (y.shape, y is x) == (shape, False)
    assert (y == 5).all()


def test_an_axis_without_elements_has_no_index():
    x, indices, updates = np.zeros((0, 2)), [[0, 0]], [[1.0, 2.0]]
    assert dmlcpu.scatter_elements(x, indices, updates, axis=0, mode="drop").shape == (0, 2)
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match=r"indices\[0, 0\] is 0; allowed: none \(axis 0 has 0"):
        dmlcpu.scatter_elements(x, indices, updates, axis=0)
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match="clipped into an empty dimension; allowed: none: axis 0 has"):
        dmlcpu.scatter_elements(x, indices, updates, axis=0, mode="clip")


F, I = np.zeros((2, 3), np.float32), np.zeros((1, 3), np.int64)  # noqa: E741
U = np.zeros((1, 3), np.float32)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"x": np.float32(0)}, DmlError, "x.ndim is 0; allowed: at least 1"),
        ({"axis": 2}, DmlError, "axis is 2; allowed: -2 to 1 (x has 2 dimensions)"),
        ({"axis": True}, TypeError, "axis is True; allowed: an integer"),
        (
            {"indices": np.zeros((1, 4), int)},
            BindingError,
            "indices.shape is (1, 4); allowed: at most (2, 3) (x.shape) except along axis 0; indices are not broadcast",
        ),
        ({"indices": np.zeros(3, int)}, BindingError, "indices.shape is (3,); allowed: 2 dimensions, as x has"),
        ({"indices": I.astype(float)}, UnsupportedError, "indices.dtype is float64; allowed: any integer type"),
        ({"updates": U[:, :1]}, BindingError, "updates.shape is (1, 1); allowed: (1, 3) (indices.shape; updates are"),
        ({"updates": U.astype(np.float64)}, BindingError, "updates.dtype is float64; allowed: float32 (x's type)"),
        ({"reduction": "sum"}, DmlError, "reduction is 'sum'; allowed: 'none', 'add', 'mul', 'min', 'max'"),
        ({"mode": "wrap"}, DmlError, "mode is 'wrap'; allowed: 'raise', 'drop', 'clip'"),
        ({"mode": None}, TypeError, "mode is None; allowed: 'raise', 'drop', 'clip'"),
        (
            {"x": F.astype(np.complex64), "updates": U.astype(np.complex64), "reduction": "min"},
            UnsupportedError,
            "x.dtype with reduction 'min' is complex64; allowed: a type whose values are ordered",
        ),
        ({"out": np.zeros(3, np.float32)}, BindingError, "out.shape is (3,); allowed: (2, 3)"),
        ({"x": U, "out": U}, BindingError, "out is sharing memory with updates; allowed: its own memory"),
    ],
)
def test_refusals(changed, error, message):
    arguments = {"x": F, "indices": I, "updates": U, "axis": 0, **changed}
    with pytest.raises(error, match=re.escape(f"scatter_elements: {message}")):
        dmlcpu.scatter_elements(**arguments)


class Last:
    """An axis that is no int, and that only says which one it is."""

    def __index__(self):
        return -1


def test_an_axis_is_whatever_has_an_index():
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match=r"indices\[0, 1\] is 3; allowed: -3 to 2 \(axis 1 has 3"):
        dmlcpu.scatter_elements(np.zeros((2, 3)), [[0, 3]], [[1.0, 2.0]], axis=Last())


def test_many_dimensions():
    """NumPy's iterators have at most 32, and its indices 63."""
    for module, count in ((dmlcpu, 64), (reference, 63)):
        sizes = (1,) * count
        y = module.scatter_elements(np.zeros(sizes), np.zeros(sizes, int), np.ones(sizes), axis=-1)
        assert (y.shape, y.item()) == (sizes, 1)


def test_the_axis_has_no_default():
    with pytest.raises(TypeError, match="axis"):
        dmlcpu.scatter_elements(F, I, U)


def test_out_may_not_partly_overlap_x():
    room = np.zeros(10)
    with pytest.raises(dmlcpu.BindingError, match="out is sharing memory with x"):
        dmlcpu.scatter_elements(room[:8], [0], [1.0], axis=0, out=room[2:])
    assert not room.any()


def test_the_types_to_compile_for():
    assert OPERATORS["scatter_elements"].types == OPERATORS["scatter_nd"].types


@pytest.mark.parametrize(
    ("limit", "kind", "n"), [("_FAR", lines.NEXT_ELEMENTS, 47), ("_STREAMED", lines.NEXT_ROWS, 53)]
)  # no other test has these sizes, so that none of their plans is kept
def test_prefetches_leave_results_as_they_are(monkeypatch, limit, kind, n):
    found = watched_prefetches(monkeypatch)
    monkeypatch.setattr(lines, limit, 0)
    rng = np.random.default_rng(n)
    for shape, axis in (((n, 40), 0), ((n, 3), 1)):
        x = rng.standard_normal((29, 40) if axis == 0 else (n, 41))
        indices = rng.integers(-x.shape[axis], x.shape[axis], shape)
        updates = rng.standard_normal(shape)
        for threads in (1, 2):
            with use_budget(threads, grain=1):
                given, options = (x, indices, updates), {"axis": axis, "reduction": "add"}
                assert_same_bits(
                    [dmlcpu.scatter_elements(*given, **options)], [reference.scatter_elements(*given, **options)]
                )
    assert kind in found
