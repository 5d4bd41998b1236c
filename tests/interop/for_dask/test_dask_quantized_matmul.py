"""quantized_matmul on Dask's arrays, against the function on the whole arrays, bit for bit."""

import numpy as np
import pytest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
from dask_arrays import assert_equals, chunked  # noqa: E402
from samples import quantized  # noqa: E402

import dmlcpu  # noqa: E402
from dmlcpu.errors import DmlError  # noqa: E402
from dmlcpu.interop import dask as ours  # noqa: E402
from dmlcpu.kernels.gemm.work import NARROW  # noqa: E402


def draw_product(rng, number):
    """Draw the arguments of quantized_matmul and the type of y."""
    rows, depth, columns = (int(n) for n in rng.integers(0 if number % 8 == 0 else 1, 9, 3))
    batches = [(), (3,), (2, 3), (1, 3), (2, 1)]
    of_a, of_b = (batches[each] for each in rng.integers(0, 5, 2))
    a_type, b_type, y_type = (np.dtype(each) for each in rng.choice(["int8", "uint8"], 3))
    a, b = (*of_a, rows, depth), (*of_b, depth, columns)
    if number % 7 == 0:
        a, of_a, rows = (depth,), (), 1
    if number % 5 == 0:
        b, of_b, columns = (depth,), (), 1

    def parameter(batch, n, is_row, make):
        shapes = [(), (1,), (n,), (*batch, n, 1) if is_row else (*batch, 1, n)]
        return make(shapes[rng.integers(4)])

    def scales(shape):
        return rng.uniform(1e-3, 2, shape).astype(rng.choice(["float16", "float32", "float64"]))

    def zeros(dtype):
        return lambda shape: quantized(rng, shape, dtype) if rng.random() < 0.8 else None

    y = np.broadcast_shapes(of_a, of_b)
    arguments = (
        *(quantized(rng, a, a_type), parameter(of_a, rows, True, scales), parameter(of_a, rows, True, zeros(a_type))),
        *(quantized(rng, b, b_type), parameter(of_b, columns, False, scales)),
        parameter(of_b, columns, False, zeros(b_type)),
        *(50 * parameter(y, rows, True, scales), parameter(y, rows, True, zeros(y_type))),
    )
    return arguments, y_type


def test_quantized_matmul():
    rng = np.random.default_rng(6)
    for number in range(28):
        arguments, y_type = draw_product(rng, number)
        lazy = [each if each is None else chunked(rng, each, always=False) for each in arguments]
        found = ours.quantized_matmul(*lazy, out_dtype=y_type, split_every=2)
        shapes = [None if each is None else each.shape for each in arguments]
        assert_equals(found, dmlcpu.quantized_matmul(*arguments, out_dtype=y_type), f"{number} {shapes}")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sums_of_chunks_are_requantized_as_by_the_function(dtype):
    """Every rounding: ties, sums that float32 rounds, multipliers that overflow or vanish."""
    rng = np.random.default_rng(7)
    a = rng.integers(-128, 128, (40, 900)).astype(np.int8)
    b = rng.integers(0, 256, (900, 200)).astype(np.uint8)
    a[5] = 3  # its zero point: sums of 0, also where the multiplier is infinite
    for exponent in (-40, -20, -12, 0, 30):
        a_scale = np.exp2(rng.integers(-3, 4, (40, 1)) + exponent).astype(np.float32)
        b_scale = np.exp2(rng.integers(-1, 2, (1, 200)) + exponent).astype(np.float32)
        for y_scale in (0.5, np.float32(1e-38), rng.uniform(0.3, 3, 40).astype(np.float32) * 1_000):
            zero = quantized(rng, (40,), np.dtype(dtype))
            arguments = (a, a_scale, np.int8(3), b, b_scale, np.uint8(7), y_scale, zero)
            lazy = (da.from_array(a, chunks=(17, 300)), *arguments[1:])
            assert_equals(ours.quantized_matmul(*lazy), dmlcpu.quantized_matmul(*arguments))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_ties_are_rounded_as_by_the_function(dtype):
    """Multipliers of about 0.5, 1.5, ... of scales that are no powers of two: the order of operations shows."""
    rng = np.random.default_rng(13)
    a, b = rng.integers(-9, 10, (99, 4)).astype(np.int8), rng.integers(-2, 3, (4, 16)).astype(np.int8)
    a_scale = 0.1 * np.arange(1, 100, dtype=np.float32)
    b_scale = 0.1 * np.arange(1, 33, 2, dtype=np.float32)
    arguments = (a, a_scale, None, b, b_scale, None, 0.2 * a_scale, np.array(33, dtype))
    found = ours.quantized_matmul(da.from_array(a, chunks=(50, 2)), *arguments[1:])
    assert_equals(found, dmlcpu.quantized_matmul(*arguments))


@pytest.mark.parametrize("chunk", [2 * NARROW + 5, 30_000])
def test_sums_beyond_32_bits_are_exact(chunk):
    depth = 3 * NARROW
    a, b = np.full((2, depth), 255, np.uint8), np.full((depth, 3), 255, np.uint8)
    a[1], b[:, 2] = 254, 1
    arguments = (a, 1e-6, None, b, 1.0, None, 33.7, None)
    found = ours.quantized_matmul(da.from_array(a, chunks=(1, chunk)), *arguments[1:])
    expected = dmlcpu.quantized_matmul(*arguments)
    assert len(np.unique(expected)) > 2
    assert_equals(found, expected)


def test_packed_matrix_is_unpacked():
    rng = np.random.default_rng(8)
    a, b = quantized(rng, (9, 20), np.dtype("uint8")), quantized(rng, (20, 7), np.dtype("int8"))
    found = ours.quantized_matmul(da.from_array(a, chunks=(4, 6)), 0.1, 7, dmlcpu.pack_b(b), 0.1, None, 1.0, 5)
    assert_equals(found, dmlcpu.quantized_matmul(a, 0.1, 7, b, 0.1, None, 1.0, 5))


@pytest.mark.parametrize(
    ("where", "bad", "message"),
    [
        (1, [1, 1, -2, 0, 1], r"a_scale\[2\] is -2; allowed: finite"),
        (6, [1, 1, 1, 1, np.nan], r"y_scale\[4\] is nan; allowed: finite"),
        (2, [0, 0, 0, 300, 0], r"a_zero_point\[3\] is 300; allowed: 0 to 255 \(uint8\)"),
    ],
)
def test_lazy_parameter_is_refused_when_it_is_computed(where, bad, message):
    arguments = [np.zeros((5, 4), np.uint8), 1.0, None, np.zeros((4, 3), np.uint8), 1.0, None, 1.0, None]
    arguments[where] = np.array(bad)
    with pytest.raises(DmlError, match=message):
        ours.quantized_matmul(*arguments)
    arguments[where] = da.from_array(arguments[where], chunks=2)
    lazy = ours.quantized_matmul(*arguments)
    with pytest.raises(DmlError, match=message):
        lazy.compute()
