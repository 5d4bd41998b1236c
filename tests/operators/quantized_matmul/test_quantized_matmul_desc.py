import itertools

import numpy as np
import pytest
from desc_builders import OWNED, quantized_desc, tensor
from feature_levels import ALL_TYPES, FOUR, levels_of, quantized as typed, supported

from dmlcpu import compile_operator, reference
from dmlcpu.errors import DmlError, InvalidDescriptorError

SIGNS = list(itertools.product(("int8", "uint8"), repeat=3))


def numbers(rng, dtype, shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape, dtype)


def scales(rng, shape):
    return rng.uniform(0.1, 2, shape).astype(np.float32)


@pytest.mark.parametrize(("a_type", "b_type", "y_type"), SIGNS)
@pytest.mark.parametrize("per", ["tensor", "row and column", "scale by row, zero point by tensor"])
def test_all_signs_against_the_reference(a_type, b_type, y_type, per):
    rng = np.random.default_rng(2)
    B, C, M, K, N = 2, 3, 4, 50, 5
    one, row, column = (1, 1, 1, 1), (1, 1, M, 1), (1, 1, 1, N)
    by_scale = (one, one) if per == "tensor" else (row, column)
    by_zero = (row, column) if per == "row and column" else (one, one)
    arrays = {
        "a_tensor": numbers(rng, a_type, (B, C, M, K)),
        "a_scale_tensor": scales(rng, by_scale[0]),
        "a_zero_point_tensor": numbers(rng, a_type, by_zero[0]),
        "b_tensor": numbers(rng, b_type, (B, C, K, N)),
        "b_scale_tensor": scales(rng, by_scale[1]),
        "b_zero_point_tensor": numbers(rng, b_type, by_zero[1]),
        "output_scale_tensor": scales(rng, by_scale[0]) * 500,
        "output_zero_point_tensor": numbers(rng, y_type, by_zero[0]),
    }
    tensors = {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in arrays.items()}
    desc = quantized_desc(**tensors, output_tensor=tensor(y_type.upper(), B, C, M, N))
    result = compile_operator(desc)(**arrays)
    assert result.dtype == y_type
    np.testing.assert_array_equal(result, reference.quantized_matmul(*arrays.values()))


@pytest.mark.parametrize("absent", ["a_zero_point_tensor", "b_zero_point_tensor", "output_zero_point_tensor"])
def test_an_absent_zero_point_is_zero(absent):
    rng = np.random.default_rng(3)
    one = (1, 1, 1, 1)
    arrays = {
        "a_tensor": numbers(rng, "uint8", (1, 1, 3, 6)),
        "a_scale_tensor": scales(rng, one),
        "a_zero_point_tensor": np.full(one, 7, np.uint8),
        "b_tensor": numbers(rng, "int8", (1, 1, 6, 2)),
        "b_scale_tensor": scales(rng, one),
        "b_zero_point_tensor": np.full(one, -3, np.int8),
        "output_scale_tensor": np.full(one, 300, np.float32),
        "output_zero_point_tensor": np.full(one, 5, np.int8),
    }
    zeros = {**arrays, absent: np.zeros_like(arrays[absent])}
    given = {name: array for name, array in arrays.items() if name != absent}
    tensors = {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in given.items()}
    desc = quantized_desc(**tensors, output_tensor=tensor("INT8", 1, 1, 3, 2))
    result = compile_operator(desc)(**given)
    np.testing.assert_array_equal(result, reference.quantized_matmul(*zeros.values()))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("matrices", [2, 3, 4])
def test_scales_and_zero_points_of_fewer_or_more_dimensions(count, matrices):
    rng = np.random.default_rng(4)
    M, K, N = 3, 7, 5
    ones, batch = (1,) * max(0, count - 2), (2,) * (matrices - 2)
    row = (*ones, M, 1) if count > 1 else (1,)  # one dimension holds one value, or the columns'
    column = (*ones, 1, N)[-count:]
    arrays = {
        "a_tensor": numbers(rng, "int8", (*batch, M, K)),
        "a_scale_tensor": scales(rng, row),
        "a_zero_point_tensor": numbers(rng, "int8", row),
        "b_tensor": numbers(rng, "uint8", (*batch, K, N)),
        "b_scale_tensor": scales(rng, column),
        "b_zero_point_tensor": numbers(rng, "uint8", column),
        "output_scale_tensor": scales(rng, row) * 100,
        "output_zero_point_tensor": numbers(rng, "int8", row),
    }
    tensors = {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in arrays.items()}
    desc = quantized_desc(**tensors, output_tensor=tensor("INT8", *batch, M, N))
    result = compile_operator(desc)(**arrays)
    flat = {  # as the function takes them
        name: array.reshape(-1, 1) if array.size == M else array.reshape(1, -1)
        for name, array in arrays.items()
        if name not in ("a_tensor", "b_tensor")
    }
    np.testing.assert_array_equal(result, reference.quantized_matmul(*{**arrays, **flat}.values()))


