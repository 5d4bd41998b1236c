"""Descs of products, of all operators; what is particular to one is tested beside it."""

import itertools

import numpy as np
import pytest
from desc_builders import OWNED, described, integer_desc, quantized_desc, tensor, to_float_desc

import dmlcpu
from dmlcpu import compile_operator
from dmlcpu.errors import InvalidDescriptorError
from dmlcpu.operators import OPERATORS
from dmlcpu.products import descriptor

BUILDERS = {
    "matmul_integer": integer_desc,
    "quantized_matmul": quantized_desc,
    "matmul_integer_to_float": to_float_desc,
}
NAMES = {
    "matmul_integer": "MATRIX_MULTIPLY_INTEGER",
    "quantized_matmul": "QUANTIZED_LINEAR_MATRIX_MULTIPLY",
    "matmul_integer_to_float": "MATRIX_MULTIPLY_INTEGER_TO_FLOAT",
}
each_operator = pytest.mark.parametrize("operator", BUILDERS)


def operands(operator, types, a_shape, b_shape, by_scale, by_zero):
    """Return random tensors of a product; by_scale, by_zero: the sizes that go with rows, and with columns."""
    rng = np.random.default_rng(2)

    def numbers(dtype, shape):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape, dtype)

    (a_type, b_type, y_type), (row, column) = types, by_zero
    scales = [rng.uniform(0.1, 2, shape).astype(np.float32) for shape in (*by_scale, by_scale[0])]
    arrays = {
        "a_tensor": numbers(a_type, a_shape),
        "a_scale_tensor": scales[0],
        "a_zero_point_tensor": numbers(a_type, row),
        "b_tensor": numbers(b_type, b_shape),
        "b_scale_tensor": scales[1],
        "b_zero_point_tensor": numbers(b_type, column),
        "output_scale_tensor": scales[2] * 500,
        "output_zero_point_tensor": numbers(y_type, row),
    }
    unwanted = {"matmul_integer": ("scale", "output"), "matmul_integer_to_float": ("output",)}.get(operator, ())
    return {name: array for name, array in arrays.items() if not any(part in name for part in unwanted)}


def compiled(operator, arrays, y_type, *sizes):
    types = {"matmul_integer": "INT32", "matmul_integer_to_float": "FLOAT32"}
    output = tensor(types.get(operator, y_type.upper()), *sizes)
    return compile_operator(BUILDERS[operator](**described(arrays), output_tensor=output))


def expected(operator, arrays):
    return OPERATORS[operator].reference(*arrays.values())


@each_operator
@pytest.mark.parametrize("types", list(itertools.product(("int8", "uint8"), repeat=3)), ids="-".join)
@pytest.mark.parametrize("per", ["tensor", "row and column", "scale by row, zero point by tensor"])
def test_all_signs_against_the_reference(operator, types, per):
    B, C, M, K, N = 2, 3, 4, 50, 5
    one, each = ((1, 1, 1, 1),) * 2, ((1, 1, M, 1), (1, 1, 1, N))
    by_scale, by_zero = one if per == "tensor" else each, each if per == "row and column" else one
    arrays = operands(operator, types, (B, C, M, K), (B, C, K, N), by_scale, by_zero)
    run, y = compiled(operator, arrays, types[2], B, C, M, N), expected(operator, arrays)
    np.testing.assert_array_equal(run(**arrays), y, strict=operator != "quantized_matmul")
    backwards = {name: array[..., ::-1].copy()[..., ::-1] for name, array in arrays.items()}  # not packed
    np.testing.assert_array_equal(run(**backwards), y)


@pytest.mark.parametrize(("operator", "of"), [*itertools.product(BUILDERS, ("a", "b")), ("quantized_matmul", "output")])
def test_an_absent_zero_point_is_zero(operator, of):
    absent = f"{of}_zero_point_tensor"
    one = ((1, 1, 1, 1),) * 2
    arrays = operands(operator, ("uint8", "int8", "int8"), (1, 1, 3, 6), (1, 1, 6, 2), one, one)
    zeros = {**arrays, absent: np.zeros_like(arrays[absent])}
    assert arrays.pop(absent).any()
    result = compiled(operator, arrays, "int8", 1, 1, 3, 2)(**arrays)
    np.testing.assert_array_equal(result, expected(operator, zeros))


