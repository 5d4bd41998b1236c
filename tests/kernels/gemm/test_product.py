"""Products with other epilogues than an operator's, against NumPy."""

import itertools

import numpy as np
import pytest
from samples import THREADS, quantized

from dmlcpu.common.packing import pack_b
from dmlcpu.common.product_plan import Layout, flat, plan, rhs, run
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm import pack, skinny
from dmlcpu.kernels.gemm.epilogue import Epilogue
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK
from dmlcpu.kernels.gemm.product import make_product
from dmlcpu.kernels.registry import ROWS, Entry, Product
from dmlcpu.runtime.isa import Isa
from dmlcpu.runtime.jit import device
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


def multiply(a, a_zero, b, b_zero, y, kernel, is_packed, operator="matmul_integer", scales=(None, None)):
    """Do what an operator will: y = (a - a_zero) @ (b - b_zero). scales: of a and b."""
    given = pack_b(b) if is_packed else b
    a_layout, b_layout, y_layout = [Layout(x.shape, x.strides, x.dtype) for x in (a, b, y)]
    b_layout = b_layout._replace(strides=(0,) * b.ndim) if is_packed else b_layout
    parameters = (scales[0], a_zero, scales[1], b_zero, None, None)
    shapes = tuple(None if zero is None else zero.shape for zero in parameters)
    form = given.layout if is_packed else ROWS
    chosen = plan(operator, a_layout, b_layout, y_layout, shapes, form, budget()._replace(kernel=kernel))
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


@device
def prepare_columns(first, count, origin, arrays, work, columns):
    for j in range(min(count, work.N - first)):
        columns.scale[j] = arrays.b_scale[origin.b_scale + (first + j) * work.b_scale.step]


@device
def prepare_rows(first, last, height, origin, arrays, work, rows):
    for i in range(height):
        rows.lowest[i] = arrays.a_scale[origin.a_scale + min(first + i, last - 1) * work.a_scale.step]


@device
def scaled(acc, tile, origin, arrays, work, space):
    for row in range(tile.rows):
        for column in range(tile.columns):
            scale = space.rows.lowest[row] * space.columns.scale[tile.column + column]
            place = tile.place + row * work.y.row + column * work.y.column
            arrays.y[place] = np.float32(acc[row, column]) * scale


SCALED = Epilogue("_scaled", False, prepare_columns, prepare_rows, scaled)
VECTORS = Product(MR, NR, (pack.LAYOUT, ROWS), GENERIC.rate, GENERIC)
FEW_ROWS = Product(skinny.MOST_ROWS, BLOCK, (ROWS,), GENERIC.rate, GENERIC, is_skinny=True)


@pytest.mark.parametrize("name", ["dot_u8s8_scaled_4x8x4_generic", "skinny_u8s8_scaled_16x16_generic"])
def test_an_epilogue_of_ones_own(monkeypatch, name):
    """Float32, with a scale for each row and each column: what a kernel's author relies on."""
    is_skinny = name.startswith("skinny")
    made, row = (skinny.make_skinny, FEW_ROWS) if is_skinny else (make_product, VECTORS)
    entry = Entry("scaled_matmul", "dot", name, Isa.GENERIC, made(GENERIC, SCALED), product=row)
    assert entry.kernel.name == name
    monkeypatch.setattr(registry, "KERNELS", (*registry.KERNELS, entry))
    rng = np.random.default_rng(5)
    for rows, depth, columns in ((13, 300, 170),) if is_skinny else ((13, 300, 70), (30, 33_100, 65)):
        a, b = quantized(rng, (rows, depth), np.dtype(np.uint8)), quantized(rng, (depth, columns), np.dtype(np.int8))
        scales = [rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((rows, 1), (1, columns))]
        y = np.empty((rows, columns), np.float32)
        with limits(2, grain=1):
            multiply(a, None, b, None, y, name, False, "scaled_matmul", scales)
        exact = a.astype(np.int64) @ b.astype(np.int64)
        np.testing.assert_array_equal(y, exact.astype(np.float32) * (scales[0] * scales[1]), err_msg=f"{rows} rows")
    plan.cache_clear()  # it knows a kernel that is not in the registry any more
