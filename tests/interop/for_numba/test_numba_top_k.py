"""top_k in compiled code, against the reference, bit for bit."""

import itertools

import numpy as np
import pytest
from numba import njit
from numba_callers import error_of, into, largest, no_allocations, refusal_of
from samples import assert_same_bits, few_values, random_bits, specials, strided

import dmlcpu
from dmlcpu import reference
from dmlcpu.interop.numba import top_k as selections
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.choose import NAMES


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint16, np.bool_])
def test_top_k_of_every_width(dtype):
    rng = np.random.default_rng(1)
    dtype = np.dtype(dtype)
    for make, n in itertools.product((random_bits, few_values, specials), (1, 2, 17, 70)):
        x = make(rng, (n,), dtype)
        for k in range(n + 1):
            found = largest(x, k)
            assert type(found) is type(dmlcpu.top_k([1], 1))
            assert_same_bits(found, reference.top_k(x, k), f"{make.__name__} {n} {k}")


@pytest.mark.parametrize(("n", "k"), [(5000, 7), (5000, 400), (70_000, 1), (300_000, 60_000), (300_000, 100)])
def test_top_k_of_long_sequences(n, k):
    """Some workspaces are too large for the stack."""
    x = few_values(np.random.default_rng(n), (n,), np.dtype(np.float32)) + np.arange(n, dtype=np.float32) % 1000
    assert_same_bits(largest(x, k), reference.top_k(x, k))


@njit
def options(x, k):
    smallest = dmlcpu.top_k(x, k, mode="smallest", index_dtype=np.uint32)
    last = dmlcpu.top_k(x, k, largest=True, sorted=False, nan="last", index_dtype=np.int32)
    return smallest, last


def test_top_ks_options():
    rng = np.random.default_rng(0)
    for n, k in ((90, 0), (90, 1), (90, 5), (90, 40), (90, 90), (3000, 900)):
        x = specials(rng, (n,), np.dtype(np.float32))
        smallest, last = options(x, k)
        assert_same_bits(smallest, reference.top_k(x, k, mode="smallest", index_dtype=np.uint32))
        right = reference.top_k(x, k, nan="last", index_dtype=np.int32)
        for found in (last, right):  # in the order of the indices, as they are not sorted
            order = np.argsort(found.indices)
            found.values[:], found.indices[:] = found.values[order], found.indices[order]
        assert_same_bits(last, right)


@njit
def along_columns(x, k):
    return dmlcpu.top_k(x, k, axis=-2)


def test_top_k_along_an_axis_that_is_not_the_last():
    rng = np.random.default_rng(2)
    shapes = [(3, 40, 5), (1, 400, 9), (2, 300, 64), (2, 1000, 3), (1, 3, 1), (0, 4, 2), (2, 4, 0), (90, 5, 1)]
    for shape in [*shapes, (1, 2000, 70)]:
        x = few_values(rng, shape, np.dtype(np.float32))
        for k in {0, 1, min(3, shape[1]), min(20, shape[1]), shape[1]}:
            assert_same_bits(along_columns(x, k), reference.top_k(x, k, axis=1), f"{shape} {k}")


