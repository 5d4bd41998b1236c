import numpy as np
import pytest
from hypothesis import given, strategies as st
from operators.dynamic_quantize_linear.calls import FLOATS
from operators.dynamic_quantize_matmul.calls import random_call
from samples import THREADS, assert_same_bits, strided
from sources import Once, Watched

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime.threads import use_budget

X = np.array([[51, 255], [0.5, 0.25]], np.float32)
B = np.array([[1, -1], [2, -2]], np.int8)


def product(x=X, b=B, b_scale=1, *others, **options):
    return dmlcpu.dynamic_quantize_matmul(x, b, b_scale, *others, **options)


def same(found, expected):
    assert_same_bits((np.asarray(found),), (np.asarray(expected),))


def test_by_hand():
    """One scale for all is 1, and 0.5 and 0.25 become 0; a scale of its own keeps them."""
    assert product(b_scale=[0.5, 0.25], bias=[1, -1]).tolist() == [[281.5, -141.25], [1, -1]]
    found = product(b_scale=[0.5, 0.25], bias=[1, -1], per_row=True)
    np.testing.assert_allclose(found, [[281.5, -141.25], [1.5, -1.25]], rtol=1e-3)
    assert product(np.zeros((2, 2), np.float32), b_zero_point=[3, 4]).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("x_type", FLOATS, ids=str)
def test_it_has_the_bits_of_two_calls(x_type, dtype, per_row):
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((3, 70, 130)) * rng.uniform(0.01, 10, (70, 1))).astype(x_type)
    b, bias = rng.integers(-128, 128, (130, 90), np.int8), rng.standard_normal(90, np.float32)
    b_scale, b_zero = rng.random(90, np.float32), rng.integers(-128, 128, 90, np.int8)
    a = dmlcpu.dynamic_quantize_linear(x, axis=-1 if per_row else None)
    expected = dmlcpu.matmul_integer_to_float(a.y, a.scale, a.zero_point, b, b_scale, b_zero, bias, out_dtype=dtype)
    for threads in THREADS:
        for matrix in (b, dmlcpu.pack_b(b)):
            with use_budget(threads, grain=1):
                found = product(strided(x), matrix, b_scale, b_zero, bias, per_row=per_row, out_dtype=dtype)
            same(found, expected)


@given(st.integers(0, 2**32), st.sampled_from(THREADS))
def test_random_calls_have_the_bits_of_the_reference(seed, threads):
    call = random_call(np.random.default_rng(seed))
    with use_budget(threads, grain=1):
        assert_same_bits(call.run(), call.expected(), str(seed))


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize(("x", "b"), [(X[0], B), (X, B[:, 0]), (X[0], B[:, 0]), (X[:0], B), (X[:, :0], B[:0])])
def test_vectors_and_empty_operands(x, b, per_row):
    same(product(x, b, per_row=per_row), reference.dynamic_quantize_matmul(x, b, 1, per_row=per_row))


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_element_that_is_not_finite_is_refused_and_nothing_written(bad, per_row):
    x = np.ones((40, 70), np.float32)
    x[31, 7] = bad
    out = np.full((40, 5), 9, np.float32)
    with pytest.raises(DmlError, match=r"^dynamic_quantize_matmul: x\[31, 7\] is -?(nan|inf); allowed: finite"):
        product(x, np.ones((70, 5), np.int8), per_row=per_row, out=out)
    assert (out == 9).all()


def test_a_range_beyond_float32_is_refused():
    x = np.array([[3e38, 1], [-3e38, 2]], np.float32)
    with pytest.raises(DmlError, match=r"^dynamic_quantize_matmul: x is from -3e\+38 to 3e\+38; allowed: elements"):
        product(x)
    same(product(x, per_row=True), reference.dynamic_quantize_matmul(x, B, 1, per_row=True))
    with pytest.raises(DmlError, match=r"^dynamic_quantize_matmul: x\[1, :\] is from -3e\+38 to 3e\+38"):
        product(np.array([[1, 2], [3e38, -3e38]], np.float32), per_row=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"x": B}, UnsupportedError, "x.dtype is int8; allowed: float32, float16, bfloat16, float64"),
        ({"x": np.float32(1)}, BindingError, "x.ndim is 0; allowed: at least 1"),
        ({"x": X[:, :1]}, BindingError, r"b.shape is \(2, 2\); allowed: K = 1 rows \(x.shape is \(2, 1\)\)"),
        ({"b": X}, UnsupportedError, "b.dtype is float32; allowed: int8, uint8"),
        ({"b_scale": [1, 2, 3]}, BindingError, r"b_scale.shape is \(3,\); allowed: one number, \(2,\), or a shape"),
        ({"b_zero_point": 200}, DmlError, r"b_zero_point is 200; allowed: -128 to 127 \(int8\)"),
        ({"bias": [1, 2, 3]}, BindingError, r"bias.shape is \(3,\); allowed: a shape that broadcasts to \(2, 2\)"),
        ({"per_row": 1}, TypeError, "per_row is 1; allowed: "),
        ({"out_dtype": "f8"}, UnsupportedError, "out_dtype is float64; allowed: float32, float16"),
        ({"out": np.zeros((2, 2))}, BindingError, "out.dtype is float64; allowed: float32"),
        ({"out": X}, BindingError, "out is sharing memory with x; allowed: its own memory"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=f"^dynamic_quantize_matmul: {message}"):
        dmlcpu.dynamic_quantize_matmul(**{"x": X, "b": B, "b_scale": 1, **options})


def test_a_bound_call_reads_all_arrays_anew():
    x, bias, scale, out = X.copy(), np.zeros(2, np.float32), np.ones(2, np.float32), np.zeros((2, 2), np.float32)
    run = dmlcpu.bind(dmlcpu.dynamic_quantize_matmul, x, B, scale, None, bias, out=out)
    assert run().tolist() == [[561, -561], [0, 0]]
    x[1], bias[...], scale[...] = 255, [1, 2], [2, 1]
    assert run().tolist() == [[1123, -559], [1531, -763]]
    x[1, 1] = np.nan
    with pytest.raises(DmlError, match=r"x\[1, 1\] is nan"):
        run()
    assert out.tolist() == [[1123, -559], [1531, -763]]


def test_blocks_read_x_twice_and_a_bad_element_has_its_place_in_the_whole(small_blocks):
    x = np.ones((40, 30), np.float32)
    arguments = {"b": np.ones((30, 8), np.int8), "b_scale": 1}
    blocks, source = OPERATORS["dynamic_quantize_matmul"].blocks, Watched(x)
    told = blocks.estimate(x=source, **arguments)
    sinks = {name: Once(each) for name, each in told.results.items()}
    blocks.run({"x": source, **arguments}, sinks, told.least() + 1000)
    assert source.read_bytes == 2 * x.nbytes
    same(sinks["y"].array, reference.dynamic_quantize_matmul(x, **arguments))
    x[30, 7] = np.inf
    with pytest.raises(DmlError, match=r"^dynamic_quantize_matmul: x\[30, 7\] is inf"):
        blocks.run({"x": source, **arguments}, sinks, told.least() + 1000)
