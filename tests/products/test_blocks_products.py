"""Products in blocks, of all operators."""

import math
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from samples import assert_same_bits, quantized
from sources import Unreadable, Watched, arguments_of, assert_refused_alike, in_blocks

import dmlcpu
from dmlcpu import reference
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.operators import OPERATORS
from dmlcpu.products import blocks as product_blocks
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.threads import use_budget

# Of each operator the arguments besides a and b.
PARAMETERS = {
    "matmul_integer": {"a_zero_point": None, "b_zero_point": None},
    "quantized_matmul": {
        "a_scale": 0.5,
        "a_zero_point": None,
        "b_scale": 0.25,
        "b_zero_point": None,
        "y_scale": 8.0,
        "y_zero_point": 3,
    },
    "matmul_integer_to_float": {"a_scale": 0.5, "a_zero_point": None, "b_scale": -0.25, "b_zero_point": 3, "bias": 2.5},
}
each_operator = pytest.mark.parametrize("operator", PARAMETERS)


def random_call(operator, seed):
    return import_module(f"operators.{operator}.calls").random_call(np.random.default_rng(seed))


def expected(operator, a, b):
    return (getattr(reference, operator)(a=a, b=b, **PARAMETERS[operator]),)


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [("matmul_integer", "int32"), ("quantized_matmul", "uint8"), ("matmul_integer_to_float", "float32")],
)
def test_shapes_and_types_are_found_without_reading(operator, dtype):
    a, b = Unreadable(np.zeros((2, 5, 6), np.uint8)), Unreadable(np.zeros((6, 7), np.int8))
    estimate, arguments = OPERATORS[operator].blocks.estimate, {"a": a, "b": b, **PARAMETERS[operator]}
    assert estimate(**arguments).results == {"y": Tensor((2, 5, 7), np.dtype(dtype))}
    assert estimate(**arguments).memory >= 60 + 42 + 70
    assert estimate(**arguments).kernel.startswith(("dot", "skinny"))
    assert estimate(**{**arguments, "a": Unreadable(np.zeros((0, 6), np.uint8))}).kernel == "none"


@pytest.mark.parametrize("operator", ["quantized_matmul", "matmul_integer_to_float", "matmul_top_k"])
@pytest.mark.parametrize("member", ["memory", "least"])
@pytest.mark.parametrize(("dtype", "each"), [("float32", 4), ("float64", 8 + 4)])
def test_scales_and_their_copies_take_memory(operator, member, dtype, each):
    a, b = Unreadable(np.zeros((300, 6), np.uint8)), Unreadable(np.zeros((6, 40_000), np.int8))
    arguments = {"a": a, "b": b, "a_scale": 1.0, **PARAMETERS.get(operator, {"k": 5})}
    scales = np.ones(40_000, dtype)
    one, many = (OPERATORS[operator].blocks.estimate(**{**arguments, "b_scale": scale}) for scale in (1.0, scales))
    fewer, more = (each.memory if member == "memory" else each.least() for each in (one, many))
    assert more - fewer == each * scales.size


@pytest.mark.parametrize(
    ("operator", "changed", "error", "message"),
    [
        ("matmul_integer", {"a_zero_point": 256}, DmlError, "a_zero_point is 256"),
        ("matmul_integer", {"b_zero_point": [1, 2]}, BindingError, "b_zero_point.shape"),
        ("matmul_integer", {"out_dtype": "int16"}, UnsupportedError, "out_dtype is int16"),
        ("matmul_integer", {"b": np.zeros((5, 7), np.int8)}, BindingError, "b.shape"),
        ("matmul_integer", {"a": np.zeros((5, 6), np.int16)}, DmlError, "a.dtype is int16"),
        ("matmul_integer_to_float", {"bias": np.zeros(3, np.float32)}, BindingError, r"bias.shape is \(3,\)"),
        ("matmul_integer_to_float", {"bias": np.zeros(7)}, UnsupportedError, "bias.dtype is float64"),
        ("matmul_integer_to_float", {"out_dtype": "int8"}, UnsupportedError, "out_dtype is int8"),
        ("quantized_matmul", {"y_scale": float("nan")}, DmlError, "y_scale is nan"),
        ("quantized_matmul", {"a_scale": [1.0, 0.0, 1.0, 1.0, 1.0]}, DmlError, r"a_scale\[1\] is 0.0"),
        ("quantized_matmul", {"y_zero_point": [1, 2]}, BindingError, "y_zero_point.shape"),
        ("quantized_matmul", {"b": np.zeros((5, 7), np.int8)}, BindingError, "b.shape"),
        ("quantized_matmul", {"a": np.zeros((5, 6), np.int16)}, DmlError, "a.dtype is int16"),
    ],
)
def test_a_call_that_the_function_refuses_is_refused(operator, changed, error, message):
    a, b = np.zeros((5, 6), np.uint8), np.zeros((6, 7), np.int8)
    assert_refused_alike(operator, {"a": a, "b": b, **PARAMETERS[operator], **changed}, error, message)


