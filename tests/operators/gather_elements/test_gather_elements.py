import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.gather_elements.calls import random_call
from operators.scatter_elements.calls import watched_prefetches
from samples import INDEX_TYPES, NUMERIC_TYPES, OTHER_TYPES, assert_same_bits, random_bits, strided

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.indexing import lines
from dmlcpu.operators.gather_elements import plan
from dmlcpu.runtime.threads import use_budget

X = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])


@pytest.mark.parametrize(
    ("indices", "options", "expected"),
    [
        ([[1, 2, 0], [2, 0, 0]], {"axis": 0}, [[4, 8, 3], [7, 2, 3]]),
        ([[-1], [0]], {"axis": 1}, [[3], [4]]),
        ([[2, -9, 1], [5, 0, -1]], {"axis": 0, "mode": "clip"}, [[7, 2, 6], [7, 2, 9]]),
    ],
)
def test_examples_by_hand(indices, options, expected):
    assert dmlcpu.gather_elements(X, indices, **options).tolist() == expected
    assert reference.gather_elements(X, indices, **options).tolist() == expected


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]))
def test_random_calls_have_the_bits_of_the_reference(seed, parts):
    call = random_call(np.random.default_rng(seed))
    expected = call.expected()
    with use_budget(parts, grain=1):
        assert_same_bits(call.run(), expected, str(seed))
        out = strided(np.zeros(expected[0].shape, expected[0].dtype.newbyteorder("=")))
        assert_same_bits(call.run(out=out), expected, f"{seed} into a strided output")


@pytest.mark.parametrize("dtype", [*NUMERIC_TYPES, *OTHER_TYPES], ids=str)
def test_every_type_along_each_axis_keeps_every_bit(dtype):
    rng = np.random.default_rng(2)
    for columns, n in ((7, 3), (70, 5), (257, 2)):
        x = random_bits(rng, (4, columns), dtype)
        for index_type in INDEX_TYPES:
            low = -4 if index_type.kind == "i" else 0
            indices = rng.integers(low, 4, (n, columns)).astype(index_type)
            expected = np.take_along_axis(x, indices.astype(np.int64), 0)
            for parts in (1, 3):
                with use_budget(parts, grain=1):
                    found = dmlcpu.gather_elements(x, indices, axis=0)
                    turned = dmlcpu.gather_elements(x.T, indices.T, axis=1)
                assert_same_bits((found, turned.T), (expected, expected), f"{columns} of {index_type}")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("shape", [(4, 50), (4, 7, 9), (6,)])
@pytest.mark.parametrize("is_new", [False, True])
def test_the_first_bad_index_is_named_and_nothing_is_written(threads, dtype, shape, is_new):
    indices = np.zeros((60, *shape[1:]), dtype)
    bad = -shape[0] - 1 if np.dtype(dtype).kind == "i" else 2**64 - 1
    first = (41, *(n - 1 for n in shape[1:]))
    indices[first] = bad
    indices[(42, *(0 for _ in shape[1:]))] = shape[0]
    out = None if is_new else np.full(indices.shape, 7.0)
    with use_budget(threads, grain=1), pytest.raises(dmlcpu.IndexOutOfRangeError) as caught:
        dmlcpu.gather_elements(np.zeros(shape), indices, axis=0, out=out)
    low = -shape[0] if np.dtype(dtype).kind == "i" else 0
    assert str(caught.value) == (
        f"gather_elements: indices[{', '.join(map(str, first))}] is {bad}; allowed: {low} to {shape[0] - 1} "
        f"(axis 0 has {shape[0]} elements)"
    )
    assert is_new or (out == 7).all()


