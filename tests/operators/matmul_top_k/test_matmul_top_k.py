import functools
import re
import tracemalloc

import numpy as np
import pytest
from operators.matmul_top_k.calls import QUERY, VECTORS, random_call, select
from samples import KERNEL_LAYOUTS, assert_same_bits, strided
from sources import assert_refused_alike, in_blocks

import dmlcpu
from dmlcpu import BindingError, DmlError, UnsupportedError, reference
from dmlcpu.kernels import registry
from dmlcpu.kernels.selection.candidates import MOST_COLUMNS
from dmlcpu.operators.matmul_top_k.function import prepare
from dmlcpu.runtime.threads import use_budget
from dmlcpu.selection.plan import plan


def two_steps(a, b, k, *, mode="largest", nan="greatest", **parameters):
    """Return what a product and top_k give."""
    names = ("a_scale", "a_zero_point", "b_scale", "b_zero_point")
    a_scale, a_zero, b_scale, b_zero = (parameters.pop(name, None) for name in names)
    if a_scale is None and b_scale is None:
        bias = parameters.pop("bias", None)
        sums = dmlcpu.matmul_integer(a, a_zero, b, b_zero, out_dtype=np.int64)
        scores = (sums + (0 if bias is None else bias)).astype(np.int32)
    else:
        a_scale, b_scale = (1.0 if scale is None else scale for scale in (a_scale, b_scale))
        scores = dmlcpu.matmul_integer_to_float(a, a_scale, a_zero, b, b_scale, b_zero, **parameters)
    return dmlcpu.top_k(scores, k, mode=mode, nan=nan)


def test_by_hand():
    values, indices = select()
    assert (values.tolist(), indices.tolist()) == ([[10, 10]], [[1, 3]])
    assert (values.dtype, indices.dtype) == (np.int32, np.int64)
    assert select(mode="smallest").indices.tolist() == [[0, 2]]
    assert select(a_zero_point=2, b_zero_point=1).values.tolist() == [[1, -1]]
    assert select(bias=[9, 0, 0, 1]).values.tolist() == [[11, 11]]
    values, indices = select(a_scale=0.5, bias=[9, 0, 0, 1.25])
    assert (values.tolist(), indices.tolist()) == ([[10, 6.25]], [[0, 3]])
    assert values.dtype == np.float32


def test_a_scale_that_is_not_given_is_1():
    for name in ("a_scale", "b_scale"):
        assert select(**{name: 0.5}).values.tolist() == [[5, 5]]


def test_one_row_and_batches_have_the_shapes_of_matmul():
    assert select(QUERY[0]).indices.tolist() == [1, 3]
    b = np.stack([VECTORS.T, -VECTORS.T])
    assert select(b=b).indices.tolist() == [[[1, 3]], [[0, 2]]]
    assert select(QUERY[0], b).indices.tolist() == [[1, 3], [0, 2]]
    assert select(QUERY[0], dmlcpu.pack_b(b), bias=[[[0, 0, 0, 1]]]).indices.tolist() == [[3, 1], [0, 2]]


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_empty_matrices(shape):
    rows, depth, columns = shape
    k = min(columns, 2)
    values, indices = select(np.ones((rows, depth), np.int8), np.ones((depth, columns), np.int8), k)
    assert values.shape == indices.shape == (rows, k)
    assert indices.tolist() == [[0, 1][:k]] * rows
    assert (values == depth).all()


def test_none_are_selected():
    assert select(k=0).values.shape == (1, 0)


@pytest.mark.parametrize("seed", range(60))
def test_random_calls_have_the_bits_of_two_steps(seed):
    call = random_call(np.random.default_rng(seed))
    with use_budget(1 + seed % 4, grain=1):
        assert_same_bits(call.run(), two_steps(*call.args, **call.kwargs), str(seed))


