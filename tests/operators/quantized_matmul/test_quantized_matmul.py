import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import config
from operators.quantized_matmul.calls import random_call
from samples import assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.products.plan import TileTimes, parts_of, plan, prepare
from dmlcpu.runtime.threads import use_budget

A = np.array([[10, 20], [30, 40]], np.uint8)
B = np.array([[1, -1], [2, -2]], np.int8)


def product(a=A, a_scale=1.0, a_zero=None, b=B, b_scale=1.0, b_zero=None, y_scale=1.0, y_zero=None, **options):
    return dmlcpu.quantized_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, **options)


def test_the_formulas_by_hand():
    # acc = (10 - 3) * (1 - 1) + (20 - 3) * (2 - 1) = 17; 17 * 0.5 * 0.25 / 0.75 = 2.8333; 3 + 100
    y = product(A[:1], 0.5, 3, B[:, :1], 0.25, 1, 0.75, 100)
    assert y.tolist() == [[103]]


def test_ties_round_to_even_before_an_odd_zero_point_is_added():
    a = np.array([[1], [3], [5]], np.uint8)
    one = np.ones((1, 1), np.int8)
    assert product(a, 0.5, None, one, 1.0, None, 1.0, np.uint8(1)).tolist() == [[1], [3], [3]]


def test_the_order_of_the_float32_operations():
    # 1 * (1.1 * 1.3) / 2.86 in float32, in this order, is exactly 0.5; in float64 it is less.
    scales = np.float32(1.1), np.float32(1.3), np.float32(2.86)
    expected = np.rint(np.float32(49) * (scales[0] * scales[1] / scales[2]))
    y = product(np.array([[7]], np.uint8), scales[0], None, np.array([[7]], np.int8), scales[1], None, scales[2])
    assert y.tolist() == [[int(expected)]]


def test_results_are_clipped_to_the_output_type():
    a = np.array([[255], [0]], np.uint8)
    b = np.array([[127, -128]], np.int8)
    assert product(a, 1, None, b, 1, None, 1, np.int8(5)).tolist() == [[127, -128], [5, 5]]
    assert product(a, 1, None, b, 1, None, 1, np.uint8(5)).tolist() == [[255, 0], [5, 5]]


def test_sums_beyond_32_bits_are_exact():
    a = np.full((2, 100_000), 255, np.uint8)
    b = np.full((100_000, 3), 255, np.uint8)
    y = product(a, 1.0, None, b, 1.0, None, 6502500000 / 200)
    assert y.tolist() == [[200] * 3] * 2


@pytest.mark.parametrize("K", [33_025, 33_026])  # the longest sum that always fits 32 bits, and one more
def test_the_largest_sums_on_both_sides_of_32_bits(K):
    a, b = np.full((2, K), 255, np.uint8), np.full((K, 3), 127, np.int8)
    for packed in b, dmlcpu.pack_b(b):
        found = dmlcpu.quantized_matmul(a, 1.0, 0, packed, 1.0, -128, 2.0**24, None)
        assert found.tolist() == [[round(K * 255 * 255 / 2**24)] * 3] * 2


@pytest.mark.parametrize("column", [0, 1, 69])
def test_one_zero_point_among_columns_without(column):
    rng = np.random.default_rng(column)
    a, b = rng.integers(0, 256, (20, 30), np.uint8), rng.integers(-128, 128, (30, 70), np.int8)
    b_zero = np.zeros(70, np.int8)
    b_zero[column] = 99
    arguments = (a, 0.1, 7, b, 0.2, b_zero, 4.0, 100)
    assert_same_bits((dmlcpu.quantized_matmul(*arguments),), (reference.quantized_matmul(*arguments),))


def test_few_rows_and_more_columns_than_are_prepared_together():
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, 256, (1, 70), np.uint8), rng.integers(-128, 128, (70, 3_000), np.int8)
    arguments = (a, 0.1, 7, b, rng.uniform(0.1, 1, 3_000), rng.integers(-128, 128, 3_000, np.int8), 40.0, 100)
    for threads in (1, 2):
        with use_budget(threads, grain=10**9 if threads == 1 else 1):
            assert_same_bits((dmlcpu.quantized_matmul(*arguments),), (reference.quantized_matmul(*arguments),))


def test_zero_stays_zero_where_the_multiplier_overflows():
    y = product(np.array([[0], [1]], np.uint8), 3e38, None, np.ones((1, 1), np.int8), 3e38, None, 1.0, np.uint8(9))
    assert y.tolist() == [[9], [255]]


def test_parameters_of_no_rows_or_columns():
    none = np.zeros((0, 2), np.uint8)
    assert product(none, np.ones(0), np.zeros(0, np.uint8), y_scale=np.ones(0)).shape == (0, 2)
    assert product(A, b=np.zeros((2, 0), np.int8), b_scale=np.ones(0)).shape == (2, 0)


@pytest.mark.parametrize("is_off", [False, True])
def test_bad_scales_of_an_empty_product_are_refused(is_off, monkeypatch):
    monkeypatch.setattr(config, "DISABLE_JIT", is_off)
    with pytest.raises(dmlcpu.DmlError, match=r"^quantized_matmul: b_scale is 0.0; allowed: finite"):
        product(np.zeros((0, 2), np.uint8), b_scale=np.zeros(1, np.float32))


