"""add_at, maximum_at, minimum_at and put_at beside NumPy's own, bit for bit."""

import itertools
import tracemalloc

import numpy as np
import pytest
from at_calls import ALWAYS, NEVER, NUMPYS, PAIRS, assign, check, check_or_same_error, same
from hypothesis import given, strategies as st
from samples import COMPLEX, FLOATS, LAYOUTS, NUMERIC_TYPES, few_values, misaligned, random_bits, strided

import dmlcpu
from dmlcpu import at
from dmlcpu.operators.scatter_nd.function import update


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """Let the kernels take also small calls; list the calls that they get."""
    seen = []

    def counted(*args, **kwargs):
        seen.append(kwargs["operator"])
        update(*args, **kwargs)

    monkeypatch.setattr(at, "LIMITS", ALWAYS)
    monkeypatch.setattr(at, "update", counted)
    return seen


@PAIRS
@pytest.mark.parametrize("dtype", NUMERIC_TYPES, ids=str)
def test_types_and_values(ours, numpys, dtype, calls):
    rng = np.random.default_rng(6)
    for make, slices in itertools.product((few_values, random_bits), ((), (5,))):
        x, updates = make(rng, (20, *slices), dtype), make(rng, (60, *slices), dtype)
        check(ours, numpys, x, rng.integers(-20, 20, 60), updates)
    takes = dtype not in COMPLEX or ours in (dmlcpu.add_at, dmlcpu.put_at)
    assert calls == [ours.__name__] * (4 if takes else 0)


@PAIRS
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(ours, numpys, layout):
    rng = np.random.default_rng(7)
    x = few_values(rng, (6, 7), np.dtype(np.float32))
    updates = LAYOUTS[layout](few_values(rng, (9, 7), x.dtype))
    indices = LAYOUTS[layout](rng.integers(-6, 6, 9))
    check(ours, numpys, x, indices, updates)
    check(ours, numpys, np.asfortranarray(x), indices, updates)
    mine, theirs = strided(x), strided(x)
    ours(mine, indices, updates)
    numpys(theirs, indices, updates)
    same(ours, mine, theirs)


@PAIRS
@pytest.mark.parametrize(
    ("indices", "shape", "taken"),
    [
        (2, (4, 5), False),
        ([0, 2, 0], (5,), True),
        ([[0], [2]], (1,), True),
        (np.array([1, 2], np.uint8), (2, 4, 5), True),
        (([0, 1], [1, 1]), (5,), True),
        (([[0], [1]], [1, 3, 1]), (3, 5), True),
        ((np.array([0], np.int8), np.array([2], np.uint64), 3), (1,), True),
        ((0, 2, [4, 4]), (2,), True),
        (np.arange(3) > 0, (4, 5), "by add_at and its like"),
        (np.arange(60).reshape(3, 4, 5) % 7 == 0, (), "by add_at and its like"),
        (np.array([2**64 - 1, 1], np.uint64), (2, 4, 5), True),
        (([True, False, True], [1, 2]), (5,), False),
        (slice(1, 3), (4, 5), False),
        (..., (), False),
        ((slice(None), [1, 1]), (5,), False),
        (([0, 1], slice(2)), (2, 5), False),
        (np.zeros(0, int), (0, 4, 5), True),
        (np.zeros((0, 3), int), (5,), True),
    ],
)
def test_indices(ours, numpys, indices, shape, taken, calls):
    x = np.arange(60.0).reshape(3, 4, 5)
    check(ours, numpys, x, indices, np.arange(60.0)[: int(np.prod(shape))].reshape(shape) - 3)
    check(ours, numpys, x, indices, 2)
    assert bool(calls) == bool(taken and (taken is True or ours is not dmlcpu.put_at))


@PAIRS
@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8, bool])
@pytest.mark.parametrize(
    "updates",
    [True, 3, 1.5, -2.5, np.float64(0.1), np.float32(0.1), np.int8(3), [1, 2, 3], [0.1, 0.2, 0.3], np.uint8([1, 2, 3])],
    ids=repr,
)
def test_types_of_updates(ours, numpys, dtype, updates):
    """NumPy decides the type of the computation, and the refusals."""
    check_or_same_error(ours, numpys, np.zeros(4, dtype), [0, 1, 1], updates)


@PAIRS
def test_unsupported_calls_go_to_numpy(ours, numpys, calls):
    makers = [
        lambda: np.arange(4.0).astype(">f8"),
        lambda: misaligned(np.arange(4.0)),
        lambda: np.arange(4.0).view(np.recarray),
        lambda: np.arange(4).astype("g"),
        lambda: np.arange(4).astype("m8[s]"),
    ]
    for make in makers:
        mine, theirs = make(), make()
        updates = np.ones(2, mine.dtype.newbyteorder("=")) if mine.dtype.kind == "m" else 1
        ours(mine, [1, 1], updates)
        numpys(theirs, [1, 1], updates)
        np.testing.assert_array_equal(mine, theirs, strict=True)
    assert calls == []