@functools.lru_cache(maxsize=1)  # the kernels follow one another
def selections(k):
    """Return matrices, vectors, and two pairs of options and what is selected, for each of some products."""
    rng, cases = np.random.default_rng(k), []
    for rows, depth, columns in ((1, 65, 257), (4, 64, 1500), (16, 63, 320), (33, 300, 600)):
        vectors = rng.integers(-128, 128, (columns, depth)).astype(np.int8)
        vectors[rng.integers(0, columns, columns // 2)] = vectors[0]  # many have equal scores
        a = rng.integers(0, 256, (rows, depth)).astype(np.uint8)
        options = {"a_zero_point": 3}, {"a_scale": -0.5, "b_zero_point": 9, "mode": "smallest"}
        cases.append((a, vectors, [(each, reference.matmul_top_k(a, vectors.T, k, **each)) for each in options]))
    return cases


@pytest.mark.parametrize("row", registry.available("matmul_top_k", "dot"), ids=lambda row: row.name)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 16, 17, 64, 65, 200])
def test_kernels(row, threads, k):
    """Rows on both sides of the heights of tiles, columns of panels, and lists that are kept in order or cut back."""
    for a, vectors, expected in selections(k):
        rows, b = len(a), vectors.T
        layout = next(each for each in row.rhs_layouts if each != "rows") if len(row.rhs_layouts) > 1 else ""
        b = dmlcpu.pack_b(b) if layout and rows > 1 else np.ascontiguousarray(b) if row.rhs_layouts == ("rows",) else b
        if row.is_skinny and rows > row.mr:
            continue
        for options, right in expected:
            with use_budget(threads, grain=1, kernel=row.name):
                found = dmlcpu.matmul_top_k(a, b, k, **options)
            assert_same_bits(found, right, f"{rows}, {options}")


@pytest.mark.parametrize("batch", [(), (1,), (5, 2)])  # of b
@pytest.mark.parametrize("rows", [2, 7, 40])
def test_many_rows_are_selected_in_blocks(monkeypatch, rows, batch):
    """Blocks of several matrices, of one, and of a part of one."""
    monkeypatch.setattr("dmlcpu.selection.plan.MOST_BYTES", 0)
    monkeypatch.setattr("dmlcpu.selection.plan.LEAST_ROWS", 7)
    for cached in (plan, prepare):
        cached.cache_clear()
    rng = np.random.default_rng(rows)
    a, b = rng.integers(-9, 9, (5, 2, rows, 5)).astype(np.int8), rng.integers(-9, 9, (*batch, 5, 50)).astype(np.int8)
    options = {
        "a_scale": rng.random((2, rows, 1), np.float32),
        "a_zero_point": np.arange(rows),
        "b_scale": rng.random((5, 1, 1, 50), np.float32) if len(batch) == 2 else 1.0,
        "bias": rng.random(50),
    }
    expected = reference.matmul_top_k(a, b, 3, **options)
    for right in (b, dmlcpu.pack_b(b)):
        assert_same_bits(select(a, right, 3, **options), expected)


@pytest.mark.parametrize(("threads", "shape", "k"), [(2, (100, 64), 300), (16, (6, 128), 1000)])
def test_batches_and_threads_take_bounded_memory(threads, shape, k):
    """The candidates of all rows at once would take 65 and 200 MiB."""
    a, b = np.ones((*shape, 2), np.int8), np.arange(4200, dtype=np.int8).reshape(2, 2100)
    out = np.empty((*shape, k), np.int32), np.empty((*shape, k), np.int64)
    with use_budget(threads, grain=1):
        select(a, b, k, out=out)  # compiles
        tracemalloc.start()
        try:
            select(a, b, k, out=out)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 32 << 20


def test_sums_wrap_without_scales_and_do_not_with_them():
    a, b = np.full((1, 40_000), 255, np.uint8), np.full((40_000, 3), 255, np.uint8)
    b[0, 1] = 254
    assert select(a, b, 3).values.tolist() == [[-1693967296, -1693967296, -1693967551]]
    assert select(a, b, 3, a_scale=1).indices.tolist() == [[0, 2, 1]]
    assert select(a, b, 1, a_scale=1).values.tolist() == [[2600999936]]
    assert select(bias=2**31 - 1).values.tolist() == [[9 - 2**31, 9 - 2**31]]


@pytest.mark.parametrize("mode", ["largest", "smallest"])
@pytest.mark.parametrize("nan", ["greatest", "last"])
def test_nan_infinities_and_zeros_of_either_sign(mode, nan):
    scales = np.array([np.nan, 1, -1, np.inf, -np.inf, 0, -0.0, 1e-45, -1e-45, np.nan] * 12, np.float32)
    a, b = np.array([[1], [0], [-1], [127]], np.int8), np.ones((1, scales.size), np.int8)
    for k in (1, 25, 40, scales.size):
        options = {"b_scale": scales, "mode": mode, "nan": nan}
        with np.errstate(invalid="ignore"):
            assert_same_bits(select(a, b, k, **options), reference.matmul_top_k(a, b, k, **options), f"k {k}")