def test_scales_are_refused_without_a_warning_of_numpys():
    with np.errstate(all="raise"):
        assert product(a_scale=1e-42).shape == (2, 2)
        with pytest.raises(dmlcpu.DmlError, match="a_scale is nan"):
            product(a_scale=np.array(0x7FF0000000000001).view(np.float64))


def test_a_zero_point_of_another_library():
    class Tensor:
        dtype = "torch.int8"

        def __array__(self, dtype=None, copy=None):
            return np.array(-3, np.int8)

    assert product(y_zero=Tensor()).dtype == np.int8


def test_parameters_in_every_shape_allowed():
    a = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    b = np.arange(8, dtype=np.int8).reshape(1, 4, 2)
    rows = np.array([0.5, 1, 2], np.float32)
    expected = product(a, rows, [1, 2, 3], b, [0.5, 2], [1, 0], rows * 100, [7, 8, 9])
    again = product(
        a, rows[:, None], np.array([[1], [2], [3]]), b, [[0.5, 2]], [[[1, 0]]], np.tile(rows[:, None] * 100, (2, 1, 1)),
        np.array([7, 8, 9], np.uint8)[:, None],
    )  # fmt: skip
    assert again.tolist() == expected.tolist()
    mine = reference.quantized_matmul(a, rows, [1, 2, 3], b, [0.5, 2], [1, 0], rows * 100, [7, 8, 9])
    assert expected.tolist() == mine.tolist()


def test_the_type_of_the_product():
    assert product().dtype == np.uint8
    assert product(y_zero=3).dtype == np.uint8
    assert product(y_zero=np.int8(3)).dtype == np.int8
    assert product(out_dtype="int8").dtype == np.int8
    assert product(y_zero=3, out_dtype=np.int8).dtype == np.int8


def test_packed_weights_are_a_copy_and_survive_pickling():
    b = B.copy()
    packed = dmlcpu.pack_b(b.T.copy().T)
    b[...] = 0
    for weights in (packed, pickle.loads(pickle.dumps(packed))):
        assert product(b=weights).tolist() == product(b=B).tolist()
    assert packed.shape == (2, 2)
    assert packed.ndim == 2
    assert packed.dtype == np.int8
    with pytest.raises(AttributeError):
        packed.shape = (1, 4)


def test_pack_b_refuses_vectors():
    with pytest.raises(dmlcpu.BindingError, match=r"^pack_b: b.ndim is 1; allowed: at least 2$"):
        dmlcpu.pack_b(B[0])


POSITIVE = "finite float32 numbers greater than 0"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"a_scale": [1.0, 0.0]}, dmlcpu.DmlError, f"a_scale[1] is 0.0; allowed: {POSITIVE}"),
        ({"b_scale": -1}, dmlcpu.DmlError, f"b_scale is -1; allowed: {POSITIVE}"),
        ({"y_scale": np.nan}, dmlcpu.DmlError, f"y_scale is nan; allowed: {POSITIVE}"),
        ({"y_scale": 1e300}, dmlcpu.DmlError, f"y_scale is 1e+300; allowed: {POSITIVE}"),
        (
            {"a_scale": [1.0, 2.0, 3.0]},
            dmlcpu.BindingError,
            "a_scale.shape is (3,); allowed: one number, (2,), or a shape that broadcasts to (2, 1)",
        ),
        ({"b_scale": ["x"]}, dmlcpu.UnsupportedError, "b_scale.dtype is <U1; allowed: floating types"),
        (
            {"y_zero": np.int8(3), "out_dtype": np.uint8},
            dmlcpu.UnsupportedError,
            "y_zero_point.dtype is int8; allowed: uint8 (its tensor's type)",
        ),
        ({"a_zero": -1}, dmlcpu.DmlError, "a_zero_point is -1; allowed: 0 to 255 (uint8)"),
        ({"a_zero": 256}, dmlcpu.DmlError, "a_zero_point is 256; allowed: 0 to 255 (uint8)"),
        ({"b_zero": -129}, dmlcpu.DmlError, "b_zero_point is -129; allowed: -128 to 127 (int8)"),
        ({"b_zero": 128}, dmlcpu.DmlError, "b_zero_point is 128; allowed: -128 to 127 (int8)"),
        ({"out_dtype": "spam"}, TypeError, "out_dtype is 'spam'; allowed: int8, uint8"),
        ({"out_dtype": np.int32}, dmlcpu.UnsupportedError, "out_dtype is int32; allowed: int8, uint8"),
        ({"out": np.zeros((2, 2), np.int8)}, dmlcpu.BindingError, "out.dtype is int8; allowed: uint8"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error) as caught:
        product(**options)
    assert str(caught.value) == f"quantized_matmul: {message}"


