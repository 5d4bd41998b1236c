"""Products that no operator uses yet, against NumPy: sums as they are, by every microkernel this machine can run."""

import itertools

import numpy as np
import pytest
from samples import THREADS, quantized

from dmlcpu.kernels import registry
from dmlcpu.operators.packing import pack_b
from dmlcpu.operators.product_plan import Layout, plan
from dmlcpu.operators.quantized_matmul import flat, rhs, run
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.threads import budget, limits

BYTE = np.dtype(np.uint8)
PRODUCTS = (
    # batch, M, K, N
    ((), 1, 1, 1),
    ((), 13, 70, 33),
    ((2, 3), 5, 257, 40),
    ((), 40, 1_100, 70),
    ((), 3, 0, 5),
    ((), 2, 40_001, 34),  # sums exceed int32, and wrap
)


def multiply(a, a_zero, b, b_zero, y, kernel, is_packed):
    """Do what an operator will: y = (a - a_zero) @ (b - b_zero)."""
    given = pack_b(b) if is_packed else b
    a_layout, b_layout, y_layout = [Layout(x.shape, x.strides, x.dtype) for x in (a, b, y)]
    b_layout = b_layout._replace(strides=(0,) * b.ndim) if is_packed else b_layout
    parameters = (None, a_zero, None, b_zero, None, None)
    shapes = tuple(None if zero is None else zero.shape for zero in parameters)
    chosen = plan("matmul_integer", a_layout, b_layout, y_layout, shapes, is_packed, budget(), kernel)
    flat_a = words(a, BYTE) if a.size else np.empty(0, BYTE)
    run(chosen, flat_a, *rhs(given), *map(flat, parameters), words(y, y.dtype))


@pytest.mark.parametrize("signs", list(itertools.product(["int8", "uint8"], repeat=2)), ids="-".join)
@pytest.mark.parametrize("kernel", [entry.name for entry in registry.available("matmul_integer", "dot")])
def test_int32_sums(kernel, signs):
    rng = np.random.default_rng(4)
    for (batch, rows, depth, columns), extreme, is_packed in itertools.product(PRODUCTS, (False, True), (False, True)):
        a = quantized(rng, (*batch, rows, depth), np.dtype(signs[0]))
        b = quantized(rng, (*batch, depth, columns), np.dtype(signs[1]))
        if extreme:
            a[...], b[...] = np.iinfo(a.dtype).max, np.iinfo(b.dtype).max
        a_zero, b_zero = quantized(rng, (rows, 1), a.dtype), quantized(rng, (1, columns), b.dtype)
        exact = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
        for threads in THREADS:
            y = np.full((*batch, columns, rows), 7, np.int32).swapaxes(-1, -2)  # columns are not side by side
            with limits(threads, grain=1):
                multiply(a, a_zero, b, b_zero, y, kernel, is_packed)
            case = f"{kernel} {signs} {batch} {rows}x{depth}x{columns} packed {is_packed} threads {threads}"
            np.testing.assert_array_equal(y, exact.astype(np.int32), err_msg=case)


def test_int32_sums_without_zero_points():
    a, b = np.array([[1, 2], [3, 4]], np.uint8), np.array([[5, -6], [7, 8]], np.int8)
    y = np.empty((2, 2), np.int32)
    multiply(a, None, b, None, y, None, False)
    assert y.tolist() == (a.astype(int) @ b.astype(int)).tolist()
