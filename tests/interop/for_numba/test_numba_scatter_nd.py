"""scatter_nd in compiled code, against the reference, bit for bit."""

import numpy as np
import pytest
from numba import njit
from numba_callers import error_of, no_allocations, refusal_of
from samples import assert_same_bits, few_values, random_bits, specials

import dmlcpu
from dmlcpu import reference


@njit
def scattered(x, indices, updates):
    return dmlcpu.scatter_nd(x, indices, updates)


@njit
def added(x, indices, updates):
    return dmlcpu.scatter_nd(x, indices, updates, reduction="add")


@njit
def multiplied(x, indices, updates):
    return dmlcpu.scatter_nd(x, indices, updates, reduction="mul", mode="clip")


@njit(fastmath=True, forceinline=True)  # neither of which holds for the operator
def least(x, indices, updates):
    return dmlcpu.scatter_nd(x, indices, updates, reduction="min", mode="drop")


@njit
def in_place(x, indices, updates, out):
    return dmlcpu.scatter_nd(x, indices, updates, reduction="max", out=out)


def updates_of(rng, x, count, coordinates, dtype, beyond=0):
    """Draw tuples, and updates for them."""
    sizes = np.array(x.shape[:coordinates], np.int64)
    lowest = 0 if np.dtype(dtype).kind == "u" else -sizes - beyond
    indices = rng.integers(lowest, sizes + beyond, (*count, coordinates)).astype(dtype)
    return indices, few_values(rng, (*count, *x.shape[coordinates:]), x.dtype)


@pytest.mark.parametrize(
    ("dtype", "coordinates", "counts"),
    [
        (np.float32, 0, ((3,), (0,))),
        (np.float32, 1, ((0,), (9,), (600,))),
        ("U3", 2, ((4, 80), (0, 2), (1, 1))),
    ],
)
def test_scatter_nd_overwrites_every_type_with_any_number_of_coordinates(dtype, coordinates, counts):
    rng = np.random.default_rng(0)
    make = random_bits if dtype != "U3" else lambda rng, shape, dtype: rng.choice(["x", "yz"], shape).astype(dtype)
    x = make(rng, (6, 5), np.dtype(dtype))
    for count in counts:
        indices, same = updates_of(rng, np.zeros(x.shape), count, coordinates, np.int64)
        updates = make(rng, same.shape, x.dtype)
        assert_same_bits([scattered(x, indices, updates)], [reference.scatter_nd(x, indices, updates)])


@pytest.mark.parametrize(
    ("function", "reduction", "mode", "dtype", "index_type"),
    [
        (least, "min", "drop", np.float32, np.uint32),  # first, so that it compiles the kernel
        (added, "add", "raise", np.float32, np.int64),
        (added, "add", "raise", np.int8, np.uint64),
        (multiplied, "mul", "clip", np.complex64, np.int64),
    ],
)
def test_scatter_nds_reductions_modes_and_index_types(function, reduction, mode, dtype, index_type):
    rng = np.random.default_rng(0)
    for shape, count in (((7, 3), (5,)), ((7, 3), (400,)), ((2, 300), (50,)), ((4, 0), (5,)), ((3, 4), (0,))):
        x = specials(rng, shape, np.dtype(dtype))
        indices, updates = updates_of(rng, x, count, 1, index_type, beyond=0 if mode == "raise" else 2)
        right = reference.scatter_nd(x, indices, updates, reduction=reduction, mode=mode)
        assert_same_bits([function(x, indices, updates)], [right], f"{shape} {count}")


def test_scatter_nd_in_place_allocates_nothing_and_refuses_before_it_writes():
    rng = np.random.default_rng(0)
    x = specials(rng, (50, 4), np.dtype(np.float32))
    for count in ((20,), (500,)):
        indices, updates = updates_of(rng, x, count, 1, np.int64)
        right = reference.scatter_nd(x, indices, updates, reduction="max")
        other, same = np.empty_like(x), x.copy()
        in_place(x, indices, updates, other)
        with no_allocations(arrays=4):
            in_place(same, indices, updates, same)
        assert_same_bits([other, same], [right, right])
        indices[count[0] // 2] = 50
        kept = same.copy()
        assert error_of(in_place, same, indices, updates, same) == error_of(dmlcpu.scatter_nd, x, indices, updates)
        assert_same_bits([same], [kept])
    memory = np.zeros(300, np.float32)
    x, indices, updates = memory[:200].reshape(50, 4), np.zeros((1, 1), np.int64), np.zeros((1, 4), np.float32)
    for out, more in [
        (memory[4:204].reshape(50, 4), {}),
        (np.zeros((4, 50), np.float32), {}),
        (memory[100:].reshape(50, 4), {"updates": memory[100:104].reshape(1, 4), "x": np.zeros((50, 4), np.float32)}),
    ]:
        args = {"x": x, "indices": indices, "updates": updates, **more}
        assert error_of(in_place, *args.values(), out) == error_of(dmlcpu.scatter_nd, **args, out=out)


def test_scatter_nds_errors():
    x = np.zeros((3, 4), np.float32)
    for indices, updates in [([[0], [3]], (2, 4)), ([[0], [-4]], (2, 4)), ([[0], [1]], (2, 3)), ([[0], [1]], (1, 4))]:
        args = x, np.array(indices), np.zeros(updates, np.float32)
        assert error_of(scattered, *args) == error_of(dmlcpu.scatter_nd, *args)
    error, message, _ = error_of(scattered, x, np.zeros((2, 2), np.int64), np.zeros((2, 4), np.float32))
    assert error is dmlcpu.BindingError
    assert message == "scatter_nd: indices.shape[-1] is 2; allowed: 1 (by the dimensions of updates)"
    wide = np.zeros((3, 2), np.int8), np.array([[2**64 - 1]], np.uint64), np.zeros((1, 2), np.int8)
    assert error_of(added, *wide) == error_of(dmlcpu.scatter_nd, *wide)
    empty = np.zeros((0, 2), np.complex64), np.zeros((1, 1), np.int64), np.zeros((1, 2), np.complex64)
    assert error_of(multiplied, *empty) == error_of(dmlcpu.scatter_nd, *empty, mode="clip")


def test_what_scatter_nd_refuses_when_a_caller_is_compiled():
    x, indices, updates = np.zeros((3, 4), np.float32), np.zeros((2, 1), np.int64), np.zeros((2, 4), np.float32)
    for args, words in [
        ((x.T, indices, updates), "x is laid out 'F'"),
        ((x, indices.astype(np.int16), updates), "indices.dtype is int16; allowed: int64, int32, uint64, uint32"),
        ((x, indices, updates.astype(np.float64)), "updates.dtype is float64; allowed: float32 (x's type)"),
        ((x, indices, np.zeros((2, 3, 4, 1), np.float32)), "updates.ndim is 4; allowed: 1 to 3"),
    ]:
        assert f"scatter_nd: {words}" in refusal_of(scattered, *args)
    args = np.zeros(3, np.complex64), indices, np.zeros(2, np.complex64)
    assert "scatter_nd: x.dtype with reduction 'min' is complex64" in refusal_of(least, *args)
