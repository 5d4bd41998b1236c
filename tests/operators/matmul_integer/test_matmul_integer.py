import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.matmul_integer.calls import random_call
from samples import assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.products.plan import plan, prepare
from dmlcpu.runtime.threads import use_budget

A = np.array([[10, 20], [30, 40]], np.uint8)
B = np.array([[1, -1], [2, -2]], np.int8)


def product(a=A, a_zero=None, b=B, b_zero=None, **options):
    return dmlcpu.matmul_integer(a, a_zero, b, b_zero, **options)


def test_by_hand():
    assert product().tolist() == [[50, -50], [110, -110]]
    assert product(a_zero=[10, 30], b_zero=[1, -1]).tolist() == [[10, -10], [10, -10]]
    assert product().dtype == np.int32


@pytest.mark.parametrize(
    ("K", "wrapped"), [(33_025, 2_147_450_625), (33_026, -2_147_451_646), (40_000, -1_693_967_296)]
)
@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("columns", [1, 64])
def test_only_int32_wraps(K, wrapped, packs, columns):
    a, b = np.full((2, K), 255, np.uint8), np.full((K, columns), 255, np.uint8)
    b = dmlcpu.pack_b(b) if packs else b
    assert (product(a, b=b) == wrapped).all()
    exact = product(a, b=b, out_dtype=np.int64)
    assert exact.dtype == np.int64
    assert (exact == 255 * 255 * K).all()


def test_sums_far_beyond_32_bits_with_zero_points():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 128, (3, 200_000), np.uint8), rng.integers(64, 128, (200_000, 5), np.int8)
    arguments = (a, [200, 255, 0], b, [-128, -1, 0, 1, 127])
    for dtype in (np.int32, np.int64):
        found = dmlcpu.matmul_integer(*arguments, out_dtype=dtype)
        assert_same_bits((found,), (reference.matmul_integer(*arguments, out_dtype=dtype),))


def test_zero_points_in_every_shape_allowed():
    a = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    b = np.arange(8, dtype=np.int8).reshape(1, 4, 2)
    expected = product(a, [1, 2, 3], b, [1, 0]).tolist()
    assert expected == reference.matmul_integer(a, [1, 2, 3], b, [1, 0]).tolist()
    of_a = np.array([1, 2, 3], np.uint8)[:, None]
    assert product(a, of_a, b, [[1, 0]]).tolist() == expected
    assert product(a, np.tile(of_a, (2, 1, 1)), b, [[[1, 0]]]).tolist() == expected


def test_zero_points_may_lie_in_the_output():
    out = np.zeros((2, 2), np.int32)
    inside = out.reshape(-1).view(np.uint8)[:2]
    inside[...] = [10, 30]
    assert product(a_zero=inside, out=out).tolist() == product(a_zero=[10, 30]).tolist()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"out_dtype": "spam"}, TypeError, "out_dtype is 'spam'; allowed: int32, int64"),
        ({"out_dtype": None}, dmlcpu.UnsupportedError, "out_dtype is None; allowed: int32, int64"),
        ({"out_dtype": "f4"}, dmlcpu.UnsupportedError, "out_dtype is float32; allowed: int32, int64"),
        ({"out": np.zeros((2, 2), np.int64)}, dmlcpu.BindingError, "out.dtype is int64; allowed: int32"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error) as caught:
        product(**options)
    assert str(caught.value) == f"matmul_integer: {message}"


def test_few_rows_have_a_kernel_of_their_own(caplog):
    plan.cache_clear()
    prepare.cache_clear()
    with caplog.at_level("DEBUG", "dmlcpu"), use_budget(2):
        product(np.ones((1, 3), np.uint8), b=np.ones((3, 64), np.int8))
        product(np.ones((99, 3), np.uint8), b=np.ones((3, 64), np.int8))
    assert "(1, 3) by (3, 64): skinny_u8s8_s32" in caplog.messages[-2]
    assert "(99, 3) by (3, 64): dot_u8s8_s32" in caplog.messages[-1]


@given(st.integers(0, 2**32))
def test_hypothesis(seed):
    call = random_call(np.random.default_rng(seed))
    assert_same_bits(call.run(), call.expected())
