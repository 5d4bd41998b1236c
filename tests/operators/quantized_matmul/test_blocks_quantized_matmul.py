"""quantized_matmul in blocks: what is told of a call, and refused; tests/products has the rest."""

import numpy as np
import pytest
from sources import Unreadable, assert_refused_alike

from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.operators.quantized_matmul import blocks

PARAMETERS = {
    "a_scale": 0.5,
    "a_zero_point": None,
    "b_scale": 0.25,
    "b_zero_point": None,
    "y_scale": 8.0,
    "y_zero_point": 3,
}


def test_shapes_and_types_are_told_without_reading():
    a, b = Unreadable(np.zeros((2, 5, 6), np.uint8)), Unreadable(np.zeros((6, 7), np.int8))
    arguments = {"a": a, "b": b, **PARAMETERS}
    assert blocks.estimate(**arguments).results == {"y": Tensor((2, 5, 7), np.dtype("uint8"))}
    assert blocks.estimate(**arguments).memory >= 60 + 42 + 70
    assert blocks.estimate(**arguments).kernel.startswith(("dot", "skinny"))
    assert blocks.estimate(**{**arguments, "a": Unreadable(np.zeros((0, 6), np.uint8))}).kernel == "none"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"y_scale": float("nan")}, DmlError, "y_scale is nan"),
        ({"a_scale": [1.0, 0.0, 1.0, 1.0, 1.0]}, DmlError, r"a_scale\[1\] is 0.0"),
        ({"y_zero_point": [1, 2]}, BindingError, "y_zero_point.shape"),
        ({"b": np.zeros((5, 7), np.int8)}, BindingError, "b.shape"),
        ({"a": np.zeros((5, 6), np.int16)}, DmlError, "a.dtype is int16"),
    ],
)
def test_what_the_function_refuses_is_refused(changed, error, message):
    a, b = np.zeros((5, 6), np.uint8), np.zeros((6, 7), np.int8)
    assert_refused_alike("quantized_matmul", {"a": a, "b": b, **PARAMETERS, **changed}, error, message)