@PAIRS
def test_errors_are_those_of_numpy_or_more_precise(ours, numpys):
    x = np.arange(3.0)
    with pytest.raises(IndexError, match=r"^\w+_at: indices\[1, 0\] is 3; allowed: -3 to 2 "):
        ours(x, [0, 3], [5.0, 6.0])
    assert x.tolist() == [0, 1, 2]
    for bad, updates in (([0, 1], [1, 2, 3]), (([0], [0]), 1), ("a", 1), (1.5, 1), ([0, -4], 1)):
        with pytest.raises((IndexError, ValueError, TypeError)):
            numpys(x.copy(), bad, updates)
        with pytest.raises((IndexError, ValueError, TypeError)):
            ours(x, bad, updates)
    x.flags.writeable = False
    with pytest.raises(ValueError, match=r"^\w+_at: x is read-only; allowed: an array that can be written to$"):
        ours(x, [0], 1)
    assert x.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match=r"^\w+_at: x is list; allowed: a numpy.ndarray$"):
        ours([1, 2], [0], 1)


@PAIRS
def test_arguments_may_share_memory_with_x(ours, numpys):
    x = np.arange(6)
    check(ours, numpys, x, x.copy(), x.copy())
    mine, theirs = x.copy(), x.copy()
    ours(mine, mine, mine[::-1])
    numpys(theirs, x, x[::-1])
    same(ours, mine, theirs)


@pytest.mark.parametrize("pays", [False, True])
def test_updates_are_repeated_for_indices_of_several_dimensions(monkeypatch, pays):
    """NumPy 2.4 reads beyond them."""
    monkeypatch.setattr(at, "LIMITS", ALWAYS if pays else NEVER)
    x = np.zeros(4, np.float32)
    indices, updates = np.arange(4).reshape(2, 2), np.array([1, 10, 7, 7], np.float32)[:2]
    for where in (indices, (indices, ...)):
        dmlcpu.add_at(x, where, updates)
        dmlcpu.add_at(x.view(np.recarray), where, updates)
    assert x.tolist() == [4, 40, 4, 40]


def test_memory_map_is_updated_by_the_kernels(tmp_path, calls):
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(4,))
    dmlcpu.add_at(x, [1, 1], [2.0, 3.0])
    assert x.tolist() == [0, 5, 0, 0]
    assert calls == ["add_at"]


def test_the_last_update_remains():
    x = np.zeros((2, 3))
    dmlcpu.put_at(x, [1, 0, 1], [[1, 1, 1], [2, 2, 2], [3, 3, 3]])
    assert x.tolist() == [[2] * 3, [3] * 3]


def turned(array):
    """Lay an array out backwards in memory."""
    backwards = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[backwards])[backwards]


@pytest.mark.parametrize("pays", [False, True])
@pytest.mark.parametrize("width", [(), (2,)], ids=["elements", "rows"])
@pytest.mark.parametrize("lay_out", [np.ascontiguousarray, np.asfortranarray, turned])
@pytest.mark.parametrize("how", ["one index", "two", "broadcast", "after a slice", "before a slice", "lists"])
def test_the_last_update_in_c_order_remains(monkeypatch, how, lay_out, width, pays):
    """Whatever carries the call out, and where NumPy's assignment goes through memory."""
    monkeypatch.setattr(at, "LIMITS", ALWAYS if pays else NEVER)
    rng = np.random.default_rng(9)
    rows, columns = (lay_out(rng.integers(0, 3, (4, 5))) for _ in range(2))
    indices, lead, tail = {
        "one index": (rows, (), ()),
        "two": ((rows, columns), (), ()),
        "broadcast": ((rows[:, :1], columns[:1]), (), ()),
        "after a slice": ((slice(None), rows, np.int64(1)), (3,), ()),
        "before a slice": ((rows, slice(None)), (), (3,)),
        "lists": ((rows[:, :1].tolist(), columns[0].tolist()), (), ()),
    }[how]
    x = np.zeros((3,) * {"one index": 1, "after a slice": 3}.get(how, 2) + width)
    updates = lay_out(rng.normal(size=(*lead, 4, 5, *tail, *width)))
    expected = x.copy()
    assert x[indices].shape == updates.shape
    for i, j in np.ndindex(4, 5):
        one = tuple(
            each if isinstance(each, slice | int | np.integer) else int(np.broadcast_to(each, (4, 5))[i, j])
            for each in (indices if isinstance(indices, tuple) else (indices,))
        )
        expected[one] = updates[(slice(None),) * len(lead) + (i, j)]
    dmlcpu.put_at(x, indices, updates)
    assert x.tolist() == expected.tolist()


