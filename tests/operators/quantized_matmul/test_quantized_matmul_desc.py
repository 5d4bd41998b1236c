"""Scales, and Microsoft's table of feature levels; tests/products has the rest."""

import numpy as np
import pytest
from desc_builders import quantized_desc, tensor
from feature_levels import ALL_TYPES, FOUR, levels_of, quantized as typed, supported

from dmlcpu import compile_operator
from dmlcpu.errors import DmlError, InvalidDescriptorError

REFUSED = [
    (
        {"a_scale_tensor": tensor("FLOAT32", 1, 2, 2, 1)},
        "AScaleTensor.Sizes is (1, 2, 2, 1); allowed: (1, 1, 1, 1), or (1, 1, 2, 1) (one for each row)",
    ),
    ({"a_scale_tensor": tensor("FLOAT32", 2)}, "AScaleTensor.Sizes is (2,); allowed: (1,)"),
    (
        {"b_scale_tensor": tensor("FLOAT32", 1, 1, 4, 1)},
        "BScaleTensor.Sizes is (1, 1, 4, 1); allowed: (1, 1, 1, 1), or (1, 1, 1, 4) (one for each column)",
    ),
    (
        {"b_scale_tensor": tensor("FLOAT32", 3)},
        "BScaleTensor.Sizes is (3,); allowed: (1,), or (4,) (one for each column)",
    ),
    (
        {"output_scale_tensor": tensor("FLOAT32", 1, 1, 1, 4)},
        "OutputScaleTensor.Sizes is (1, 1, 1, 4); allowed: (1, 1, 1, 1), or (1, 1, 2, 1) (one for each row)",
    ),
    (
        {"output_zero_point_tensor": tensor("UINT8", 1)},
        "OutputZeroPointTensor.DataType is UINT8; allowed: INT8 (OutputTensor.DataType)",
    ),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        quantized_desc(**fields)
    assert str(caught.value) == f"DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: {message}"


def test_only_zero_points_may_be_none():
    with pytest.raises(TypeError) as caught:
        quantized_desc(output_scale_tensor=None)
    assert str(caught.value) == (
        "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: OutputScaleTensor is None; allowed: TensorDesc"
    )


@pytest.mark.parametrize("of", ["a", "b", "output"])
def test_a_bad_scale_names_its_tensor_and_nothing_is_written(of):
    arrays = {
        "a_tensor": np.ones((1, 2, 2, 3), np.uint8),
        "a_scale_tensor": np.ones((1, 1, 2, 1), np.float32),
        "b_tensor": np.ones((1, 2, 3, 4), np.int8),
        "b_scale_tensor": np.ones((1, 1, 1, 4), np.float32),
        "output_scale_tensor": np.ones((1, 1, 1, 1), np.float32),
        "output_tensor": np.full((1, 2, 2, 4), 99, np.int8),
    }
    arrays[f"{of}_scale_tensor"].flat[-1] = 0
    with pytest.raises(DmlError) as caught:
        compile_operator(quantized_desc())(**arrays)
    assert caught.value.operator == "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY"
    assert caught.value.field.startswith(f"{of.capitalize()}ScaleTensor")
    assert caught.value.found == "0.0"
    assert (arrays["output_tensor"] == 99).all()


@pytest.mark.parametrize(
    ("first", "after", "matrices", "values"), [("2_1", "4_0", FOUR, FOUR), ("4_0", None, range(2, 5), range(1, 5))]
)
def test_microsofts_table(first, after, matrices, values):
    for level in levels_of(first, after):
        assert [n for n in range(2, 9) if supported(typed(matrix_count=n), level)] == list(matrices)
        assert [n for n in range(1, 9) if supported(typed(value_count=n), level)] == list(values)
        for name in ("a", "b", "y"):
            assert [t for t in ALL_TYPES if supported(typed(**{name: t}), level)] == ["UINT8", "INT8"]
            assert [t for t in ALL_TYPES if supported(typed(**{f"{name}_scale": t}), level)] == ["FLOAT32"]