@pytest.mark.parametrize("name", ["a_zero_point", "y_zero_point", "a_scale"])
def test_parameters_may_lie_in_the_output(name):
    """They are copied, so that writing the result does not change them."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 256, (100, 40), np.uint8), rng.integers(-128, 128, (40, 80)).astype(np.int8)
    values = rng.uniform(0.1, 1, 100).astype(np.float32) if name == "a_scale" else rng.integers(0, 256, 100, np.uint8)
    given = {"a_scale": 1.0, "a_zero_point": 3, "y_zero_point": 5, name: values}

    def multiply(given, out=None):
        first, last = (given["a_scale"], given["a_zero_point"]), (700.0, given["y_zero_point"])
        return dmlcpu.quantized_matmul(a, *first, b, 1.0, None, *last, out=out)

    expected = multiply(given)
    out = np.empty((100, 80), np.uint8)
    inside = out.reshape(-1)[: values.nbytes].view(values.dtype)
    inside[...] = values
    multiply({**given, name: inside}, out)
    assert np.array_equal(out, expected)


def test_a_bad_scale_leaves_the_output_alone():
    out = np.full((2, 2), 77, np.uint8)
    with pytest.raises(dmlcpu.DmlError):
        product(b_scale=[1.0, np.inf], out=out)
    assert (out == 77).all()


@given(st.integers(0, 2**32))
def test_hypothesis(seed):
    call = random_call(np.random.default_rng(seed))
    assert_same_bits(call.run(), call.expected())


@given(st.integers(-128, 127), st.integers(-128, 127), st.floats(2**-20, 2**20, width=32))
def test_single_products(zero, factor, scale):
    a, b = np.array([[-128, 127]], np.int8), np.array([[factor], [1]], np.int8)
    arguments = (a, np.float32(scale), np.int8(zero), b, np.float32(0.37), None, np.float32(1.7), np.int8(zero))
    assert_same_bits((dmlcpu.quantized_matmul(*arguments),), (reference.quantized_matmul(*arguments),))


@pytest.mark.parametrize(
    ("rows", "packs", "reason"),
    [
        (1, False, r"skinny_\w+ \(few rows, B as it lies in memory: the highest instruction set that supports it\)"),
        (1, True, r"dot_\w+ \(B packed as s8_k4_n32: the highest instruction set that supports it\)"),
        (99, False, r"dot_\w+ \(B as it lies in memory: the highest instruction set that supports it\)"),
    ],
)
def test_a_plan_says_why_it_took_the_kernel(caplog, rows, packs, reason):
    plan.cache_clear()
    prepare.cache_clear()
    b = np.ones((3, 64), np.int8)
    with caplog.at_level("DEBUG", "dmlcpu"), use_budget(2):
        product(np.ones((rows, 3), np.uint8), b=dmlcpu.pack_b(b) if packs else b)
    shapes = rf"\({rows}, 3\) by \(3, 64\)"
    assert re.fullmatch(rf"quantized_matmul: {shapes}: {reason}, \d parts", caplog.messages[-1])


@pytest.fixture
def small_blocks(monkeypatch):
    """A machine whose caches hold next to nothing."""
    module = sys.modules["dmlcpu.products.plan"]
    plan.cache_clear()
    prepare.cache_clear()
    monkeypatch.setattr(module, "cache_of_thread", lambda threads: 1)
    monkeypatch.setattr("dmlcpu.kernels.gemm.cut.KEPT_LHS", 0)
    yield
    plan.cache_clear()
    prepare.cache_clear()


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 7, 12, 21, 40])
def test_blocks_do_not_change_the_result(small_blocks, packs, rows):
    rng = np.random.default_rng(rows)
    a, b = rng.integers(0, 256, (rows, 1100), np.uint8), rng.integers(-128, 128, (130, 1100), np.int8).T
    arguments = (a, 0.01, 7, b, rng.uniform(0.5, 1, 130), rng.integers(-128, 128, 130, np.int8), 1000.0, 100)
    expected = reference.quantized_matmul(*arguments)
    assert len(np.unique(expected)) > 30
    for threads in (1, 2, 5):
        with use_budget(threads, grain=1):
            given = (*arguments[:3], dmlcpu.pack_b(b), *arguments[4:]) if packs else arguments
            assert_same_bits((dmlcpu.quantized_matmul(*given),), (expected,))


@given(st.integers(1, 9), st.integers(1, 100), st.integers(1, 100), st.integers(1, 128), st.booleans())
def test_cut_keeps_threads_busy(batches, tiles, panels, threads, packs):
    times = TileTimes(product=1.0, panel=4.0 if packs else 0.5, tile=2.0)
    rows, columns = parts_of(batches, tiles, panels, threads, times)
    assert 1 <= rows <= tiles
    assert 1 <= columns <= panels
    share = -(-batches * rows * columns // threads) * -(-tiles // rows) * -(-panels // columns)
    assert share <= batches * tiles * panels  # never slower than one thread
    if batches * min(tiles, 64) * min(panels, 64) >= 8 * threads:
        assert batches * rows * columns >= threads / 2


def test_no_task_has_one_panel_while_another_has_two():
    assert parts_of(1, 2, 128, 46, TileTimes(product=5825, panel=2731, tile=4096)) == (2, 128)  # not (2, 92)
