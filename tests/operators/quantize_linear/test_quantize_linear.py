import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import config
from operators.quantize_linear.calls import INPUTS, RESULTS, near_ties, random_call
from samples import KERNEL_LAYOUTS, THREADS, assert_same_bits, read_only, strided, swapped

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.kernels.quantize_linear.work import LONG, TILE
from dmlcpu.runtime.threads import use_budget

INT4, UINT4 = ml_dtypes.int4, ml_dtypes.uint4
NAN, INF = np.nan, np.inf
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("x", "scale", "zero_point", "options", "expected"),
    [
        (f32(0.5, 1.5, 2.5, 3.5), 1, np.uint8(1), {}, [1, 3, 3, 5]),
        (f32(NAN, INF, -INF, 2.5), 1, np.int8(1), {}, [-128, 127, -128, 3]),
        (X, [0.5, 2], np.array([0, 10], np.uint8), {"axis": 0}, [[2, 4, 6], [12, 12, 13]]),
        (np.float16([16.6]), np.float16(0.4), None, {}, [41]),
        (np.array([16777217], np.int32), 33554432.0, None, {}, [0]),
        (X, [[0.5, 1], [1, 2]], None, {"axis": -1, "block_size": 2, "out_dtype": np.int8}, [[2, 4, 3], [4, 5, 3]]),
        (f32(-9, -8, 7, 8), 1, None, {"out_dtype": INT4}, [-8, -8, 7, 7]),
        (f32(-1, 15, 16, NAN), 1, None, {"out_dtype": UINT4}, [0, 15, 15, 0]),
        (f32(-4e9, 3e38, 32766.5), 1, np.int16(1), {}, [-32768, 32767, 32767]),
        (f32(1.25), 1e-38, None, {}, [255]),
    ],
)
def test_by_hand(x, scale, zero_point, options, expected):
    assert dmlcpu.quantize_linear(x, scale, zero_point, **options).astype(int).tolist() == expected


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]))
def test_random_calls_have_the_bits_of_the_reference(seed, parts):
    call = random_call(np.random.default_rng(seed))
    with use_budget(parts, grain=1):
        assert_same_bits(call.run(), call.expected(), str(seed))


@pytest.mark.parametrize("n", [1, 15, 16, 17, TILE - 1, TILE, TILE + 1, 2 * TILE + 5])
@pytest.mark.parametrize("x_type", INPUTS, ids=str)
def test_lengths_on_both_sides_of_every_edge(n, x_type):
    rng = np.random.default_rng(n)
    x = near_ties(rng, (3, n)).astype(x_type)
    scale = np.array([[0.5], [1], [0.3]], np.float32)
    for threads, y_type, make in zip(THREADS * 2, RESULTS, KERNEL_LAYOUTS.values(), strict=False):
        given_x, out = make(x), np.zeros((n, 3), y_type)[::-1].T
        for scales in (scale, np.repeat(scale, n, 1)):
            expected = reference.quantize_linear(given_x, scales, 2, out_dtype=y_type)
            with use_budget(threads, grain=1):
                assert dmlcpu.quantize_linear(given_x, scales, 2, out_dtype=y_type, out=out) is out
            assert_same_bits((out,), (expected,), f"{n} {x_type} {y_type} {threads}")


