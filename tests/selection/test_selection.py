"""What `select` does beyond matmul_top_k: masks of rows, their bias and least scores, and sums that are shifted."""

import numpy as np
import pytest
from samples import assert_same_bits, quantized

import dmlcpu
from dmlcpu import reference
from dmlcpu.runtime.threads import use_budget
from dmlcpu.selection.call import Operands, Order, fill_value
from dmlcpu.selection.plan import block_of, capacity_of, select


def found(operands, order):
    """Return what is selected."""
    rows = (*np.broadcast_shapes(operands.a.shape[:-2], operands.b.shape[:-2]), operands.a.shape[-2], order.k)
    values, indices = np.zeros(rows, np.float32 if order.is_scaled else np.int32), np.zeros(rows, np.int64)
    select(operands, order, values, indices)
    return values, indices


def bits(mask):
    """Return a mask as kernels read it."""
    return None if mask is None else np.packbits(mask, axis=1, bitorder="little")


def scores_of(operands, order):
    """Return all scores, in NumPy."""
    a, b, a_scale, _, b_scale, _, bias, _, row_bias, *_ = operands
    sums = reference.matmul_integer(a, None, b, None, out_dtype=np.int64) << order.shift
    if not order.is_scaled:
        return (sums + bias).astype(np.int32)
    sums = sums.astype(np.float32)
    return sums * (a_scale * b_scale) + bias if row_bias is None else (sums * a_scale + row_bias) * b_scale + bias


def expected(operands, order, mask):
    """Return the same in NumPy: in each row the scores of allowed columns are ranked."""
    scores = scores_of(operands, order)
    values = np.full((len(scores), order.k), fill_value(order), scores.dtype)
    indices = np.full(values.shape, -1)
    for row, own in enumerate(scores):
        allowed = np.ones(own.size, bool) if mask is None else mask[row % len(mask)].copy()
        if operands.least is not None:
            allowed &= own >= operands.least[row]
        columns = np.flatnonzero(allowed)
        best = reference.top_k(own[columns], min(order.k, columns.size), largest=order.is_largest)
        values[row, : best.values.size], indices[row, : best.values.size] = best.values, columns[best.indices]
    return values, indices


def random_selection(rng):
    """Return operands without a mask, an order, and a mask or None."""
    rows, columns, depth = rng.choice([1, 3, 17, 40]), rng.choice([1, 32, 65, 500]), rng.choice([0, 1, 64, 100])
    a = quantized(rng, (rows, depth), np.dtype(rng.choice(["int8", "uint8"])))
    vectors = quantized(rng, (columns, depth), np.dtype(rng.choice(["int8", "uint8"])))
    is_scaled, shape = bool(rng.integers(2)), (1, columns)
    scales = [rng.normal(size=each).astype(np.float32) if is_scaled else None for each in ((rows, 1), shape)]
    bias = rng.normal(size=shape).astype(np.float32) if is_scaled else rng.integers(-(2**31), 2**31, shape, np.int32)
    lines = rng.choice([0, 1, rows])
    mask = rng.random((lines, columns)) < rng.choice([0, 0.02, 0.5]) if lines else None
    is_affine = is_scaled and bool(rng.integers(2))
    of_rows = [rng.normal(size=(rows, 1)).astype(np.float32) if is_affine else None for _ in range(2)]
    order = Order(
        int(rng.integers(1, columns + 1)),
        is_scaled,
        is_largest=is_affine or bool(rng.integers(2)),
        shift=0 if is_scaled else int(rng.integers(2)),
    )
    b = vectors.T if rng.random() < 0.5 else np.ascontiguousarray(vectors.T)
    return Operands(a, b, scales[0], None, scales[1], None, bias, bits(mask), *of_rows), order, mask


@pytest.mark.parametrize("seed", range(60))
def test_random_selections(seed):
    operands, order, mask = random_selection(np.random.default_rng(seed))
    right = expected(operands, order, mask)
    with use_budget(1 + seed % 4, grain=1):
        assert_same_bits(found(operands, order), right, f"{order}")
        assert_same_bits(found(operands._replace(b=dmlcpu.pack_b(operands.b)), order), right, f"{order}, packed")


@pytest.mark.parametrize(
    ("order", "fill"),
    [
        (Order(3, False), -(2**31)),
        (Order(3, False, is_largest=False), 2**31 - 1),
        (Order(3, True), -np.inf),
        (Order(3, True, is_largest=False), np.inf),
    ],
)
def test_what_stands_behind_the_last_column_allowed(order, fill):
    one = np.ones((1, 1), np.float32) if order.is_scaled else None
    a, b = np.ones((1, 2), np.int8), np.arange(10, dtype=np.int8).reshape(2, 5)
    mask = bits(np.array([[False, False, True, False, False]]))
    values, indices = found(Operands(a, b, one, None, one, None, None, mask), order)
    assert values.tolist() == [[9, fill, fill]]
    assert indices.tolist() == [[2, -1, -1]]


def test_squared_distances_are_exact_in_integers():
    rng = np.random.default_rng(5)
    a, vectors = quantized(rng, (20, 30), np.dtype(np.int8)), quantized(rng, (400, 30), np.dtype(np.int8))
    norms = (vectors.astype(np.int32) ** 2).sum(axis=1, dtype=np.int32)[None]
    values, indices = found(Operands(a, vectors.T, None, None, None, None, -norms), Order(7, False, shift=1))
    distances = ((a[:, None].astype(np.int64) - vectors) ** 2).sum(axis=-1)
    right = reference.top_k(distances, 7, mode="smallest")
    assert (indices == right.indices).all()
    assert ((a.astype(np.int64) ** 2).sum(axis=-1, keepdims=True) - values == right.values).all()


def test_candidates_take_a_bounded_workspace():
    [rows] = block_of((10**6,), 10, 100_000, 2)
    assert 16 << 19 < rows * 2 * 8 * (8 + capacity_of(10, 100_000)) <= 16 << 20
    assert block_of((9, 10**6), 10, 100_000, 2) == (1, rows)
    assert block_of((9, 1000, 30), 1000, 100_000, 2) == (1, 17, 30)
    assert block_of((10**6,), 1000, 100_000, 64) == (64,)
    assert capacity_of(10, 100_000) == 16
    assert capacity_of(1000, 100_000) == 2032
    assert capacity_of(1000, 1001) == 1008
