import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.dynamic_quantize_linear.calls import FLOATS, random_call
from samples import KERNEL_LAYOUTS, THREADS, assert_same_bits, read_only
from sources import Once, Watched

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.kernels.quantize_linear.work import TILE
from dmlcpu.operators import OPERATORS
from dmlcpu.operators.dynamic_quantize_linear.function import request
from dmlcpu.quantizers.dynamic import prepare
from dmlcpu.runtime.threads import plan_for_now, use_budget

X = np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32)


@pytest.mark.parametrize(
    ("x", "dtype", "y", "scale", "zero_point"),
    [
        (X, "uint8", [153, 255, 0, 26, 221, 179], 0.019607844, 153),
        (X, "int8", [25, 127, -128, -102, 93, 51], 0.019607844, 25),
        ([1, 2.1, 1.3, 2.5, 3.34, 4], "uint8", [64, 134, 83, 159, 213, 255], 0.015686275, 0),
        ([0, 0], "uint8", [0, 0], 1, 0),
        ([0, -0.0], "int8", [-128, -128], 1, -128),
        ([-1, -0.5], "uint8", [0, 128], 1 / 255, 255),
        ([], "uint8", [], 1, 0),
        ([], "int8", [], 1, -128),
    ],
)
def test_by_hand(x, dtype, y, scale, zero_point):
    found = dmlcpu.dynamic_quantize_linear(np.array(x, np.float32), out_dtype=dtype)
    assert found.y.tolist() == y
    assert found.scale == np.float32(scale)
    assert found.zero_point == zero_point
    assert [each.shape for each in found[1:]] == [(), ()]
    assert [each.dtype for each in found] == [dtype, np.float32, dtype]


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
@pytest.mark.parametrize("place", [..., None, (..., None)], ids=["as it is", "one more first", "one more last"])
def test_packed_read_only_arrays_are_quantized_by_the_same_kernels(shape, place):
    x = np.ones(shape, np.float32)
    (writeable, _), (frozen, _) = (request(each[place], None, np.uint8, None) for each in (x, read_only(x)))
    assert writeable != frozen
    plans = [plan_for_now(prepare, key) for key in (writeable, frozen)]
    assert plans[0].settle.func is plans[1].settle.func
    assert plans[0].quantize.func is plans[1].quantize.func


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]))
def test_random_calls_have_the_bits_of_the_reference(seed, parts):
    call = random_call(np.random.default_rng(seed))
    with use_budget(parts, grain=1):
        assert_same_bits(call.run(), call.expected(), str(seed))


