"""quantized_matmul in blocks: what is told of a call, and refused; tests/common/test_product_blocks.py has the rest."""

import numpy as np
import pytest
from sources import Unreadable

import dmlcpu
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
    given_as = {"a": np.zeros((5, 6), np.uint8), "b": np.zeros((6, 7), np.int8), **PARAMETERS, **changed}
    sources = {**given_as, "a": Unreadable(given_as["a"]), "b": Unreadable(given_as["b"])}
    with pytest.raises(error, match=message) as refused:
        blocks.estimate(**sources)
    with pytest.raises(error) as of_function:
        dmlcpu.quantized_matmul(**given_as)
    assert type(refused.value) is type(of_function.value)
    assert refused.value.args == of_function.value.args
