"""Calls that are worth many threads have the bits of the reference, however many there are."""

import functools

import numpy as np
import pytest
from samples import assert_same_bits, zipf

import dmlcpu
from dmlcpu import reference
from dmlcpu.operators.scatter_nd import buckets, plan as scatter_plan
from dmlcpu.operators.scatter_nd.plan import plan
from dmlcpu.runtime.threads import use_budget

# Single elements and rows, of which some get most updates, and those beside them some.
SINGLES, ROWS = ((9_000,), 6_000), ((400, 40), 1_500)
CASES = (
    (SINGLES, "f4", "add", "i8"),
    (SINGLES, "f4", "none", "i4"),
    (SINGLES, "f8", "mul", "u4"),
    (SINGLES, "i8", "min", "u8"),
    (SINGLES, "f2", "add", "i8"),
    (SINGLES, "u1", "max", "i4"),
    (ROWS, "f4", "add", "i8"),
    (ROWS, "f4", "none", "i4"),
    (ROWS, "i2", "mul", "u4"),
    (ROWS, "f8", "max", "u8"),
    (ROWS, "f2", "add", "i8"),
    (ROWS, "c8", "mul", "i8"),
)


@pytest.fixture
def few_are_many(monkeypatch):
    """Make calls of a few thousand updates worth a partition, as far larger ones are."""
    monkeypatch.setattr(scatter_plan, "_PARTITION_NS", 0)
    plan.cache_clear()
    yield monkeypatch
    plan.cache_clear()


def call_of(size, dtype, index_type, mode):
    (length, *row), count = size
    rng = np.random.default_rng(count)
    indices = zipf(length, count)
    indices[::2] = rng.integers(0, length, len(indices[::2]))
    if index_type[0] == "i":
        indices[::3] -= length  # counted from the end
    if mode != "raise":
        indices[::5] = length + 3
    draw = rng.standard_normal if np.dtype(dtype).kind in "fc" else functools.partial(rng.integers, 0, 9)
    x, updates = (draw((n, *row)).astype(dtype) for n in (length, count))  # sums of floats depend on their order
    return x, indices.astype(index_type)[:, None], updates


@pytest.mark.parametrize(("size", "dtype", "reduction", "index_type"), CASES)
@pytest.mark.parametrize("mode", ["raise", "drop", "clip"])
@pytest.mark.usefixtures("few_are_many")
def test_any_number_of_threads(size, dtype, reduction, index_type, mode):
    x, indices, updates = call_of(size, dtype, index_type, mode)
    expected = reference.scatter_nd(x, indices, updates, reduction=reduction, mode=mode)
    for threads in (1, 2, 16, 64):
        for in_place in (False, True):
            given = x.copy()
            with use_budget(threads, grain=1):
                found = dmlcpu.scatter_nd(
                    given, indices, updates, reduction=reduction, mode=mode, out=given if in_place else None
                )
            assert_same_bits((found,), (expected,), f"{threads=}, {in_place=}")


@pytest.mark.parametrize("size", [((1_000_000,), 1_000_000), ((1_000,), 600_000), ((20_000, 64), 60_000)])
@pytest.mark.parametrize(("dtype", "reduction"), [("f4", "add"), ("f4", "none"), ("f2", "max"), ("i8", "add")])
def test_usual_budgets(size, dtype, reduction):
    x, indices, updates = call_of(size, dtype, "i8", "raise")
    for in_place in (False, True):
        with use_budget(1):
            expected = dmlcpu.scatter_nd(x, indices, updates, reduction=reduction)
        for threads in (2, 16, 64):
            given = x.copy()
            with use_budget(threads):
                found = dmlcpu.scatter_nd(given, indices, updates, reduction=reduction, out=given if in_place else None)
            assert_same_bits((found,), (expected,), f"{threads=}, {in_place=}")


@pytest.mark.parametrize("size", [SINGLES, ROWS])
@pytest.mark.parametrize("kernel", [None, "apply_buckets"])
@pytest.mark.parametrize("mode", ["raise", "drop"])
def test_turns_that_need_little_memory(few_are_many, size, kernel, mode):
    few_are_many.setattr(buckets, "_MOST_PAIRS", 4_000)
    x, indices, updates = call_of(size, "f8", "i8", mode)
    expected = reference.scatter_nd(x, indices, updates, reduction="add", mode=mode)
    for in_place in (False, True):
        given = x.copy()
        with use_budget(16, grain=1, kernel=kernel):
            found = dmlcpu.scatter_nd(
                given, indices, updates, reduction="add", mode=mode, out=given if in_place else None
            )
            assert_same_bits((found,), (expected,), f"{in_place=}")
            if mode == "raise":
                bad, before = indices.copy(), given.copy()
                bad[[-5, -900]] = len(x)
                with pytest.raises(dmlcpu.IndexOutOfRangeError, match=rf"indices\[{len(bad) - 900}, 0\]"):
                    dmlcpu.scatter_nd(given, bad, updates, reduction="add", out=given)
                assert np.array_equal(given, before)


@pytest.mark.parametrize("in_place", [False, True])
def test_slices_that_are_not_in_order(in_place):
    x, indices, updates = call_of(ROWS, "f4", "i8", "raise")
    x = np.asfortranarray(x)
    expected = reference.scatter_nd(x, indices, updates, reduction="add")
    for threads in (1, 2, 16, 64):
        for kernel in (None, "apply_buckets"):
            given = x.copy(order="F")
            out = given if in_place else np.empty_like(given)
            with use_budget(threads, grain=1, kernel=kernel):
                dmlcpu.scatter_nd(given, indices, updates, reduction="add", out=out)
            assert_same_bits((np.ascontiguousarray(out),), (np.ascontiguousarray(expected),), f"{threads=}, {kernel=}")


VIEWS = {
    "reversed slices": lambda array: array[:, ::-1],
    "reversed rows": lambda array: array[::-1],
    "all reversed": lambda array: array[::-1, ::-1],
    "every other element": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "Fortran order": np.asfortranarray,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
@pytest.mark.parametrize(("dtype", "reduction"), [("f4", "add"), ("i2", "none"), ("f8", "max")])
@pytest.mark.usefixtures("few_are_many")
def test_slices_that_lie_in_any_way(view, dtype, reduction):
    rng = np.random.default_rng(0)
    x, updates = (rng.integers(0, 9, (n, 6)).astype(dtype) for n in (600, 6_000))
    indices = rng.integers(0, 600, (6_000, 1))
    expected = reference.scatter_nd(x, indices, updates, reduction=reduction)
    for threads in (2, 5, 8, 64):
        out = view(np.zeros_like(x))
        with use_budget(threads, grain=1):
            dmlcpu.scatter_nd(x, indices, updates, reduction=reduction, out=out)
        assert_same_bits((out,), (expected,), f"{threads=}")