@each_operator
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("matrices", [2, 3, 4])
def test_parameters_of_fewer_or_more_dimensions(operator, count, matrices):
    M, K, N = 3, 7, 5
    ones, batch = (1,) * max(0, count - 2), (2,) * (matrices - 2)
    row = (*ones, M, 1) if count > 1 else (1,)  # one dimension holds one value, or the columns'
    by = (row, (*ones, 1, N)[-count:])
    arrays = operands(operator, ("int8", "uint8", "int8"), (*batch, M, K), (*batch, K, N), by, by)
    result = compiled(operator, arrays, "int8", *batch, M, N)(**arrays)
    flat = {  # as the function takes them
        name: array.reshape(-1, 1) if array.size == M else array.reshape(1, -1)
        for name, array in arrays.items()
        if name not in ("a_tensor", "b_tensor")
    }
    np.testing.assert_array_equal(result, expected(operator, {**arrays, **flat}))


@each_operator
def test_an_owned_b_is_packed_once(operator, monkeypatch):
    one = ((1, 1, 1, 1),) * 2
    arrays = operands(operator, ("uint8", "int8", "int8"), (1, 2, 2, 3), (1, 2, 3, 4), one, one)
    b = arrays["b_tensor"]
    fields = {**described(arrays), "b_tensor": tensor("INT8", *b.shape, flags=OWNED)}
    run, y = compile_operator(BUILDERS[operator](**fields)), expected(operator, arrays)
    run.initialize(b_tensor=b)
    monkeypatch.setattr(descriptor, "pack_b", None)
    b[...] = 0
    given = {name: array for name, array in arrays.items() if name != "b_tensor"}
    for _ in range(2):
        np.testing.assert_array_equal(run(**given), y)


REFUSED = [
    ({"a_tensor": tensor("UINT8", 3)}, "ATensor.DimensionCount is 1; allowed: 2 to 8"),
    ({"b_tensor": tensor("INT8", 2, 3, 4)}, "BTensor.DimensionCount is 3; allowed: 4 (ATensor.DimensionCount)"),
    (
        {"output_tensor": tensor("INT8", 2, 2, 4)},
        "OutputTensor.DimensionCount is 3; allowed: 4 (ATensor.DimensionCount)",
    ),
    (
        {"b_tensor": tensor("INT8", 1, 2, 5, 4)},
        "BTensor.Sizes is (1, 2, 5, 4); allowed: (1, 2, 3, 4) (a row for each column of ATensor)",
    ),
    (
        {"b_tensor": tensor("INT8", 1, 1, 3, 4)},
        "BTensor.Sizes is (1, 1, 3, 4); allowed: (1, 2, 3, 4) (a row for each column of ATensor)",
    ),
    (
        {"output_tensor": tensor("INT8", 1, 2, 4, 2)},
        "OutputTensor.Sizes is (1, 2, 4, 2); allowed: (1, 2, 2, 4) (the rows of ATensor and the columns of BTensor)",
    ),
    (
        {"a_zero_point_tensor": tensor("UINT8", 3, 1)},
        "AZeroPointTensor.Sizes is (3, 1); allowed: (1, 1), or (2, 1) (one for each row)",
    ),
    ({"a_zero_point_tensor": tensor("UINT8", 2)}, "AZeroPointTensor.Sizes is (2,); allowed: (1,)"),
    (
        {"a_zero_point_tensor": tensor("INT8", 1)},
        "AZeroPointTensor.DataType is INT8; allowed: UINT8 (ATensor.DataType)",
    ),
    (
        {"b_zero_point_tensor": tensor("INT8", 3)},
        "BZeroPointTensor.Sizes is (3,); allowed: (1,), or (4,) (one for each column)",
    ),
    (
        {"b_zero_point_tensor": tensor("INT8", 1, 2)},
        "BZeroPointTensor.Sizes is (1, 2); allowed: (1, 1), or (1, 4) (one for each column)",
    ),
    (
        {"b_zero_point_tensor": tensor("UINT8", 1)},
        "BZeroPointTensor.DataType is UINT8; allowed: INT8 (BTensor.DataType)",
    ),
    (
        {"output_tensor": tensor("INT8", 1, 2, 2, 4, flags=OWNED)},
        "OutputTensor.Flags is OWNED_BY_DML; allowed: NONE (only inputs may be owned)",
    ),
]


@each_operator
@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_contradictions_are_refused(operator, fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        BUILDERS[operator](**fields)
    assert str(caught.value) == f"DML_OPERATOR_{NAMES[operator]}: {message}"


def test_the_numbers_are_directmls():
    assert dmlcpu.OperatorType.MATRIX_MULTIPLY_INTEGER == 117
    assert dmlcpu.OperatorType.QUANTIZED_LINEAR_MATRIX_MULTIPLY == 118
    assert dmlcpu.OperatorType.MATRIX_MULTIPLY_INTEGER_TO_FLOAT == 170
