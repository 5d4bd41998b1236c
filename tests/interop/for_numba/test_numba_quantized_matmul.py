"""quantized_matmul in compiled code, against the reference, bit for bit."""

import numpy as np
from numba import njit
from numba_callers import error_of, no_allocations, refusal_of
from samples import assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.interop.numba import quantized_matmul as products
from dmlcpu.interop.numba.refusals import STACK
from dmlcpu.kernels.gemm.work import SHARES


@njit
def multiplied_by_numbers(a, b, scale, zero):
    return dmlcpu.quantized_matmul(a, scale, None, b, 0.5, zero, 0.7, 100, out_dtype=np.int8)


@njit(fastmath=True)  # takes all numbers for finite: the operator does not
def multiplied_by_arrays(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, out):
    return dmlcpu.quantized_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, out=out)


# Rows, depth and columns: for both kernels, on the stack and not, sums of more than 32 bits, and empty ones.
PRODUCTS = [
    *((3, 5, 7), (40, 64, 100), (12, 300, 64), (16, 100, 64), (1, 2000, 130), (50, 700, 300), (33, 1, 1)),
    *((600, 8, 2500), (2, 33_100, 9), (1, 33_000, 70), (0, 3, 4), (3, 0, 4), (3, 4, 0)),
]


def bytes_of(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def test_quantized_matmul_by_numbers():
    rng = np.random.default_rng(0)
    for rows, depth, columns in PRODUCTS:
        a, b = bytes_of(rng, (rows, depth), np.uint8), bytes_of(rng, (depth, columns), np.int8)
        right = reference.quantized_matmul(a, 0.02, None, b, 0.5, 3, 0.7, 100, out_dtype=np.int8)
        assert_same_bits([multiplied_by_numbers(a, b, 0.02, 3)], [right], f"{rows} {depth} {columns}")


def test_quantized_matmul_by_arrays_allocates_nothing():
    rng = np.random.default_rng(0)
    for rows, depth, columns in [(3, 5, 7), (40, 64, 100), (12, 300, 64)]:
        a, b = bytes_of(rng, (rows, depth), np.int8), bytes_of(rng, (depth, columns), np.uint8)
        a_scale, y_scale = rng.random((2, rows), np.float32) + np.float32(0.01)
        b_scale = rng.random(columns, np.float32) + np.float32(0.01)
        zeros = bytes_of(rng, rows, np.int8), bytes_of(rng, columns, np.uint8), bytes_of(rng, rows, np.uint8)
        args = a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, zeros[2]
        out = np.empty((rows, columns), np.uint8)
        multiplied_by_arrays(*args, out)
        with no_allocations(arrays=9):
            multiplied_by_arrays(*args, out)
        assert_same_bits([out], [reference.quantized_matmul(*args)])
    for bad in (out.T.copy(), b.reshape(-1)[: rows * columns].reshape(rows, columns)):  # another shape, b's memory
        assert error_of(multiplied_by_arrays, *args, bad) == error_of(dmlcpu.quantized_matmul, *args, out=bad)
    for bad in (np.nan, np.inf):
        a_scale[1] = bad
        assert error_of(multiplied_by_arrays, *args, out) == error_of(dmlcpu.quantized_matmul, *args, out=out)


def test_quantized_matmuls_errors():
    a, b = np.zeros((2, 3), np.uint8), np.zeros((3, 4), np.int8)
    for matrix, scale, zero in [
        (b[:2], 0.5, 1),
        *((b, 0.5, zero) for zero in (300, -129)),
        *((b, scale, 1) for scale in (np.inf, np.nan, 0.0, -2.0)),
    ]:
        assert error_of(multiplied_by_numbers, a, matrix, scale, zero) == error_of(
            dmlcpu.quantized_matmul, a, scale, None, matrix, 0.5, zero, 0.7, 100, out_dtype=np.int8
        )


@njit
def into_matrix(a, b, out):
    return dmlcpu.quantized_matmul(a, 1.0, None, b, 1.0, None, 1.0, 100, out=out)


def test_what_quantized_matmul_refuses_when_a_caller_is_compiled():
    a, b = np.zeros((2, 3), np.uint8), np.zeros((3, 4), np.int8)
    for args, words in [
        ((a[0], b, 1.0, 1), "a.ndim is 1; allowed: 2, in compiled code"),
        ((a, b.astype(np.int16), 1.0, 1), "b.dtype is int16; allowed: int8, uint8"),
        ((a, b, np.ones(2), 1), "a_scale is array(float64, 1d, C); allowed: a number, or an array of float32"),
        ((a, b, 1.0, np.ones(2, np.uint8)), "b_zero_point.dtype is uint8; allowed: int8 (its tensor's type)"),
    ]:
        assert f"quantized_matmul: {words}" in refusal_of(multiplied_by_numbers, *args)
    refusal = refusal_of(into_matrix, a, b, np.zeros((2, 4), np.int8))
    assert "quantized_matmul: out.dtype is int8; allowed: uint8" in refusal  # a's type, as nothing else says it


def test_stack_holds_the_workspaces_that_the_page_names():
    assert max(cells_of_a_product(*sizes) for sizes in ((64, 64, 256), (16, 1000, 64))) <= STACK
    assert cells_of_a_product(64, 512, 512) > STACK


@njit
def cells_of_a_product(rows, depth, columns):
    return SHARES + products.cut(rows, depth, columns)[1].share_cells


def test_an_output_over_parameters_is_refused():
    memory = np.zeros(400, np.uint8)
    a, b, ones = np.ones((40, 30), np.int8), np.ones((30, 8), np.uint8), np.ones(1, np.float32)
    args = a, ones, np.zeros(1, np.int8), b, ones, np.zeros(1, np.uint8), ones
    _, text, _ = error_of(multiplied_by_arrays, *args, memory[:40], memory[:320].reshape(40, 8))
    assert text == "quantized_matmul: out is sharing memory with y_zero_point; allowed: its own memory"
    assert not memory.any()
    multiplied_by_arrays(*args, memory[360:], memory[:320].reshape(40, 8))
    assert (memory[:320] == 30).all()