@pytest.mark.parametrize("block", [1, 2, LONG - 1, LONG, LONG + 1, 100, TILE, TILE + 8])
@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_of_every_length_and_a_short_last_one(block, axis):
    rng = np.random.default_rng(block)
    n = 2 * block + block // 2 + 1
    x = near_ties(rng, (3, n) if axis else (n, 3))
    blocks = (3, -(-n // block)) if axis else (-(-n // block), 3)
    scale, zero = rng.random(blocks, np.float32) + np.float32(0.1), rng.integers(0, 256, blocks).astype(np.uint8)
    options = {"axis": axis, "block_size": block}
    assert_same_bits(
        (dmlcpu.quantize_linear(x, scale, zero, **options),), (reference.quantize_linear(x, scale, zero, **options),)
    )


def test_blocks_of_scale_and_zero_point_need_not_fit_together():
    x = np.arange(12, dtype=np.float32)
    scale, zero = f32(1, 2, 0.5), np.array([1, 2], np.int8)
    expected = reference.quantize_linear(x, scale, zero).tolist()
    assert dmlcpu.quantize_linear(x, scale, zero).tolist() == expected
    assert expected == [1, 2, 3, 4, 3, 3, 5, 6, 18, 20, 22, 24]


@pytest.mark.parametrize(("scale", "zero_point"), [(f32(1, 2, 4, 1, 2), [3, 9]), ([1, 2], np.arange(5))])
def test_numbers_for_each_element_meet_a_short_last_block(scale, zero_point):
    x, blocks = np.arange(5, dtype=np.float32) * 4, np.array([0, 0, 0, 0, 1])
    each = [np.take(given, blocks) if len(given) == 2 else given for given in (scale, zero_point)]
    expected = (np.rint(x / each[0]) + each[1]).tolist()
    assert dmlcpu.quantize_linear(x, scale, zero_point, axis=0, block_size=4).tolist() == expected


def test_fields_of_packed_records_are_read_where_they_lie():
    records = np.zeros((3, 20), [("tag", np.uint8), ("value", np.float32)])  # 5 bytes from one element to the next
    records["value"] = np.arange(60).reshape(3, 20)
    assert dmlcpu.quantize_linear(records["value"], 1.0).tolist() == np.arange(60).reshape(3, 20).tolist()


@pytest.mark.parametrize(
    ("zero_point", "dtype"),
    [(None, "uint8"), (3, "uint8"), (np.int8(3), "int8"), (np.array([3], np.uint16), "uint16"), ([3], "uint8")]
    + [(np.dtype(code).type(3), "uint8") for code in "iIlL"],
)
def test_default_type_is_that_of_the_zero_point(zero_point, dtype):
    y = dmlcpu.quantize_linear(X, 1, zero_point)
    assert y.dtype == dtype
    assert y[0, 0] == 1 + (0 if zero_point is None else np.ravel(zero_point)[0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": X.astype(np.int64)}, UnsupportedError, r"x\.dtype is int64; allowed: float32, float16, bfloat16"),
        ({"scale": 0}, DmlError, "scale is 0; allowed: finite float32 numbers greater than 0"),
        ({"scale": [1, -1], "axis": 0}, DmlError, r"scale\[1\] is -1;"),
        ({"scale": f32(1, INF), "axis": 0}, DmlError, r"scale\[1\] is inf"),
        ({"scale": f32(1, NAN, 1), "axis": 1}, DmlError, r"scale\[1\] is nan"),
        ({"scale": 1e-60}, DmlError, "scale is 1e-60; allowed: finite float32 numbers"),
        ({"scale": [1, 1e60], "axis": 0}, DmlError, r"scale\[1\] is 1e\+60; allowed: finite float32 numbers"),
        ({"scale": 10**400}, DmlError, "scale is an integer beyond float64; allowed: numbers that float64 holds"),
        ({"scale": 10**40}, DmlError, f"scale is {10**40}; allowed: finite float32 numbers"),
        ({"scale": "a"}, UnsupportedError, r"scale\.dtype is <U1; allowed: floating types"),
        ({"scale": [1, 1]}, BindingError, r"scale\.shape is \(2,\); allowed: one number, \(n,\) with axis, or 2 dim"),
        (
            {"scale": [1, 1], "axis": 1},
            BindingError,
            r"scale\.shape is \(2,\); allowed: one number, \(3,\) along",
        ),
        ({"scale": np.ones((2, 2))}, BindingError, r"scale\.shape is \(2, 2\)"),
        ({"scale": np.ones((2, 0))}, BindingError, r"scale\.shape is \(2, 0\)"),
        ({"zero_point": 256}, DmlError, r"zero_point is 256; allowed: 0 to 255 \(uint8\)"),
        ({"zero_point": 10**30}, DmlError, rf"zero_point is {10**30}; allowed: 0 to 255 \(uint8\)"),
        ({"zero_point": [0, -(10**30)], "axis": 0}, DmlError, rf"zero_point\[1\] is -{10**30}; allowed: 0 to 255"),
        ({"zero_point": -(10**400)}, DmlError, "zero_point is an integer of 1,329 bits; allowed: 0 to 255"),
        ({"zero_point": np.int32(256)}, DmlError, "zero_point is 256; allowed: 0 to 255"),
        ({"zero_point": [0, 16], "axis": 0, "out_dtype": UINT4}, DmlError, r"zero_point\[1\] is 16; allowed: 0 to 15"),
        ({"zero_point": 0.0}, UnsupportedError, r"zero_point\.dtype is float64; allowed: uint8"),
        ({"zero_point": np.float32(0)}, UnsupportedError, r"zero_point\.dtype is float32; allowed: uint8 \(the quant"),
        ({"zero_point": np.zeros(0)}, UnsupportedError, r"zero_point\.dtype is float64; allowed: uint8"),
        ({"scale": [None]}, TypeError, "scale is an array of dtype object; allowed: an array of fixed-size elements"),
        ({"zero_point": np.int8(1), "out_dtype": "u1"}, UnsupportedError, r"zero_point\.dtype is int8; allowed: uint8"),
        ({"zero_point": np.zeros(3, np.uint8)}, BindingError, r"zero_point\.shape is \(3,\)"),
        ({"axis": 2}, DmlError, "axis is 2; allowed: -2 to 1"),
        ({"block_size": 2}, DmlError, "axis is None; allowed: an axis, as block_size is given"),
        ({"block_size": 0, "axis": 0}, DmlError, "block_size is 0; allowed: at least 1"),
        ({"block_size": 1.5, "axis": 0}, TypeError, "block_size is 1.5; allowed: an integer"),
        ({"scale": np.ones((2, 2)), "block_size": 3, "axis": 1}, BindingError, r".*or \(2, 1\), one for each block"),
        ({"out_dtype": "i4"}, UnsupportedError, "out_dtype is int32; allowed: int8, uint8, int16, uint16, int4, uint4"),
        ({"out": np.zeros((2, 3), np.int8)}, BindingError, r"out\.dtype is int8; allowed: uint8"),
        ({"out": np.zeros(3, np.uint8)}, BindingError, r"out\.shape is \(3,\); allowed: \(2, 3\)"),
        ({"out": [0]}, TypeError, "out is list; allowed: a numpy.ndarray"),
    ],
)
def test_argument_that_does_not_fit_is_refused(change, error, message):
    with pytest.raises(error, match=f"^quantize_linear: {message}"):
        dmlcpu.quantize_linear(**{"x": X, "scale": 1.0, **change})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int64])
