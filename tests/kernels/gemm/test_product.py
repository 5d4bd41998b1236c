"""A product with a custom epilogue, against NumPy."""

import numpy as np
import pytest
from samples import quantized

import dmlcpu
from dmlcpu.common.forms import Form
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm import epilogue, table
from dmlcpu.kernels.gemm.epilogue import Epilogue
from dmlcpu.kernels.gemm.table import FEW_ROWS, TARGETS, UNPACKED, VECTORS, Output
from dmlcpu.products.arguments import Call
from dmlcpu.products.plan import plan
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.threads import budget, use_budget


@device
def prepare_columns(first, count, origin, terms, work, columns):
    for j in range(min(count, work.N - first)):
        columns.scale[j] = terms.b_scale[origin.b_scale + (first + j) * work.b_scale.step]


@device
def prepare_rows(first, last, height, origin, terms, work, rows):
    for i in range(height):
        rows.lowest[i] = terms.a_scale[origin.a_scale + min(first + i, last - 1) * work.a_scale.step]


@device
def scaled(acc, tile, out, work, space):
    for row in range(tile.rows):
        for column in range(tile.columns):
            scale = space.rows.lowest[row] * space.columns.scale[tile.column + column]
            place = tile.place + row * work.y.row + column * work.y.column
            out.y[place] = np.float32(acc[row, column]) * scale


CUSTOM = Epilogue(epilogue.product, prepare_columns, prepare_rows, scaled, epilogue.prefetch_y)
SCALED = Output("scaled_matmul", "_scaled", "gemm.epilogue.SCALED")


@pytest.mark.parametrize("products", [1, 63, 64, 65, 131, 1_000])
def test_runs_of_tasks_cover_all_products(products):
    rng = np.random.default_rng(products)
    a, b = quantized(rng, (products, 17, 6), np.dtype(np.uint8)), quantized(rng, (products, 6, 3), np.dtype(np.int8))
    with use_budget(2, grain=1):
        y = dmlcpu.matmul_integer(a, None, b, None)
    np.testing.assert_array_equal(y, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize(
    ("nest", "name"),
    [(VECTORS, "dot_u8s8_scaled_4x8x4_generic"), (FEW_ROWS, "skinny_u8s8_scaled_16x16_generic")],
    ids=["vectors", "few rows"],
)
def test_custom_epilogue(monkeypatch, nest, name):
    """It gives float32, with a scale for each row and each column."""
    monkeypatch.setattr(epilogue, "SCALED", CUSTOM, raising=False)
    row, is_skinny = TARGETS[0].product(nest, SCALED), nest == FEW_ROWS
    assert row.kernel.name == row.name == name
    monkeypatch.setattr(table, "KERNELS", (*table.KERNELS, row))
    monkeypatch.setitem(registry.FOLDERS, "scaled_matmul", "gemm")
    rng = np.random.default_rng(5)
    for rows, depth, columns in ((13, 300, 170),) if is_skinny else ((13, 300, 70), (30, 33_100, 65)):
        a, b = quantized(rng, (rows, depth), np.dtype(np.uint8)), quantized(rng, (depth, columns), np.dtype(np.int8))
        scales = [rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((rows, 1), (1, columns))]
        y = np.empty((rows, columns), np.float32)
        zero = np.zeros(1, np.uint8)
        numbers = (scales[0].reshape(-1), zero, scales[1].reshape(-1), zero, zero, zero)
        shapes = ((rows, 1), None, (1, columns), None, None, None)
        forms = Form(a.shape, a.dtype), Form(b.shape, b.dtype), UNPACKED, False, shapes, None
        call = Call("scaled_matmul", *forms, y.dtype, y.shape, y.shape)
        with use_budget(2, grain=1, kernel=name):
            plan(call, None, budget()).run(a, b, numbers, None, y)
        exact = a.astype(np.int64) @ b.astype(np.int64)
        np.testing.assert_array_equal(y, exact.astype(np.float32) * (scales[0] * scales[1]), err_msg=f"{rows} rows")
    plan.cache_clear()  # it has a kernel that is no longer in the table
