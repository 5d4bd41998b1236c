import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.dequantize_linear.calls import FLOATS, INPUTS, integers, random_call
from operators.quantize_linear.calls import RESULTS
from samples import KERNEL_LAYOUTS, THREADS, assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.kernels.quantize_linear.work import LONG, TILE
from dmlcpu.runtime.threads import use_budget

NAN, INF = np.nan, np.inf
X = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]))
def test_random_calls_have_the_bits_of_the_reference(seed, parts):
    call = random_call(np.random.default_rng(seed))
    with use_budget(parts, grain=1):
        assert_same_bits(call.run(), call.expected(), str(seed))


def test_four_bits_by_hand():
    x = np.array([[-8, -1, 0, 7, 3, -3, 2, 1]]).astype(ml_dtypes.int4)
    zero = np.array([[1, -1]]).astype(ml_dtypes.int4)
    assert dmlcpu.dequantize_linear(x, [[0.5, 2]], zero).tolist() == [[-4.5, -1, -0.5, 3, 8, -4, 6, 4]]


def test_differences_of_32_bits_are_exact_and_rounded_once():
    x, zero = np.array([2**31 - 1, -(2**31), 16777217], np.int32), np.int32(-(2**31))
    assert dmlcpu.dequantize_linear(x, 1.0, zero).tolist() == [2.0**32, 0.0, float(np.float32(2**31 + 16777217))]
    x = np.array([2**32 - 1, 0, 5], np.uint32)
    assert dmlcpu.dequantize_linear(x, 2.0, np.uint32(2**32 - 1)).tolist() == [0.0, -(2.0**33), -(2.0**33)]


@pytest.mark.parametrize("scale", [0.0, -0.0, -2.5, INF, -INF, NAN, -NAN, 1e-45])
def test_every_scale_is_multiplied_by_the_rules_of_ieee(scale):
    x, scale = np.array([0, 1, 255], np.uint8), np.float32(scale)
    for dtype in FLOATS:
        found = dmlcpu.dequantize_linear(x, scale, 1, out_dtype=dtype)
        assert_same_bits((found,), (reference.dequantize_linear(x, scale, 1, out_dtype=dtype),))
    with np.errstate(all="ignore"):
        product = np.array([-1, 0, 254], np.float32) * scale
    found = dmlcpu.dequantize_linear(x, scale, 1)
    assert np.isnan(found).tolist() == np.isnan(product).tolist()
    assert (found[np.isnan(found)].view(np.uint32) == 0x7FC00000).all()


@pytest.mark.parametrize("n", [1, LONG - 1, LONG + 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 5])
@pytest.mark.parametrize("x_type", INPUTS, ids=str)
def test_lengths_on_both_sides_of_every_edge(n, x_type):
    rng = np.random.default_rng(n)
    x, zero = integers(rng, (3, n), x_type), integers(rng, (3, 1), x_type)
    scale = np.array([[0.5], [1], [0.3]], np.float32)
    for threads, y_type, make in zip(THREADS * 2, FLOATS * 2, KERNEL_LAYOUTS.values(), strict=False):
        given_x, out = make(x), np.zeros((n, 3), y_type)[::-1].T
        for scales, zeros in ((scale, zero), (np.repeat(scale, n, 1), zero), (scale, np.repeat(zero, n, 1))):
            expected = reference.dequantize_linear(given_x, scales, zeros, out_dtype=y_type)
            with use_budget(threads, grain=1):
                dmlcpu.dequantize_linear(given_x, scales, zeros, out_dtype=y_type, out=out)
            assert_same_bits((out,), (expected,), f"{n} {x_type} {y_type} {threads}")


@pytest.mark.parametrize("x_type", RESULTS, ids=str)
def test_a_quantized_array_comes_back_within_half_a_step(x_type):
    rng = np.random.default_rng(0)
    scale = np.float32(0.25)
    limits = ml_dtypes.iinfo(x_type)
    lowest, highest = int(limits.min), int(limits.max)
    x = rng.uniform(lowest / 4, highest / 4, 5000).astype(np.float32)
    back = dmlcpu.dequantize_linear(dmlcpu.quantize_linear(x, scale, out_dtype=x_type), scale)
    assert np.abs(back - x).max() <= 0.125


@pytest.mark.parametrize(
    ("scale", "options", "dtype"),
    [
        (0.5, {}, "float32"),
        (np.float16(0.5), {}, "float16"),
        (np.array(0.5, ml_dtypes.bfloat16), {}, "bfloat16"),
        (np.float64(0.5), {}, "float32"),
        (np.float16(0.5), {"out_dtype": np.float32}, "float32"),
    ],
)
def test_default_type_is_that_of_the_scale(scale, options, dtype):
    assert dmlcpu.dequantize_linear(X, scale, **options).dtype == dtype


@pytest.mark.parametrize("name", ["scale", "out_dtype"])
def test_the_metadata_of_a_call_does_not_reach_another(name):
    for dtype in (np.dtype(np.float16, metadata={"unit": "m"}), np.dtype(np.float16)):
        given = {"scale": 0.5, name: np.ones(1, dtype) if name == "scale" else dtype}
        assert dmlcpu.dequantize_linear(X, **given).dtype.metadata is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": X.astype(np.int64)}, UnsupportedError, r"x\.dtype is int64; allowed: int8, uint8, int16"),
        ({"zero_point": -1}, DmlError, r"zero_point is -1; allowed: 0 to 255 \(uint8\)"),
        ({"zero_point": np.int8(1)}, UnsupportedError, r"zero_point\.dtype is int8; allowed: uint8"),
        ({"scale": [1, 2]}, BindingError, r"scale\.shape is \(2,\)"),
        ({"out_dtype": "f8"}, UnsupportedError, "out_dtype is float64; allowed: float32, float16, bfloat16"),
        ({"out": np.zeros((2, 3), np.float16)}, BindingError, r"out\.dtype is float16; allowed: float32"),
    ],
)
def test_argument_that_does_not_fit_is_refused(change, error, message):
    with pytest.raises(error, match=f"^dequantize_linear: {message}"):
        dmlcpu.dequantize_linear(**{"x": X, "scale": 1.0, **change})