@pytest.mark.parametrize(("ours", "numpys"), [*NUMPYS.items()][:3], ids=lambda each: each.__name__)
@pytest.mark.parametrize("dtype", ["f4,i8", "V2"])
@pytest.mark.parametrize("indices", [[[0, 1], [1, 0]], [[0, 9], [1, 0]], [0, 9]], ids=["good", "out of range", "1-D"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_types_that_cannot_be_computed_raise_the_error_of_numpy(ours, numpys, dtype, indices, count):
    x, updates = np.zeros(3, dtype), np.zeros(count, dtype)
    with pytest.raises(TypeError) as theirs:
        numpys(x.copy(), np.array(indices), updates)
    with pytest.raises(TypeError) as mine:
        ours(x, np.array(indices), updates)
    assert (mine.type, str(mine.value)) == (theirs.type, str(theirs.value))


def test_scalars_of_numpy_are_indices():
    x = np.zeros((2, 3))
    dmlcpu.put_at(x, (np.int64(1), np.int8(2)), 5)
    dmlcpu.put_at(x, (np.int64(0), slice(None)), [1, 2, 3])
    assert x.tolist() == [[1, 2, 3], [0, 0, 5]]


@given(st.data())
def test_hypothesis(data):
    ours = data.draw(st.sampled_from(list(NUMPYS)))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    depth, outer = data.draw(st.integers(1, len(shape))), tuple(data.draw(st.lists(st.integers(0, 6), max_size=2)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from([np.dtype(t) for t in ("f4", "f8", "i4", "u1", "?")] + FLOATS[:1]))
    indices = tuple(rng.integers(-n, n, outer) for n in shape[:depth])
    whole = outer + shape[depth:]
    updates = few_values(rng, whole[data.draw(st.integers(0, len(whole))) :], dtype)
    updates = updates[:1] if updates.ndim and data.draw(st.booleans()) else updates
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, "LIMITS", ALWAYS)
        check(ours, NUMPYS[ours], few_values(rng, shape, dtype), indices if depth > 1 else indices[0], updates)


@pytest.mark.parametrize(
    ("ours", "x", "count", "pays"),
    [
        (dmlcpu.add_at, np.zeros(9), 90_000, False),
        (dmlcpu.add_at, np.zeros(9), 100_000, True),
        (dmlcpu.add_at, np.zeros(1_000_000), 100_000, False),
        (dmlcpu.add_at, np.zeros(1_000_000), 300_000, True),
        (dmlcpu.put_at, np.zeros(9), 100_000, True),
        (dmlcpu.put_at, np.zeros(1_000_000), 300_000, False),
        (dmlcpu.add_at, np.zeros((9, 50)), 40, False),
        (dmlcpu.add_at, np.zeros((9, 50)), 60, True),
        (dmlcpu.put_at, np.zeros((9, 50)), 60, False),
        (dmlcpu.put_at, np.zeros((9, 50)), 6_000, True),
    ],
)
def test_small_calls_are_left_to_numpy(monkeypatch, calls, ours, x, count, pays):
    monkeypatch.undo()
    seen = []
    monkeypatch.setattr(at, "update", lambda *args, **kwargs: seen.append(kwargs["operator"]))
    ours(x, np.zeros(count, int), 1)
    assert bool(seen) == pays


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "float64", "U3", object], ids=str)
@pytest.mark.parametrize("first", [300, -1, np.nan, 1e300, 1j, 2**53 + 1, 2**64 - 1, "12", None], ids=repr)
@pytest.mark.parametrize("indices", [np.arange(2), np.arange(4).reshape(2, 2)], ids=["1-D", "2-D"])
def test_lists_are_assigned_as_numpy_does(dtype, first, indices):
    for updates in ([first], [first, 0.5]):
        check_or_same_error(dmlcpu.put_at, assign, np.zeros(4, dtype), indices, updates)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint64, ">u8"])
@pytest.mark.parametrize("shape", [(300_000,), (3, 100_000), (300_000, 2)])
def test_small_indices_are_converted_in_blocks(dtype, shape):
    """The bits are NumPy's, and no copy of all indices as int64 is made."""
    rng = np.random.default_rng(11)
    indices = rng.integers(0, 100, shape).astype(dtype)
    updates = rng.standard_normal(shape).astype(np.float32)
    for function, expected in ((dmlcpu.add_at, np.add.at), (dmlcpu.put_at, assign)):
        x, right = np.zeros(100, np.float32), np.zeros(100, np.float32)
        function(x, indices, updates)  # compiles
        x[...] = 0
        tracemalloc.start()
        try:
            function(x, indices, updates)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        expected(right, indices, updates)
        assert x.tobytes() == right.tobytes()
        if np.dtype(dtype).isnative and shape == (300_000,):
            assert peak < 8 * indices.size


def test_small_indices_out_of_range_change_nothing():
    """Neither in an earlier block."""
    indices = np.zeros(600_000, np.uint8)
    indices[-1] = 200
    x = np.zeros(100, np.float32)
    with pytest.raises(dmlcpu.IndexOutOfRangeError):
        dmlcpu.add_at(x, indices, np.ones(indices.size, np.float32))
    assert not x.any()