@pytest.mark.parametrize("layout", [np.copy, strided, read_only, swapped])
def test_a_bad_scale_is_refused_whatever_its_type_and_layout(dtype, layout):
    for place, bad in itertools.product(
        np.ndindex(2, 3), (0, -1) if np.dtype(dtype).kind == "i" else (0, -1, INF, NAN)
    ):
        scale = np.full((2, 3), 3, dtype)
        scale[place] = bad
        mine, out = layout(scale), np.full((2, 3), 77, np.uint8)
        where = ", ".join(map(str, place))
        for call in (dmlcpu.quantize_linear, lambda *args, out: dmlcpu.bind(dmlcpu.quantize_linear, *args, out=out)()):
            with pytest.raises(
                DmlError, match=rf"^quantize_linear: scale\[{where}\] is {scale[place]!s}; allowed: finite"
            ):
                call(X, mine, out=out)
        assert (out == 77).all()


@pytest.mark.parametrize("name", ["x", "scale", "zero_point"])
def test_out_that_shares_memory_is_refused_and_untouched(name):
    memory = np.full(64, 1, np.uint8)
    given = {"x": X[0].copy(), "scale": f32(1, 1, 1), "zero_point": np.ones(3, np.uint8), "axis": 0}
    view = memory[: given[name].nbytes].view(given[name].dtype)
    view[...] = given[name]
    before = memory.copy()
    with pytest.raises(BindingError, match=f"out is sharing memory with {name}"):
        dmlcpu.quantize_linear(**{**given, name: view}, out=memory[1:4])
    assert memory.tolist() == before.tolist()


def test_empty_arrays():
    assert dmlcpu.quantize_linear(np.zeros((0, 3), np.float32), 1.0).shape == (0, 3)
    assert dmlcpu.quantize_linear(np.zeros((3, 0), np.float32), f32(1, 2, 3), axis=0).shape == (3, 0)
    assert dmlcpu.quantize_linear(np.zeros((3, 0), np.float32), [], [], axis=1).shape == (3, 0)
    assert dmlcpu.quantize_linear(np.float32(2.5), 1.0).tolist() == 2


@pytest.mark.parametrize("scale", [0.0, f32(0), f32(1, -1, 1)], ids=str)
@pytest.mark.parametrize("is_off", [False, True])
def test_bad_scales_of_an_empty_array_are_refused(scale, is_off, monkeypatch):
    monkeypatch.setattr(config, "DISABLE_JIT", is_off)
    with pytest.raises(DmlError, match=r"^quantize_linear: scale(\[1\])? is (0.0|-1.0); allowed: finite"):
        dmlcpu.quantize_linear(np.zeros((0, 3), np.float32), scale, axis=1)


def test_scale_that_repeats_in_memory_is_read_as_it_lies():
    scale = np.broadcast_to(f32(0.5)[:, None], (2, 3))
    assert dmlcpu.quantize_linear(X, scale).tolist() == [[2, 4, 6], [8, 10, 12]]