REFUSED = [
    ({"a_tensor": tensor("UINT8", 3)}, "ATensor.DimensionCount is 1; allowed: 2 to 8"),
    (
        {"b_tensor": tensor("INT8", 2, 3, 4)},
        "BTensor.DimensionCount is 3; allowed: 4 (ATensor.DimensionCount)",
    ),
    (
        {"output_tensor": tensor("INT8", 2, 2, 4)},
        "OutputTensor.DimensionCount is 3; allowed: 4 (ATensor.DimensionCount)",
    ),
    (
        {"b_tensor": tensor("INT8", 1, 2, 5, 4)},
        "BTensor.Sizes is (1, 2, 5, 4); allowed: (1, 2, 3, 4) ({..., K, N}, ATensor being {..., M, K})",
    ),
    (
        {"b_tensor": tensor("INT8", 1, 1, 3, 4)},
        "BTensor.Sizes is (1, 1, 3, 4); allowed: (1, 2, 3, 4) ({..., K, N}, ATensor being {..., M, K})",
    ),
    (
        {"output_tensor": tensor("INT8", 1, 2, 4, 2)},
        "OutputTensor.Sizes is (1, 2, 4, 2); allowed: (1, 2, 2, 4) ({..., M, N})",
    ),
    (
        {"a_scale_tensor": tensor("FLOAT32", 1, 2, 2, 1)},
        "AScaleTensor.Sizes is (1, 2, 2, 1); allowed: (1, 1, 1, 1), or (1, 1, 2, 1) (one for each row)",
    ),
    (
        {"a_scale_tensor": tensor("FLOAT32", 2)},
        "AScaleTensor.Sizes is (2,); allowed: (1,)",
    ),
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
        {"a_zero_point_tensor": tensor("UINT8", 3, 1)},
        "AZeroPointTensor.Sizes is (3, 1); allowed: (1, 1), or (2, 1) (one for each row)",
    ),
    (
        {"a_zero_point_tensor": tensor("INT8", 1)},
        "AZeroPointTensor.DataType is INT8; allowed: UINT8 (ATensor.DataType)",
    ),
    (
        {"b_zero_point_tensor": tensor("UINT8", 1)},
        "BZeroPointTensor.DataType is UINT8; allowed: INT8 (BTensor.DataType)",
    ),
    (
        {"b_zero_point_tensor": tensor("INT8", 1, 2)},
        "BZeroPointTensor.Sizes is (1, 2); allowed: (1, 1), or (1, 4) (one for each column)",
    ),
    (
        {"output_zero_point_tensor": tensor("UINT8", 1)},
        "OutputZeroPointTensor.DataType is UINT8; allowed: INT8 (OutputTensor.DataType)",
    ),
    (
        {"output_tensor": tensor("INT8", 1, 2, 2, 4, flags=OWNED)},
        "OutputTensor.Flags is OWNED_BY_DML; allowed: NONE (only inputs may be owned)",
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


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("a_scale_tensor", "AScaleTensor"),
        ("b_scale_tensor", "BScaleTensor"),
        ("output_scale_tensor", "OutputScaleTensor"),
    ],
)
def test_a_bad_scale_names_its_tensor_and_nothing_is_written(name, field):
    arrays = {
        "a_tensor": np.ones((1, 2, 2, 3), np.uint8),
        "a_scale_tensor": np.ones((1, 1, 2, 1), np.float32),
        "b_tensor": np.ones((1, 2, 3, 4), np.int8),
        "b_scale_tensor": np.ones((1, 1, 1, 4), np.float32),
        "output_scale_tensor": np.ones((1, 1, 1, 1), np.float32),
        "output_tensor": np.full((1, 2, 2, 4), 99, np.int8),
    }
    arrays[name].flat[-1] = 0
    with pytest.raises(DmlError) as caught:
        compile_operator(quantized_desc())(**arrays)
    assert caught.value.operator == "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY"
    assert caught.value.field.startswith(field)
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