@pytest.mark.parametrize("dtype", ["i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("columns", [1, 40])
def test_extreme_indices_are_clipped_to_their_own_side(dtype, columns):
    limits = np.iinfo(dtype)
    given = [limits.min, limits.min + 1, 0, 2, 3, limits.max - 1, limits.max, limits.max // 2 + 1]
    indices = np.repeat(np.array(given, dtype)[:, None], columns, axis=1)
    x = np.arange(3 * columns).reshape(3, columns)
    expected = reference.gather_elements(x, indices, axis=0, mode="clip")
    assert dmlcpu.gather_elements(x, indices, axis=0, mode="clip").tolist() == expected.tolist()


@pytest.mark.parametrize(("shape", "sizes"), [((3, 2), (0, 2)), ((3, 2), (5, 0)), ((0, 2), (0, 2)), ((3, 0), (5, 0))])
@pytest.mark.parametrize("mode", ["raise", "clip"])
def test_no_indices_give_an_empty_result(shape, sizes, mode):
    assert dmlcpu.gather_elements(np.zeros(shape), np.zeros(sizes, int), axis=0, mode=mode).shape == sizes


def test_an_axis_without_elements_has_no_index():
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match=r"indices\[0, 0\] is 0; allowed: none \(axis 0 has 0"):
        dmlcpu.gather_elements(np.zeros((0, 2)), [[0, 0]], axis=0)
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match="clipped into an empty dimension; allowed: none: axis 0 has"):
        dmlcpu.gather_elements(np.zeros((0, 2)), [[0, 0]], axis=0, mode="clip")


I = np.zeros((2, 3), np.int64)  # noqa: E741


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"x": 0}, DmlError, "x.ndim is 0; allowed: at least 1"),
        ({"axis": -3}, DmlError, "axis is -3; allowed: -2 to 1 (x has 2 dimensions)"),
        ({"axis": True}, TypeError, "axis is True; allowed: an integer"),
        (
            {"indices": np.zeros((1, 4), int)},
            BindingError,
            "indices.shape is (1, 4); allowed: at most (3, 3) (x.shape) except along axis 0; indices are not broadcast",
        ),
        ({"indices": np.zeros(3, int)}, BindingError, "indices.shape is (3,); allowed: 2 dimensions, as x has"),
        ({"indices": I.astype(float)}, UnsupportedError, "indices.dtype is float64; allowed: any integer type"),
        ({"mode": "drop"}, DmlError, "mode is 'drop'; allowed: 'raise', 'clip'"),
        ({"out": np.zeros(3, int)}, BindingError, "out.shape is (3,); allowed: (2, 3)"),
        ({"out": X[:2]}, BindingError, "out is sharing memory with x; allowed: its own memory"),
        ({"out": I}, BindingError, "out is sharing memory with indices; allowed: its own memory"),
    ],
)
def test_refusals(changed, error, message):
    with pytest.raises(error, match=re.escape(f"gather_elements: {message}")):
        dmlcpu.gather_elements(**{"x": X, "indices": I, "axis": 0, **changed})


class Last:
    """An axis that is no int, and that only says which one it is."""

    def __index__(self):
        return -1


def test_an_axis_is_whatever_has_an_index():
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match=r"indices\[0, 1\] is 3; allowed: -3 to 2 \(axis 1 has 3"):
        dmlcpu.gather_elements(np.zeros((2, 3)), [[0, 3]], axis=Last())


def test_many_dimensions():
    """NumPy's iterators have at most 32, and its indices 63."""
    for module, count in ((dmlcpu, 64), (reference, 63)):
        sizes = (1,) * count
        y = module.gather_elements(np.zeros(sizes), np.zeros(sizes, int), axis=-1)
        assert (y.shape, y.item()) == (sizes, 0)


def test_the_axis_has_no_default():
    with pytest.raises(TypeError, match="axis"):
        dmlcpu.gather_elements(X, I)


@pytest.mark.parametrize(
    ("limit", "kind", "n"), [("_FAR", lines.NEXT_ELEMENTS, 47), ("_STREAMED", lines.NEXT_ROWS, 53)]
)  # no other test has these sizes, so that none of their plans is kept
def test_prefetches_leave_results_as_they_are(monkeypatch, limit, kind, n):
    found = watched_prefetches(monkeypatch)
    monkeypatch.setattr(lines, limit, 0)
    monkeypatch.setattr(plan, "vectors_pay", lambda nbytes: False)  # where they do, the next rows are not prefetched
    rng = np.random.default_rng(n)
    for shape, axis in (((n, 40), 0), ((n, 3), 1)):
        x = rng.standard_normal((29, 40) if axis == 0 else (n, 41))
        indices = rng.integers(-x.shape[axis], x.shape[axis], shape)
        for threads in (1, 2):
            with use_budget(threads, grain=1):
                assert_same_bits(
                    [dmlcpu.gather_elements(x, indices, axis=axis)], [reference.gather_elements(x, indices, axis=axis)]
                )
    assert kind in found


@pytest.mark.parametrize(
    ("index_type", "step", "vectors", "expected"),
    [
        (np.int64, 1, False, lines.NEXT_ROWS),
        (np.int64, 1, True, lines.NOTHING),
        (np.int32, 2, True, lines.NEXT_ROWS),  # vectors are loaded only from packed rows
        (np.int32, 2, False, lines.NEXT_ROWS),
    ],
)
def test_the_next_rows_are_prefetched_for_single_loads(monkeypatch, index_type, step, vectors, expected):
    monkeypatch.setattr(lines, "_STREAMED", 0)
    found = watched_prefetches(monkeypatch)
    monkeypatch.setattr(plan, "vectors_pay", lambda nbytes: vectors)
    for cached in (plan.prepare, plan.plan):
        cached.cache_clear()
    indices = np.zeros((61, 64 * step), index_type)[:, ::step]
    dmlcpu.gather_elements(np.zeros((29, 64), np.float32), indices, axis=0)
    assert found == [expected]
    for cached in (plan.prepare, plan.plan):
        cached.cache_clear()
