import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.matmul_integer_to_float.calls import random_call
from samples import assert_same_bits

import dmlcpu
from dmlcpu import reference

A = np.array([[10, 20], [30, 40]], np.uint8)
B = np.array([[1, -1], [2, -2]], np.int8)
ONE = np.ones((1, 1), np.uint8)


def product(a=A, a_scale=1, a_zero=None, b=B, b_scale=1, b_zero=None, bias=None, **options):
    return dmlcpu.matmul_integer_to_float(a, a_scale, a_zero, b, b_scale, b_zero, bias, **options)


def same(found, expected):
    assert_same_bits((np.asarray(found),), (np.asarray(expected),))


def test_by_hand():
    assert product(a_scale=0.5, b_scale=[0.5, 0.25], bias=[1, -1]).tolist() == [[13.5, -7.25], [28.5, -14.75]]
    assert product(a_scale=[0.5, 2], a_zero=[10, 30]).tolist() == [[10, -10], [40, -40]]
    assert product().dtype == np.float32


def test_scales_are_multiplied_with_each_other_first():
    forty_eight = np.full((1, 1), 48, np.uint8)
    assert product(forty_eight, 0.29, None, ONE, 0.05)[0, 0] == np.float32(0.696)
    assert np.float32(48) * np.float32(0.29) * np.float32(0.05) == np.float32(0.69600004)


@pytest.mark.parametrize("rows", [1, 40])
def test_the_bias_is_not_fused_with_the_product(rows):
    a = np.full((rows, 1), 42, np.uint8)
    found = product(a, 0.4, None, np.ones((1, 70), np.int8), 1, None, np.full(70, -1, np.float32))
    assert (found == np.float32(15.800001)).all()


def test_float16_is_rounded_once_more():
    a = np.full((1, 1), 255, np.uint8)
    b = np.full((1, 1), 127, np.int8)
    assert product(a, 1, None, b, 2.0234375)[0, 0] == np.float32(65529.023)
    assert product(a, 1, None, b, 2.0234375, out_dtype="float16")[0, 0] == np.inf


@pytest.mark.parametrize("packs", [False, True])
def test_float16_rounds_as_numpy_around_every_number(packs):
    """Every float16, the middle to the next one, and the float32 on both sides of each."""
    halves = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves[-1] = 65536
    middles = (halves[:-1] + halves[1:]) / 2
    all_sizes = np.concatenate([halves, middles])
    near = [np.nextafter(all_sizes, np.float32(end)) for end in (0, np.inf)]
    sizes = np.concatenate([all_sizes, *near, np.array([3e38, np.inf, np.nan, 1e-45], np.float32)])
    scales = np.concatenate([sizes, -sizes])
    b = np.ones((1, scales.size), np.int8)
    found = product(ONE, 1, None, dmlcpu.pack_b(b) if packs else b, scales, out_dtype="float16")
    with np.errstate(over="ignore"):
        expected = np.where(np.isnan(scales), np.nan, scales).astype(np.float16)
    same(found[0], expected)


@pytest.mark.parametrize("scale", [0.0, -0.0, -2.5, np.inf, -np.inf, np.nan, 1e-45, 3.4e38])
@pytest.mark.parametrize("kind", [float, np.float32, lambda x: np.array([x, 1], np.float32)])
@pytest.mark.filterwarnings("error")
def test_scales_are_any_numbers(scale, kind):
    a = np.array([[0, 0], [1, 2]], np.uint8)  # 0 times infinity is NaN
    for arguments in ((a, kind(scale), None, B, 1), (a, 1, None, B, kind(scale)), (a, -1, None, B, kind(scale))):
        for bias in (None, np.float32(-0.0), np.array([np.nan, 1], np.float32)):
            for dtype in ("float32", "float16"):
                found = product(*arguments, bias=bias, out_dtype=dtype)
                same(found, reference.matmul_integer_to_float(*arguments, None, bias, out_dtype=dtype))


def test_minus_zero_is_no_zero():
    for _ in range(2):
        assert not np.signbit(product(a_scale=0.0)).tolist()[0][0]
        assert np.signbit(product(a_scale=-0.0)).tolist()[0][0]


def test_every_nan_is_the_quiet_one():
    bits = np.array([0xFFC00000, 0x7F800001, 0x7FC12345], np.uint32)
    nans = bits.view(np.float32)
    b = np.ones((1, 3), np.int8)
    for found in (product(ONE, 1, None, b, nans), product(ONE, 1, None, b, 1, None, nans)):
        assert found.view(np.uint32).tolist() == [[0x7FC00000] * 3]
    assert product(ONE, 1, None, b, nans, out_dtype="float16").view(np.uint16).tolist() == [[0x7E00] * 3]


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("columns", [1, 64])
def test_sums_never_wrap(columns, packs):
    a, b = np.full((2, 40_001), 255, np.uint8), np.full((40_001, columns), 255, np.uint8)
    assert (product(a, b=dmlcpu.pack_b(b) if packs else b) == np.float32(255 * 255 * 40_001)).all()


class Foreign:
    """An array of float16 of a library with types of its own."""

    dtype = "foreign.float16"

    def __array__(self, dtype=None, copy=None):
        return np.array(0.5, np.float16)


