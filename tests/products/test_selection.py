"""What `select` does beyond matmul_top_k: masks, and sums that are shifted."""

import numpy as np
import pytest
from samples import assert_same_bits, quantized

import dmlcpu
from dmlcpu import reference
from dmlcpu.products.selection import Operands, Order, block_of, capacity_of, fill_value, select
from dmlcpu.runtime.threads import use_budget


def found(operands, order):
    """Return what is selected."""
    rows = (*np.broadcast_shapes(operands.a.shape[:-2], operands.b.shape[:-2]), operands.a.shape[-2], order.k)
    values, indices = np.zeros(rows, np.float32 if order.is_scaled else np.int32), np.zeros(rows, np.int64)
    select(operands, order, values, indices)
    return values, indices


def expected(operands, order):
    """Return the same in NumPy: the scores of allowed columns are ranked."""
    a, b, a_scale, _, b_scale, _, bias, mask = operands
    if order.is_scaled:
        scores = reference.matmul_integer_to_float(a, a_scale, None, b, b_scale, None, bias)
    else:
        sums = reference.matmul_integer(a, None, b, None, out_dtype=np.int64) << order.shift
        scores = (sums + (0 if bias is None else bias)).astype(np.int32)
    columns = np.arange(scores.shape[-1]) if mask is None else np.flatnonzero(mask)
    count = min(order.k, columns.size)
    best = reference.top_k(
        scores[..., columns], count, largest=order.is_largest, nan="last" if order.nan_last else "greatest"
    )
    values = np.full((*scores.shape[:-1], order.k), fill_value(order), scores.dtype)
    indices = np.full(values.shape, -1)
    values[..., :count], indices[..., :count] = best.values, columns[best.indices] if count else -1
    return values, indices


def random_selection(rng):
    """Return operands with a mask and a bias, and an order."""
    rows, columns, depth = rng.choice([1, 3, 17, 40]), rng.choice([1, 32, 65, 500]), rng.choice([0, 1, 64, 100])
    a = quantized(rng, (rows, depth), np.dtype(rng.choice(["int8", "uint8"])))
    vectors = quantized(rng, (columns, depth), np.dtype(rng.choice(["int8", "uint8"])))
    is_scaled, shape = bool(rng.integers(2)), (1, columns)
    scales = [rng.normal(size=each).astype(np.float32) if is_scaled else None for each in ((rows, 1), shape)]
    bias = rng.normal(size=shape).astype(np.float32) if is_scaled else rng.integers(-(2**31), 2**31, shape, np.int32)
    mask = (rng.random(columns) < rng.choice([0, 0.02, 0.5])).astype(np.uint8)
    has_mask = bool(rng.integers(4))
    order = Order(
        int(rng.integers(1, columns + 1)),
        is_scaled,
        is_largest=bool(rng.integers(2)),
        shift=0 if is_scaled else int(rng.integers(2)),
        has_mask=has_mask,
    )
    b = vectors.T if rng.random() < 0.5 else np.ascontiguousarray(vectors.T)
    return Operands(a, b, scales[0], None, scales[1], None, bias, mask if has_mask else None), order


@pytest.mark.parametrize("seed", range(60))
def test_random_selections(seed):
    operands, order = random_selection(np.random.default_rng(seed))
    right = expected(operands, order)
    with use_budget(1 + seed % 4, grain=1):
        assert_same_bits(found(operands, order), right, f"{order}")
        assert_same_bits(found(operands._replace(b=dmlcpu.pack_b(operands.b)), order), right, f"{order}, packed")


@pytest.mark.parametrize(
    ("order", "fill"),
    [
        (Order(3, False, has_mask=True), -(2**31)),
        (Order(3, False, is_largest=False, has_mask=True), 2**31 - 1),
        (Order(3, True, has_mask=True), -np.inf),
        (Order(3, True, is_largest=False, has_mask=True), np.inf),
    ],
)
def test_what_stands_behind_the_last_column_allowed(order, fill):
    one = np.ones((1, 1), np.float32) if order.is_scaled else None
    a, b = np.ones((1, 2), np.int8), np.arange(10, dtype=np.int8).reshape(2, 5)
    mask = np.array([0, 0, 1, 0, 0], np.uint8)
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
