import itertools

import numpy as np
import pytest
from desc_builders import OWNED, integer_desc, tensor
from feature_levels import ALL_TYPES, FOUR, levels_of, supported

import dmlcpu
from dmlcpu import compile_operator, reference
from dmlcpu.errors import InvalidDescriptorError
from dmlcpu.products import descriptor


def numbers(rng, dtype, shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape, dtype)


@pytest.mark.parametrize(("a_type", "b_type"), list(itertools.product(("int8", "uint8"), repeat=2)))
@pytest.mark.parametrize("per", [False, True])
def test_all_signs_against_the_reference(a_type, b_type, per):
    rng = np.random.default_rng(2)
    B, C, M, K, N = 2, 3, 4, 50, 5
    arrays = {
        "a_tensor": numbers(rng, a_type, (B, C, M, K)),
        "a_zero_point_tensor": numbers(rng, a_type, (1, 1, M, 1) if per else (1, 1, 1, 1)),
        "b_tensor": numbers(rng, b_type, (B, C, K, N)),
        "b_zero_point_tensor": numbers(rng, b_type, (1, 1, 1, N) if per else (1, 1, 1, 1)),
    }
    tensors = {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in arrays.items()}
    desc = integer_desc(**tensors, output_tensor=tensor("INT32", B, C, M, N))
    expected = reference.matmul_integer(*arrays.values())
    np.testing.assert_array_equal(compile_operator(desc)(**arrays), expected, strict=True)
    backwards = {name: array[..., ::-1].copy()[..., ::-1] for name, array in arrays.items()}  # not packed
    np.testing.assert_array_equal(compile_operator(desc)(**backwards), expected, strict=True)


@pytest.mark.parametrize("absent", ["a_zero_point_tensor", "b_zero_point_tensor"])
def test_an_absent_zero_point_is_zero(absent):
    arrays = {
        "a_tensor": np.array([[1, 2, 3]], np.uint8),
        "a_zero_point_tensor": np.array([[7]], np.uint8),
        "b_tensor": np.array([[4], [-5], [6]], np.int8),
        "b_zero_point_tensor": np.array([[-3]], np.int8),
    }
    del arrays[absent]
    tensors = {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in arrays.items()}
    result = compile_operator(integer_desc(**tensors, output_tensor=tensor("INT32", 1, 1)))(**arrays)
    # (1, 2, 3) by (7, -2, 9), or (-6, -5, -4) by (4, -5, 6)
    assert result.tolist() == ([[30]] if absent.startswith("a") else [[-23]])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_zero_points_of_fewer_or_more_dimensions(count):
    rng = np.random.default_rng(4)
    M, K, N = 3, 7, 5
    ones = (1,) * max(0, count - 2)
    row = (*ones, M, 1) if count > 1 else (1,)  # one dimension holds one value, or the columns'
    column = (*ones, 1, N)[-count:]
    arrays = {
        "a_tensor": numbers(rng, "int8", (2, M, K)),
        "a_zero_point_tensor": numbers(rng, "int8", row),
        "b_tensor": numbers(rng, "uint8", (2, K, N)),
        "b_zero_point_tensor": numbers(rng, "uint8", column),
    }
    tensors = {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in arrays.items()}
    result = compile_operator(integer_desc(**tensors, output_tensor=tensor("INT32", 2, M, N)))(**arrays)
    a, a_zero, b, b_zero = arrays.values()
    expected = reference.matmul_integer(a, a_zero.reshape(-1, 1), b, b_zero.reshape(1, -1))
    np.testing.assert_array_equal(result, expected, strict=True)


def test_an_owned_b_is_packed_once(monkeypatch):
    rng = np.random.default_rng(5)
    a, b = numbers(rng, "uint8", (1, 2, 2, 3)), numbers(rng, "int8", (1, 2, 3, 4))
    operator = compile_operator(integer_desc(b_tensor=tensor("INT8", 1, 2, 3, 4, flags=OWNED)))
    operator.initialize(b_tensor=b)
    monkeypatch.setattr(descriptor, "pack_b", None)
    expected = reference.matmul_integer(a, None, b, None)
    b[...] = 0
    for _ in range(2):
        np.testing.assert_array_equal(operator(a_tensor=a), expected, strict=True)


REFUSED = [
    ({"a_tensor": tensor("UINT8", 3)}, "ATensor.DimensionCount is 1; allowed: 2 to 8"),
    ({"b_tensor": tensor("INT8", 2, 3, 4)}, "BTensor.DimensionCount is 3; allowed: 4 (ATensor.DimensionCount)"),
    (
        {"b_tensor": tensor("INT8", 1, 2, 5, 4)},
        "BTensor.Sizes is (1, 2, 5, 4); allowed: (1, 2, 3, 4) ({..., K, N}, ATensor being {..., M, K})",
    ),
    (
        {"output_tensor": tensor("INT32", 1, 2, 4, 2)},
        "OutputTensor.Sizes is (1, 2, 4, 2); allowed: (1, 2, 2, 4) ({..., M, N})",
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
        {"b_zero_point_tensor": tensor("UINT8", 1)},
        "BZeroPointTensor.DataType is UINT8; allowed: INT8 (BTensor.DataType)",
    ),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        integer_desc(**fields)
    assert str(caught.value) == f"DML_OPERATOR_MATRIX_MULTIPLY_INTEGER: {message}"


def test_the_number_is_directmls():
    assert dmlcpu.OperatorType.MATRIX_MULTIPLY_INTEGER == 117


def of_counts(matrices=4, a_values=4, b_values=4, a="INT8", b="INT8", y="INT32"):
    ones = (1,) * (matrices - 2)
    return integer_desc(
        a_tensor=tensor(a, *ones, 2, 3),
        a_zero_point_tensor=tensor(a, *(1,) * a_values),
        b_tensor=tensor(b, *ones, 3, 4),
        b_zero_point_tensor=tensor(b, *(1,) * b_values),
        output_tensor=tensor(y, *ones, 2, 4),
    )


@pytest.mark.parametrize(
    ("first", "after", "matrices", "a_values", "b_values"),
    [
        ("2_1", "4_0", FOUR, FOUR, FOUR),
        ("4_0", "5_2", range(2, 5), range(1, 5), range(2, 5)),
        ("5_2", None, range(2, 5), range(1, 5), range(1, 5)),
    ],
)
def test_microsofts_table(first, after, matrices, a_values, b_values):
    for level in levels_of(first, after):
        assert [n for n in range(2, 9) if supported(of_counts(matrices=n), level)] == list(matrices)
        assert [n for n in range(1, 9) if supported(of_counts(a_values=n), level)] == list(a_values)
        assert [n for n in range(1, 9) if supported(of_counts(b_values=n), level)] == list(b_values)
        for name in ("a", "b"):
            assert [t for t in ALL_TYPES if supported(of_counts(**{name: t}), level)] == ["UINT8", "INT8"]
        assert [t for t in ALL_TYPES if supported(of_counts(y=t), level)] == ["INT32"]