@pytest.mark.parametrize("value", [-128, 0, 127])
@pytest.mark.parametrize("k", [1, 10, 50, 5000])
@pytest.mark.parametrize("packs", [False, True])
def test_equal_scores_come_by_ascending_column(value, k, packs):
    b = np.full((3, 5000), value, np.int8)
    with use_budget(3, grain=1):
        found = select(np.ones((20, 3), np.int8), dmlcpu.pack_b(b) if packs else b, k)
    assert (found.indices == np.arange(k)).all()
    assert (found.values == 3 * value).all()


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("mode", ["largest", "smallest"])
def test_scores_in_ascending_and_descending_order(order, mode):
    """All are candidates, or none but the first."""
    b = np.arange(3000).astype(np.int16)[::order]
    b = np.stack([b // 64, b % 64]).astype(np.int8)
    a = np.tile(np.array([[64, 1]], np.int8), (3, 1))
    for k in (1, 20, 100):
        assert_same_bits(select(a, b, k, mode=mode), reference.matmul_top_k(a, b, k, mode=mode))


@pytest.mark.parametrize("layout", KERNEL_LAYOUTS)
@pytest.mark.parametrize("rows", [1, 20])
def test_layouts(layout, rows):
    rng = np.random.default_rng(rows)
    a, b = rng.integers(-128, 128, (rows, 70)).astype(np.int8), rng.integers(-128, 128, (70, 90)).astype(np.int8)
    a, b = KERNEL_LAYOUTS[layout](a), KERNEL_LAYOUTS[layout](b)
    for matrix in (b, KERNEL_LAYOUTS[layout](np.ascontiguousarray(b.T)).T):
        assert_same_bits(select(a, matrix, 5), reference.matmul_top_k(a, matrix, 5))


def test_vectors_may_end_where_their_memory_ends():
    """Kernels read whole lines, and copy the columns at the end."""
    for columns, depth in ((1, 1), (32, 64), (33, 65), (64, 3), (31, 200)):
        vectors = np.arange(columns * depth, dtype=np.uint8).reshape(columns, depth)
        gaps = np.zeros((columns, depth + 7), np.uint8)
        gaps[:, :depth] = vectors
        a = np.arange(2 * depth, dtype=np.uint8).reshape(2, depth)
        for each in (vectors, gaps[:, :depth]):
            assert_same_bits(select(a, each.T, 1), reference.matmul_top_k(a, vectors.T, 1), str(vectors.shape))


def test_out_of_any_strides():
    values, indices = strided(np.zeros((1, 2), np.int32)), np.zeros((1, 4), np.int64)[:, ::-2]
    result = select(out=(values, indices))
    assert result.values is values
    assert result.indices is indices
    assert (values.tolist(), indices.tolist()) == ([[10, 10]], [[1, 3]])
    single = np.zeros(4, np.int64)[::2]
    assert select(QUERY[0], out=(np.zeros(2, np.int32), single)).indices is single
    assert single.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"a": QUERY.astype(np.int16)}, UnsupportedError, "a.dtype is int16; allowed: int8, uint8"),
        ({"b": VECTORS.T.astype(np.int32)}, UnsupportedError, "b.dtype is int32; allowed: int8, uint8"),
        ({"b": VECTORS[0]}, BindingError, "b.ndim is 1; allowed: at least 2"),
        ({"b": VECTORS}, BindingError, "b.shape is (4, 2); allowed: K = 2 rows (a.shape is (1, 2))"),
        ({"k": 5}, DmlError, "k is 5; allowed: 0 to 4 (the columns of b)"),
        ({"k": -1}, DmlError, "k is -1; allowed: 0 to 4 (the columns of b)"),
        ({"mode": "best"}, DmlError, "mode is 'best'; allowed: 'largest', 'smallest'"),
        ({"nan": "first"}, DmlError, "nan is 'first'; allowed: 'greatest', 'last'"),
        ({"a_zero_point": 128}, DmlError, "a_zero_point is 128; allowed: -128 to 127 (int8)"),
        ({"b_zero_point": [1, 2]}, BindingError, "b_zero_point.shape is (2,)"),
        ({"a_scale": [1, 2]}, BindingError, "a_scale.shape is (2,)"),
        ({"b_scale": 1j}, UnsupportedError, "b_scale.dtype is complex128"),
        ({"bias": [1, 2]}, BindingError, "bias.shape is (2,)"),
        ({"bias": 10**30}, DmlError, f"bias is {10**30}; allowed: -2147483648 to 2147483647 (int32)"),
        ({"a_zero_point": -(10**30)}, DmlError, f"a_zero_point is -{10**30}; allowed: -128 to 127 (int8)"),
        ({"a_scale": 10**400}, DmlError, "a_scale is an integer beyond float64; allowed: numbers that float64 holds"),
        ({"bias": 0.5}, UnsupportedError, "bias.dtype is float64; allowed: int32"),
        ({"bias": [0, 0, 0, 2**31]}, DmlError, "bias[3] is 2147483648; allowed: -2147483648 to 2147483647 (int32)"),
        ({"mask": [1, 0, 1, 0]}, UnsupportedError, "mask.dtype is int64; allowed: bool"),
        ({"mask": [True]}, BindingError, "mask.shape is (1,); allowed: (4,) or (1, 4)"),
        (
            {"exclude": [[0], [1]]},
            BindingError,
            "exclude is 2 lists; allowed: a list of ints for each of the 1 queries",
        ),
        ({"exclude": [[0, -1]]}, DmlError, "exclude[0][1] is -1; allowed: at least 0"),
        ({"a": QUERY[None], "mask": [True] * 4}, BindingError, "a.ndim is 3; allowed: at most 2 with mask or exclude"),
        (
            {"b": VECTORS.T[None], "exclude": [[0]]},
            BindingError,
            "b.ndim is 3; allowed: at most 2 with mask or exclude",
        ),
        ({"b": VECTORS[0], "exclude": [[0]]}, BindingError, "b.ndim is 1; allowed: at least 2"),
    ],
)
def test_refusals(change, error, message):
    arguments = {"a": QUERY, "b": VECTORS.T, "k": 2, **change}
    with pytest.raises(error, match=re.escape(message)):
        dmlcpu.matmul_top_k(**arguments)
    assert_refused_alike("matmul_top_k", arguments, error, re.escape(message))