@pytest.mark.parametrize("n", [1, TILE - 1, TILE, TILE + 1, 3 * TILE + 5])
@pytest.mark.parametrize("x_type", FLOATS, ids=str)
def test_extremes_in_every_tile(n, x_type):
    for place in {0, n // 2, n - 1}:
        x = np.zeros((2, n), x_type)
        x[1, place], x[0, n - 1 - place] = 7, -3
        expected = reference.dynamic_quantize_linear(x)
        by_rows, by_columns = (reference.dynamic_quantize_linear(x, axis=axis) for axis in (1, 0))
        for threads, make in zip(THREADS, (*KERNEL_LAYOUTS.values(),)[:4], strict=False):
            with use_budget(threads, grain=1):
                assert_same_bits(dmlcpu.dynamic_quantize_linear(make(x)), expected, f"{n} {x_type} {place}")
                assert_same_bits(dmlcpu.dynamic_quantize_linear(make(x), axis=-1), by_rows, f"{n} {x_type} {place}")
                assert_same_bits(dmlcpu.dynamic_quantize_linear(make(x), axis=0), by_columns, f"{n} {x_type} {place}")


def test_each_row_is_quantized_as_if_it_were_alone():
    x = np.random.default_rng(0).standard_normal((2, 3, 40), dtype=np.float32) * np.float32([[1], [100], [0]])
    found = dmlcpu.dynamic_quantize_linear(x, axis=-1)
    assert found.scale.shape == found.zero_point.shape == (2, 3, 1)
    for place in np.ndindex(2, 3):
        alone = dmlcpu.dynamic_quantize_linear(x[place])
        assert_same_bits((found.y[place], found.scale[place][0], found.zero_point[place][0]), alone)
    assert np.abs(dmlcpu.dequantize_linear(*found) - x).max() <= found.scale.max() / 2


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
@pytest.mark.parametrize("axis", [0, -1])
def test_rows_of_no_elements_have_the_scale_1(shape, axis):
    found = dmlcpu.dynamic_quantize_linear(np.zeros(shape, np.float32), axis=axis, out_dtype="int8")
    assert_same_bits(found, reference.dynamic_quantize_linear(np.zeros(shape, np.float32), axis=axis, out_dtype="int8"))
    assert (found.scale == 1).all()
    assert (found.zero_point == -128).all()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("x_type", FLOATS, ids=str)
def test_element_that_is_not_finite_is_refused_and_nothing_written(bad, x_type):
    x = np.ones((3, 2000), x_type)
    x[1, 1500] = bad
    x[2, 3] = np.nan
    out = np.full(x.shape, 9, np.uint8), np.full((), 9, np.float32), np.full((), 9, np.uint8)
    of_rows = out[0], np.full((3, 1), 9, np.float32), np.full((3, 1), 9, np.uint8)
    for options in ({}, {"out": out}, {"axis": 1}, {"axis": 1, "out": of_rows}):
        with pytest.raises(DmlError, match=r"^dynamic_quantize_linear: x\[1, 1500\] is -?(nan|inf); allowed: finite"):
            dmlcpu.dynamic_quantize_linear(x, **options)
    assert all((each == 9).all() for each in (*out, *of_rows))


def test_blocks_refuse_an_option_that_cannot_be_hashed():
    with pytest.raises(UnsupportedError, match=r"^dynamic_quantize_linear: out_dtype is \[\]; allowed: uint8, int8$"):
        OPERATORS["dynamic_quantize_linear"].blocks.estimate(x=X, out_dtype=[])


def test_range_beyond_float32_is_refused():
    with pytest.raises(DmlError, match=r"x is from -3e\+38 to 3e\+38; allowed: elements whose range is"):
        dmlcpu.dynamic_quantize_linear(np.array([3e38, -3e38], np.float32))
    apart = np.array([[[1, 2], [3, 4]], [[3e38, -1], [-3e38, 4]]], np.float32)
    assert_same_bits(dmlcpu.dynamic_quantize_linear(apart, axis=2), reference.dynamic_quantize_linear(apart, axis=2))
    for axis in (1, -2):
        with pytest.raises(DmlError, match=r"x\[1, :, 0\] is from -3e\+38 to 3e\+38; allowed: elements whose range is"):
            dmlcpu.dynamic_quantize_linear(apart, axis=axis)
    with pytest.raises(DmlError, match=r"x\[1\] is 1e\+300; allowed: finite float32 numbers"):
        dmlcpu.dynamic_quantize_linear(np.array([1, 1e300, 0]))


def test_outputs_are_filled_and_returned():
    out = np.zeros((2, 6), np.int8)[::-1, ::2], np.zeros((), np.float32), np.zeros((), np.int8)
    x = X.reshape(2, 3)
    found = dmlcpu.dynamic_quantize_linear(x, out_dtype=np.int8, out=out)
    assert isinstance(found, dmlcpu.DynamicQuantized)
    assert all(mine is given for mine, given in zip(found, out, strict=True))
    assert_same_bits(out, reference.dynamic_quantize_linear(x, out_dtype=np.int8))
    out = out[0], np.zeros((2, 3), np.float32)[:, ::3], np.zeros((4, 1), np.int8)[::-2]
    dmlcpu.dynamic_quantize_linear(x, axis=1, out_dtype=np.int8, out=out)
    assert_same_bits(out, reference.dynamic_quantize_linear(x, axis=1, out_dtype=np.int8))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": X.astype(np.int32)}, UnsupportedError, r"x\.dtype is int32; allowed: float32, float16, bfloat16"),
        ({"axis": 1}, DmlError, r"axis is 1; allowed: -1 to 0 \(x has 1 dimension\)"),
        ({"axis": 1.0}, TypeError, "axis is 1.0; allowed: an integer"),
        ({"out_dtype": "i2"}, UnsupportedError, "out_dtype is int16; allowed: uint8, int8"),
        ({"out": np.zeros(6, np.uint8)}, TypeError, r"out is ndarray; allowed: a tuple \(y, scale, zero_point\)"),
        ({"out": ()}, TypeError, r"out is a tuple of 0; allowed: a tuple \(y, scale, zero_point\) of three arrays"),
        (
            {"out": (np.zeros(6, np.uint8), np.zeros(1, np.float32), np.zeros((), np.uint8))},
            BindingError,
            r"out\[1\]\.shape is \(1,\); allowed: \(\)",
        ),
    ],
)
def test_argument_that_does_not_fit_is_refused(change, error, message):
    with pytest.raises(error, match=f"^dynamic_quantize_linear: {message}"):
        dmlcpu.dynamic_quantize_linear(**{"x": X, **change})


def test_outputs_must_not_share_memory():
    memory = np.zeros(8, np.uint8)
    out = memory[:6], np.zeros((), np.float32), memory[5:6].reshape(())
    with pytest.raises(BindingError, match=r"out\[2\] is sharing memory with out\[0\]"):
        dmlcpu.dynamic_quantize_linear(X, out=out)


def test_bound_call_refuses_values_that_it_finds_later():
    x = X.copy()
    run = dmlcpu.bind(dmlcpu.dynamic_quantize_linear, x)
    assert run().y.tolist() == [153, 255, 0, 26, 221, 179]
    x[2] = np.nan
    with pytest.raises(DmlError, match=r"x\[2\] is nan"):
        run()
    x[2] = 0
    assert run().zero_point == reference.dynamic_quantize_linear(x).zero_point


def test_blocks_are_read_twice_and_a_bad_element_has_its_place_in_the_whole(small_blocks):
    x = np.ones((40, 30), np.float32)
    blocks = OPERATORS["dynamic_quantize_linear"].blocks
    source = Watched(x)
    least = blocks.estimate(x=source).least()
    sinks = {name: Once(each) for name, each in blocks.estimate(x=source).results.items()}
    blocks.run({"x": source}, sinks, least)
    assert source.read_bytes == 2 * x.nbytes
    with pytest.raises(DmlError, match=r"x\[33, :\] is from -3e\+38 to 3e\+38"):
        blocks.run(
            {"x": Watched(np.where(np.arange(40)[:, None] == 33, np.float32([3e38, -3e38] * 15), x)), "axis": 1},
            {},
            least + 5000,
        )
    x[30, 7] = np.inf
    with pytest.raises(DmlError, match=r"x\[30, 7\] is inf"):
        blocks.run({"x": source}, sinks, least)
