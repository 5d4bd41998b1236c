"""Operands and outputs of products, of all operators; results are tested beside each."""

import numpy as np
import pytest

import dmlcpu
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.operators import OPERATORS

A = np.array([[10, 20], [30, 40]], np.uint8)
B = np.array([[1, -1], [2, -2]], np.int8)
# With these all operators give the same numbers.
OTHERS = {
    "matmul_integer": {"out_dtype": "int32"},
    "quantized_matmul": {"a_scale": 1, "b_scale": 1, "y_scale": 1, "y_zero_point": None, "out_dtype": "int8"},
    "matmul_integer_to_float": {"a_scale": 1, "b_scale": 1, "out_dtype": "float32"},
}
each_operator = pytest.mark.parametrize("operator", OTHERS)


def product(operator, a=A, b=B, **changed):
    arguments = {"a": a, "a_zero_point": None, "b": b, "b_zero_point": None, **OTHERS[operator], **changed}
    return OPERATORS[operator].function(**arguments)


@pytest.mark.parametrize("a_shape", [(0, 4), (3, 0), (2, 0, 4), (0, 3, 4)])
@pytest.mark.parametrize(
    ("operator", "more", "value"),
    [
        ("matmul_integer", {}, 0),
        ("quantized_matmul", {"y_zero_point": -7}, -7),
        ("matmul_integer_to_float", {"bias": 3}, 3),
    ],
)
def test_empty_operands_give_zero(operator, more, value, a_shape):
    y = product(operator, np.zeros(a_shape, np.uint8), np.zeros((a_shape[-1], 2), np.int8), b_zero_point=5, **more)
    assert y.shape == (*a_shape[:-1], 2)
    assert y.dtype == OTHERS[operator]["out_dtype"]
    assert (y == value).all()
    assert product(operator, b=np.zeros((2, 0), np.int8)).shape == (2, 0)


@each_operator
def test_vectors_drop_their_dimension(operator):
    assert product(operator, A[0]).tolist() == [50, -50]
    assert product(operator, b=B[:, 0]).tolist() == [50, 110]
    y = product(operator, A[0], B[:, 0])
    assert y.shape == ()
    assert y == 50


@each_operator
def test_a_vector_result_goes_to_an_output_of_any_stride(operator):
    room = np.zeros(6, OTHERS[operator]["out_dtype"])
    for arguments, out in (((A[0], B), room[1:4:2]), ((A, B[:, 0]), room[::-3])):
        assert product(operator, *arguments, out=out) is out
    assert room.tolist() == [0, 50, 110, -50, 0, 50]


@each_operator
def test_packed_batches_broadcast(operator):
    a, b = np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(-30, 30, dtype=np.int8).reshape(5, 3, 4)
    assert product(operator, a, dmlcpu.pack_b(b)).tolist() == product(operator, a, b).tolist()
    assert product(operator, a[0], dmlcpu.pack_b(b)).shape == (5, 4)


@each_operator
def test_out_of_any_strides_is_written_and_returned(operator):
    room = np.zeros((4, 4), OTHERS[operator]["out_dtype"])
    out = room[::2, ::-2]
    assert product(operator, out=out) is out
    assert room.tolist() == [[0, -50, 0, 50], [0] * 4, [0, -110, 0, 110], [0] * 4]


REFUSED = [
    ({"a": A.astype(np.int32)}, UnsupportedError, "a.dtype is int32; allowed: int8, uint8"),
    ({"b": B.astype(float)}, UnsupportedError, "b.dtype is float64; allowed: int8, uint8"),
    ({"a": A[0, 0]}, BindingError, "a.ndim is 0; allowed: at least 1"),
    ({"b": B[:1]}, BindingError, "b.shape is (1, 2); allowed: K = 2 rows (a.shape is (2, 2))"),
    (
        {"a": np.zeros((3, 1, 2), np.uint8), "b": np.zeros((2, 2, 1), np.int8)},
        BindingError,
        "b.shape is (2, 2, 1); allowed: batch dimensions that broadcast with (3,) (a.shape is (3, 1, 2))",
    ),
    (
        {"a_zero_point": [1, 2, 3]},
        BindingError,
        "a_zero_point.shape is (3,); allowed: one number, (2,), or a shape that broadcasts to (2, 1)",
    ),
    ({"a_zero_point": np.int8(3)}, UnsupportedError, "a_zero_point.dtype is int8; allowed: uint8 (its tensor's type)"),
    ({"b_zero_point": [[0, 128]]}, DmlError, "b_zero_point[0, 1] is 128; allowed: -128 to 127 (int8)"),
    ({"out": [0]}, TypeError, "out is list; allowed: a numpy.ndarray"),
]


@each_operator
@pytest.mark.parametrize(("changed", "error", "message"), REFUSED)
def test_refusals(operator, changed, error, message):
    with pytest.raises(error) as caught:
        product(operator, **changed)
    assert str(caught.value) == f"{operator}: {message}"


@each_operator
@pytest.mark.parametrize("zero_point", ["a", "b"])
def test_whole_numbers_that_are_just_zero_points_and_those_that_are_not(operator, zero_point):
    name, (low, high) = f"{zero_point}_zero_point", {"a": (0, 255), "b": (-128, 127)}[zero_point]
    for value in (low, high):
        assert (product(operator, **{name: value}) == product(operator, **{name: [value]})).all()
    for value in (low - 1, high + 1):
        with pytest.raises(DmlError, match=f"{name} is {value}; allowed: {low} to {high}"):
            product(operator, **{name: value})


@each_operator
def test_a_refusal_writes_nothing(operator):
    memory = np.full(16, 1, np.uint8)
    a, out = memory[:4].reshape(2, 2), memory.view(OTHERS[operator]["out_dtype"])[:4].reshape(2, 2)
    with pytest.raises(BindingError, match="out is sharing memory with a; allowed: its own memory"):
        product(operator, a, out=out)
    with pytest.raises(DmlError, match="b_zero_point is 300"):
        product(operator, b_zero_point=300, out=out)
    assert (memory == 1).all()
