"""add_at, maximum_at, minimum_at and put_at beside NumPy's own, bit for bit."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st
from samples import COMPLEX, FLOATS, LAYOUTS, NUMERIC_TYPES, few_values, misaligned, random_bits, strided

import dmlcpu
from dmlcpu import at
from dmlcpu.operators.scatter_nd.function import update


def assign(x, indices, updates):
    x[indices] = updates


NUMPYS = {
    dmlcpu.add_at: np.add.at,
    dmlcpu.maximum_at: np.maximum.at,
    dmlcpu.minimum_at: np.minimum.at,
    dmlcpu.put_at: assign,
}
ALWAYS = at.Limits(0, (0, 0), (0, 0), 0, 0)
NEVER = at.Limits(math.inf, (0, math.inf), (0, math.inf), math.inf, math.inf)
PAIRS = pytest.mark.parametrize(("ours", "numpys"), NUMPYS.items(), ids=lambda each: each.__name__)


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


def same(ours, mine, theirs):
    """Compare arrays to the bit, except for the bits of NaNs and, of maxima and minima, the sign of zeros."""
    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
    with np.errstate(all="ignore"):
        if mine.dtype.kind in "fcV":
            is_nan = theirs != theirs
            np.testing.assert_array_equal(mine != mine, is_nan)
            mine, theirs = mine[~is_nan], theirs[~is_nan]
        if mine.dtype.kind in "fV" and ours in (dmlcpu.maximum_at, dmlcpu.minimum_at):
            mine, theirs = mine + np.zeros_like(mine), theirs + np.zeros_like(theirs)
    assert mine.tobytes() == theirs.tobytes()


def check(ours, numpys, x, indices, updates):
    mine, theirs = x.copy(order="K"), x.copy(order="K")
    whole = np.broadcast_to(updates, x[indices].shape) if np.ndim(updates) else updates  # see _apply
    with np.errstate(all="ignore"):
        numpys(theirs, indices, whole)
        assert ours(mine, indices, updates) is None
    same(ours, mine, theirs)


def check_or_same_error(ours, numpys, x, indices, updates):
    mine, theirs = x.copy(), x.copy()
    with np.errstate(all="ignore"):
        try:
            numpys(theirs, indices, updates)
        except (TypeError, ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                ours(mine, indices, updates)
        else:
            ours(mine, indices, updates)
    if x.dtype.kind in "OU":
        assert mine.tolist() == theirs.tolist()
    else:
        same(ours, mine, theirs)


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


PLAIN_TYPES = [t for t in NUMERIC_TYPES if t.name != "bfloat16"]


@PAIRS
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("limits", [ALWAYS, NEVER], ids=["kernels", "NumPy"])
@pytest.mark.parametrize("dtype", PLAIN_TYPES, ids=str)
@pytest.mark.parametrize("given", PLAIN_TYPES, ids=str)
def test_arrays_of_other_types(monkeypatch, ours, numpys, limits, dtype, given):
    """Those that are computed alike are converted once."""
    monkeypatch.setattr(at, "LIMITS", limits)
    rng = np.random.default_rng(9)
    x, updates = random_bits(rng, (50,), dtype), random_bits(rng, (60,), given)
    check_or_same_error(ours, numpys, x, np.arange(60) % 50, updates)


NUMBERS = [1, 0.5, 0.1, -3, 300, True, 2**40, np.float32(0.1), np.uint8(200), np.int64(-1)]
NUMBERS += [0, -0.0, 2047, 2048, -2048, 2049, 1e-50, 1e-5, 0.25, -1.5, np.nan, np.inf]


@PAIRS
@pytest.mark.parametrize("dtype", PLAIN_TYPES, ids=str)
@pytest.mark.parametrize("update", NUMBERS, ids=repr)
def test_numbers(ours, numpys, dtype, update):
    """In ufunc.at, NumPy does not convert them to x's type."""
    x = random_bits(np.random.default_rng(8), (50, 3), dtype)
    check_or_same_error(ours, numpys, x, np.arange(60) % 50, update)


@pytest.mark.parametrize(
    ("dtype", "update", "expected"),
    [
        ("int32", 1, np.int32),
        ("uint32", 7, np.uint32),
        ("uint64", 7, int),
        ("float32", 1, np.float32),
        ("float32", 0.5, np.float32),
        ("float16", -2048, np.float16),
        ("int8", 300, int),
        ("uint8", -1, int),
        ("float32", 0.1, float),
        ("int64", 0.5, float),
        ("int64", 1, int),
        ("complex64", 1, int),
        ("int32", np.arange(5), np.int32),
        ("float32", np.arange(5, dtype=np.int16), np.float32),
        ("float32", np.arange(5), np.int64),
        ("float32", np.arange(5.0), np.float64),
        ("uint32", np.arange(5), np.int64),
    ],
)
def test_updates_that_sum_alike_have_the_type_of_x(monkeypatch, dtype, update, expected):
    """NumPy converts others anew for each index."""
    monkeypatch.undo()
    given = []
    monkeypatch.setattr(at, "_apply_by_numpy", lambda ufunc, x, indices, updates: given.append(updates))
    dmlcpu.add_at(np.zeros(3, dtype), np.zeros(5, int), update)
    assert type(np.ravel(given[0])[0] if isinstance(given[0], np.ndarray) else given[0]) is expected
    np.testing.assert_array_equal(given[0], update)


@PAIRS
@pytest.mark.parametrize("update", [0.5, np.array([1], np.int16), 1.5 * 2**-20], ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=lambda dtype: dtype.__name__)
def test_updates_that_are_converted_report_what_numpy_reports(monkeypatch, ours, numpys, dtype, update):
    """NumPy's loop of one type reports NaN as invalid, its loop that converts does not; without indices none runs."""
    monkeypatch.undo()
    for indices in (np.arange(40) % 5, np.zeros(0, int)):
        reports = set(), set()
        for function, report in zip((ours, numpys), reports, strict=True):
            with np.errstate(all="call", call=lambda *found, report=report: report.add(found)):
                function(np.array([np.nan, 1, 2, 3, 4], dtype), indices, update)
        assert reports[0] == reports[1]


def test_classes_that_replace_numpys_functions_get_the_updates_as_given():
    class Recording(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            given.append((ufunc, method, inputs[2]))

    given = []
    dmlcpu.add_at(np.zeros(3, np.float32).view(Recording), [0], update := 1)
    assert given == [(np.add, "at", update)]
    assert type(given[0][2]) is int


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