def test_the_result_is_float16_if_both_scales_are():
    half, single = np.float16(0.5), np.float32(0.5)
    assert product(a_scale=half, b_scale=np.array([half, half])).dtype == np.float16
    assert product(a_scale=half, b_scale=single).dtype == np.float32
    assert product(a_scale=half, b_scale=0.5).dtype == np.float32
    assert product(a_scale=half, b_scale=half, out_dtype="float32").dtype == np.float32
    swapped = np.array(half).astype(half.dtype.newbyteorder())
    assert product(a_scale=swapped, b_scale=half).dtype == np.float16
    of_others = Foreign()
    assert product(a_scale=of_others, b_scale=of_others).dtype == np.float16
    for scales in ((half, half), (half, single), (half, swapped), (of_others, half)):
        expected = reference.matmul_integer_to_float(A, scales[0], None, B, scales[1], None)
        same(product(a_scale=scales[0], b_scale=scales[1]), expected)


BIASES = [
    (A, B, 3),
    (A, B, [5, 6]),
    (A, B, np.array([[5], [6]], np.float16)),
    (A, B, np.array([[1, 2], [3, 4]], np.float32).T),
    (A[0], B, [5.5, 6]),
    (A, B[:, 0], [5.5, 6]),
    (A[0], B[:, 0], 7),
    (np.stack([A, A + 1]), B, np.arange(4, dtype=np.float32).reshape(2, 1, 2)),
    (np.stack([A, A + 1]), B[:, 0], np.arange(4, dtype=np.float32).reshape(2, 2)),
    (A[0], np.stack([B, B + 1]), np.arange(4, dtype=np.float32).reshape(2, 2)),
    (np.stack([A, A + 1]), B, np.broadcast_to(np.float32([[7], [8]]), (2, 2, 2))),
]


@pytest.mark.parametrize(("a", "b", "bias"), BIASES)
def test_a_bias_broadcasts_to_the_result(a, b, bias):
    sums = dmlcpu.matmul_integer(a, None, b, None)
    expected = (sums.astype(np.float32) + np.asarray(bias, np.float32)).astype(np.float32)
    same(product(a, b=b, bias=bias), expected)
    same(reference.matmul_integer_to_float(a, 1, None, b, 1, None, bias), expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"out_dtype": "spam"}, TypeError, "out_dtype is 'spam'; allowed: float32, float16"),
        ({"out_dtype": "f8"}, dmlcpu.UnsupportedError, "out_dtype is float64; allowed: float32, float16"),
        ({"bias": np.zeros(2)}, dmlcpu.UnsupportedError, "bias.dtype is float64; allowed: float32, float16"),
        ({"bias": np.zeros(2, np.int8)}, dmlcpu.UnsupportedError, "bias.dtype is int8; allowed: float32, float16"),
        ({"bias": [True, False]}, dmlcpu.UnsupportedError, "bias.dtype is bool; allowed: floating types"),
        ({"bias": [1, 2, 3]}, dmlcpu.BindingError, "bias.shape is (3,); allowed: a shape that broadcasts to (2, 2)"),
        (
            {"bias": np.zeros((1, 2, 2), np.float32)},
            dmlcpu.BindingError,
            "bias.shape is (1, 2, 2); allowed: a shape that broadcasts to (2, 2)",
        ),
        ({"a_scale": [1, 2, 3]}, dmlcpu.BindingError, None),
        ({"a_scale": 1j}, dmlcpu.UnsupportedError, "a_scale.dtype is complex128; allowed: floating types"),
        ({"out": np.zeros((2, 2))}, dmlcpu.BindingError, "out.dtype is float64; allowed: float32"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error) as caught:
        product(**options)
    allowed = "one number, (2,), or a shape that broadcasts to (2, 1)"
    assert str(caught.value) == f"matmul_integer_to_float: {message or f'a_scale.shape is (3,); allowed: {allowed}'}"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_output_that_is_the_bias_is_refused(dtype):
    memory = np.ones((2, 2), dtype)
    with pytest.raises(dmlcpu.BindingError, match="out is sharing memory with bias; allowed: its own memory"):
        product(bias=memory, out=memory, out_dtype=dtype)
    assert (memory == 1).all()


def test_a_bound_product_reads_its_bias_anew():
    bias, scale = np.zeros(2, np.float32), np.array([1, 1], np.float32)
    run = dmlcpu.bind(dmlcpu.matmul_integer_to_float, A, 1, None, B, scale, None, bias)
    assert run().tolist() == [[50, -50], [110, -110]]
    bias[...], scale[...] = [1, 2], [-1, np.inf]
    assert run().tolist() == [[-49, -np.inf], [-109, -np.inf]]


def test_a_bound_product_reads_a_bias_of_float16_anew():
    bias = np.zeros(2, np.float16)
    run = dmlcpu.bind(dmlcpu.matmul_integer_to_float, A, 1, None, B, 1, None, bias)
    bias[...] = [1, 2]
    assert run().tolist() == [[51, -48], [111, -108]]


@given(st.integers(0, 2**32))
def test_hypothesis(seed):
    call = random_call(np.random.default_rng(seed))
    assert_same_bits(call.run(), call.expected())