def test_more_columns_than_an_index_of_31_bits_are_refused():
    b = np.broadcast_to(np.ones((), np.int8), (2, MOST_COLUMNS + 1))
    with pytest.raises(DmlError, match=rf"b.shape is \(2, 2147483648\); allowed: at most {MOST_COLUMNS} columns"):
        select(b=b)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.zeros((1, 2), np.int32), TypeError, "out is ndarray; allowed: a tuple (values, indices) of two arrays"),
        ((np.zeros((1, 2), np.int32),), TypeError, "out is a tuple of 1; allowed: a tuple (values, indices) of two"),
        ((np.zeros((1, 3), np.int32), np.zeros((1, 2), np.int64)), BindingError, "out[0].shape is (1, 3)"),
        ((np.zeros((1, 2), np.float32), np.zeros((1, 2), np.int64)), BindingError, "out[0].dtype is float32"),
        ((np.zeros((1, 2), np.int32), np.zeros((1, 2), np.int32)), BindingError, "out[1].dtype is int32"),
    ],
)
def test_outputs_that_do_not_fit(out, error, message):
    with pytest.raises(error, match=re.escape(message)):
        select(out=out)


def test_outputs_that_share_memory_are_refused_and_untouched():
    memory = np.arange(64, dtype=np.int8)
    before = memory.copy()
    a, b = memory[:2].reshape(1, 2), memory[:16].reshape(2, 8)
    values, indices = memory[8:16].view(np.int32).reshape(1, 2), memory[16:32].view(np.int64).reshape(1, 2)
    for out in ((values, np.zeros((1, 2), np.int64)), (values, memory[8:24].view(np.int64).reshape(1, 2))):
        with pytest.raises(BindingError, match=r"out\[0\]"):
            select(a, b, out=out)
    with pytest.raises(BindingError, match=r"out\[1\]"):
        select(a, b, out=(np.zeros((1, 2), np.int32), memory[:16].view(np.int64).reshape(1, 2)))
    assert (memory == before).all()
    assert select(a, b, out=(np.zeros((1, 2), np.int32), indices)).indices is indices


def test_a_bias_may_lie_in_the_output():
    values = np.array([[9, 0]], np.int32)
    a, b = QUERY, VECTORS.T[:, :2]
    assert select(a, b, bias=values[0], out=(values, np.zeros((1, 2), np.int64))).values.tolist() == [[11, 10]]


def test_columns_in_blocks_are_merged(small_blocks):
    """Blocks of less than k columns, and ties between blocks."""
    rng = np.random.default_rng(3)
    vectors = rng.integers(0, 2, (300, 40)).astype(np.int8)
    a = rng.integers(0, 2, (8, 40)).astype(np.int8)
    for options in ({}, {"b_scale": rng.choice([0.5, np.nan], 300).astype(np.float32), "nan": "last"}):
        arguments = {"a": a, "b": vectors.T, "k": 50, **options}
        assert_same_bits(in_blocks("matmul_top_k", arguments), reference.matmul_top_k(**arguments))