def test_top_k_along_the_last_axis_into_arrays():
    rng = np.random.default_rng(3)
    for shape in ((40, 8), (3, 500), (33, 200), (5, 1), (30, 5000)):  # the last: more results than workspace
        x = specials(rng, shape, np.dtype(np.float32))
        for k in {0, 1, shape[1] // 2, shape[1]}:
            values, indices = np.empty((shape[0], k), np.float32), np.empty((shape[0], k), np.int64)
            found = into(x, k, values, indices)
            assert found.values.ctypes.data == values.ctypes.data
            assert_same_bits((values, indices), reference.top_k(x, k), f"{shape} {k}")


@njit
def repeated(x, k, values, indices, times):
    for _ in range(times):
        dmlcpu.top_k(x, k, out=(values, indices))


def test_top_k_into_arrays_allocates_nothing():
    x = np.random.default_rng(0).random((4, 10_000), np.float32)
    values, indices = np.empty((4, 10), np.float32), np.empty((4, 10), np.int64)
    repeated(x, 10, values, indices, 1)
    with pytest.raises(AssertionError), no_allocations(arrays=1):
        largest(x[0], 10)
    with no_allocations(arrays=3):
        repeated(x, 10, values, indices, 50)
    assert_same_bits((values, indices), reference.top_k(x, 10))


def test_top_ks_workspace_is_that_of_the_kernels_of_the_table():
    for row in registry.rows("top_k"):
        if row.name in NAMES:
            kernel = NAMES.index(row.name)
            assert workspace_of(kernel, 5000, 17, 16) == row.workspace(5000, 17, 16)


@njit
def workspace_of(kernel, n, k, lanes):
    return selections.workspace(kernel, n, k, lanes)


@njit
def along(x, k, axis):
    return dmlcpu.top_k(x, k, axis=axis)


def test_top_k_along_an_axis_that_is_not_known_yet():
    x = few_values(np.random.default_rng(0), (20, 30), np.dtype(np.float32))
    for axis in (-2, -1, 0, 1):
        assert_same_bits(along(x, 5, axis), reference.top_k(x, 5, axis=axis))
    for axis in (-3, 2):
        assert error_of(along, x, 5, axis) == error_of(dmlcpu.top_k, x, 5, axis=axis)


def test_top_ks_errors():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for k in (-1, 5):
        assert error_of(largest, x[0], k) == error_of(dmlcpu.top_k, x[0], k)
    good = np.zeros((3, 2), np.float32), np.zeros((3, 2), np.int64)
    memory = np.zeros(12, np.int64)
    bad = [
        (np.zeros((3, 3), np.float32), good[1]),
        (good[0], np.zeros((2, 2), np.int64)),
        (x.reshape(-1)[:6].reshape(3, 2), good[1]),
        (memory.view(np.float32)[2:8].reshape(3, 2), memory[:6].reshape(3, 2)),
    ]
    for out in bad:
        assert error_of(into, x, 2, *out) == error_of(dmlcpu.top_k, x, 2, out=out)
    assert not good[0].any()
    x = memory.view(np.float32)[:12].reshape(3, 4)
    out = good[0], memory[:6].reshape(3, 2)
    assert error_of(into, x, 2, *out) == error_of(dmlcpu.top_k, x, 2, out=out)


@njit
def with_mode(x, mode):
    return dmlcpu.top_k(x, 1, mode=mode)


@njit
def with_a_wrong_mode(x):
    return dmlcpu.top_k(x, 1, mode="greatest")


@njit
def with_filling(x):
    return dmlcpu.top_k(x, 1, fill_value=0)


def test_what_top_k_refuses_when_a_caller_is_compiled():
    x = np.zeros((4, 4), np.float32)
    assert "top_k: x is laid out 'F'; allowed: a C-contiguous array, in compiled code" in refusal_of(largest, x.T, 1)
    assert "top_k: x is laid out 'A'; allowed: a C-contiguous array" in refusal_of(largest, strided(x), 1)
    assert "top_k: k is array(int64, 1d, C); allowed: an integer" in refusal_of(largest, x, np.array([1]))
    for axis, found in ((0.5, "float64"), (True, "bool")):
        assert f"top_k: axis is {found}; allowed: an integer" in refusal_of(along, x, 1, axis)
    assert "top_k: x.dtype is float16; allowed: types that Numba has" in refusal_of(largest, x.astype(np.float16), 1)
    assert "top_k: x.dtype is complex64; allowed: bool, uint8" in refusal_of(largest, x.astype(np.complex64), 1)
    assert "top_k: x.ndim is 0; allowed: at least 1" in refusal_of(largest, np.array(1.0), 1)
    assert "top_k: x is int64; allowed: an array, in compiled code" in refusal_of(largest, 3, 1)
    assert "top_k: mode is unicode_type; allowed: a constant" in refusal_of(with_mode, x, "largest")
    assert "top_k: mode is 'greatest'; allowed: 'largest', 'smallest'" in refusal_of(with_a_wrong_mode, x)
    assert "top_k: fill_value is Literal[int](0); allowed: None" in refusal_of(with_filling, x)
    good = np.zeros((4, 1), np.float32), np.zeros((4, 1), np.int64)
    read_only = good[0].copy()
    read_only.flags.writeable = False
    for values, indices, words in [
        (good[0][0], good[1], "out[0].ndim is 1; allowed: 2"),
        (good[1], good[1], "out[0].dtype is int64; allowed: float32"),
        (read_only, good[1], "out[0] is read-only; allowed: an array that can be written to"),
        (good[0], good[0], "out[1].dtype is float32; allowed: int64"),
    ]:
        assert f"top_k: {words}" in refusal_of(into, x, 1, values, indices)