@each_operator
@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(60, 1000), block=st.sampled_from([64, 1024, 1 << 20]))
def test_every_cut_gives_the_bits_of_the_reference(operator, data, seed, block):
    call = random_call(operator, seed)
    arguments = arguments_of(call)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product_blocks, "BLOCK", block)
        row = OPERATORS[operator]
        checked = product_blocks._product(row.function, row.calls.request, arguments).call
        cuts = list(product_blocks.cuts(checked))  # the largest blocks first
        few = [each for each in cuts if math.prod(checked.matrix) <= 400 * each.rows * each.columns] or cuts[:1]
        cut = few[data.draw(st.integers(0, len(few) - 1))]
        patch.setattr(product_blocks, "cuts", lambda _: iter([cut]))
        found = in_blocks(operator, arguments)
    assert_same_bits(found, call.expected())


@each_operator
@pytest.mark.parametrize(("a_shape", "b_shape"), [((7,), (7, 50)), ((50, 7), (7,)), ((7,), (7,)), ((3, 5, 7), (7,))])
def test_vectors(operator, a_shape, b_shape, small_blocks):
    rng = np.random.default_rng(0)
    a, b = quantized(rng, a_shape, np.dtype("uint8")), quantized(rng, b_shape, np.dtype("int8"))
    for arrays in ({"a": Watched(a), "b": Watched(b)}, {"a": a, "b": b}):
        assert_same_bits(in_blocks(operator, {**arrays, **PARAMETERS[operator]}), expected(operator, a, b))


@each_operator
@pytest.mark.parametrize("b_shape", [(7, 50), (3, 7, 50)])
def test_packed_weights_are_multiplied_in_blocks(operator, b_shape, small_blocks):
    rng = np.random.default_rng(0)
    a, b = quantized(rng, (3, 20, 7), np.dtype("uint8")), quantized(rng, b_shape, np.dtype("int8"))
    found = in_blocks(operator, {"a": Watched(a), "b": dmlcpu.pack_b(b), **PARAMETERS[operator]})
    assert_same_bits(found, expected(operator, a, b))


@pytest.mark.skipif(Isa.AVX2 not in allowed(), reason="needs AVX2")
def test_packed_weights_that_saturate_are_exact_in_parts(small_blocks):
    """What is known of all matrices reaches the products of each."""
    a, b = np.full((3, 20, 8), 255, np.uint8), np.full((3, 8, 50), 127, np.int8)
    with use_budget(2, grain=1, kernel="dot_u8s8_s32_4x16x4_avx2"):
        found = in_blocks("matmul_integer", {"a": a, "b": dmlcpu.pack_b(b), **PARAMETERS["matmul_integer"]})
    assert_same_bits(found, expected("matmul_integer", a, b))


@each_operator
def test_both_are_read_once_if_b_fits(operator, small_blocks):
    rng = np.random.default_rng(0)
    a, b = quantized(rng, (2, 300, 40), np.dtype("uint8")), quantized(rng, (40, 50), np.dtype("int8"))
    sources = {"a": Watched(a), "b": Watched(b)}
    found = in_blocks(operator, {**sources, **PARAMETERS[operator]}, 1 << 22)
    assert_same_bits(found, expected(operator, a, b))
    assert sources["a"].reads > 40
    assert sources["a"].read_bytes == a.nbytes
    assert sources["b"].reads == 1
