import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.matmul_integer.calls import random_call
from samples import assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.products.plan import plan
from dmlcpu.runtime.threads import limits

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


@pytest.mark.parametrize("a_shape", [(0, 4), (3, 0), (2, 0, 4), (0, 3, 4)])
def test_empty_operands(a_shape):
    y = product(np.zeros(a_shape, np.uint8), 3, np.zeros((a_shape[-1], 2), np.int8), 5)
    assert y.shape == (*a_shape[:-1], 2)
    assert (y == 0).all()
    assert product(b=np.zeros((2, 0), np.int8)).shape == (2, 0)


def test_vectors_drop_their_dimension():
    assert product(A[0]).tolist() == [50, -50]
    assert product(b=B[:, 0]).tolist() == [50, 110]
    y = product(A[0], b=B[:, 0])
    assert y.shape == ()
    assert y == 50


def test_zero_points_in_every_shape_allowed():
    a = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    b = np.arange(8, dtype=np.int8).reshape(1, 4, 2)
    expected = product(a, [1, 2, 3], b, [1, 0]).tolist()
    assert expected == reference.matmul_integer(a, [1, 2, 3], b, [1, 0]).tolist()
    of_a = np.array([1, 2, 3], np.uint8)[:, None]
    assert product(a, of_a, b, [[1, 0]]).tolist() == expected
    assert product(a, np.tile(of_a, (2, 1, 1)), b, [[[1, 0]]]).tolist() == expected


def test_packed_batches_broadcast():
    b = np.arange(-30, 30, dtype=np.int8).reshape(5, 3, 4)
    a = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert product(a, b=dmlcpu.pack_b(b)).tolist() == product(a, b=b).tolist()
    assert product(a[0], b=dmlcpu.pack_b(b)).shape == (5, 4)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_out_of_any_strides_is_written_and_returned(dtype):
    room = np.zeros((4, 4), dtype)
    out = room[::2, ::-2]
    assert product(out=out, out_dtype=dtype) is out
    assert room.tolist() == [[0, -50, 0, 50], [0] * 4, [0, -110, 0, 110], [0] * 4]


def test_zero_points_may_lie_in_the_output():
    out = np.zeros((2, 2), np.int32)
    inside = out.reshape(-1).view(np.uint8)[:2]
    inside[...] = [10, 30]
    assert product(a_zero=inside, out=out).tolist() == product(a_zero=[10, 30]).tolist()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: product(A.astype(np.int32)), dmlcpu.UnsupportedError, "a.dtype is int32; allowed: int8, uint8"),
        (lambda: product(b=B.astype(float)), dmlcpu.UnsupportedError, "b.dtype is float64; allowed: int8, uint8"),
        (lambda: product(A[0, 0]), dmlcpu.BindingError, "a.ndim is 0; allowed: at least 1"),
        (
            lambda: product(b=B[:1]),
            dmlcpu.BindingError,
            "b.shape is (1, 2); allowed: K = 2 rows (a.shape is (2, 2))",
        ),
        (
            lambda: product(a_zero=[1, 2, 3]),
            dmlcpu.BindingError,
            "a_zero_point.shape is (3,); allowed: one number, (2,), or a shape that broadcasts to (2, 1)",
        ),
        (
            lambda: product(a_zero=np.int8(3)),
            dmlcpu.UnsupportedError,
            "a_zero_point.dtype is int8; allowed: uint8 (its tensor's type)",
        ),
        (
            lambda: product(b_zero=[[0, 128]]),
            dmlcpu.DmlError,
            "b_zero_point[0, 1] is 128; allowed: -128 to 127 (int8)",
        ),
        (lambda: product(out_dtype="spam"), TypeError, "out_dtype is 'spam'; allowed: int32, int64"),
        (lambda: product(out_dtype=None), dmlcpu.UnsupportedError, "out_dtype is None; allowed: int32, int64"),
        (lambda: product(out_dtype="f4"), dmlcpu.UnsupportedError, "out_dtype is float32; allowed: int32, int64"),
        (
            lambda: product(out=np.zeros((2, 2), np.int64)),
            dmlcpu.BindingError,
            "out.dtype is int64; allowed: int32",
        ),
        (lambda: product(out=[0]), TypeError, "out is list; allowed: a numpy.ndarray"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == f"matmul_integer: {message}"


def test_a_refusal_writes_nothing():
    memory = np.full(16, 1, np.uint8)
    a, out = memory[:4].reshape(2, 2), memory.view(np.int32).reshape(2, 2)
    with pytest.raises(dmlcpu.BindingError, match="out is sharing memory with a; allowed: memory of its own"):
        product(a, out=out)
    with pytest.raises(dmlcpu.DmlError, match="b_zero_point is 300"):
        product(b_zero=300, out=out)
    assert (memory == 1).all()


def test_few_rows_have_a_kernel_of_their_own(caplog):
    plan.cache_clear()
    with caplog.at_level("DEBUG", "dmlcpu"), limits(2):
        product(np.ones((1, 3), np.uint8), b=np.ones((3, 64), np.int8))
        product(np.ones((99, 3), np.uint8), b=np.ones((3, 64), np.int8))
    assert "(1, 3) by (3, 64): skinny_u8s8_s32" in caplog.messages[-2]
    assert "(99, 3) by (3, 64): dot_u8s8_s32" in caplog.messages[-1]


@given(st.integers(0, 2**32))
def test_hypothesis(seed):
    call = random_call(np.random.default_rng(seed))
    assert_same_bits(call.run(), call.expected())
