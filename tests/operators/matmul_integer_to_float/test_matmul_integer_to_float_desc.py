"""Microsoft's table of feature levels, types, and wide operands; tests/products has the rest."""

import itertools

import numpy as np
import pytest
from desc_builders import OWNED, described, tensor, to_float_desc
from feature_levels import ALL_TYPES, levels_of, supported
from samples import assert_same_bits

from dmlcpu import compile_operator, reference
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError
from dmlcpu.operators.matmul_integer_to_float.wide import _CHUNK, rounded_sum

WIDE = ("INT32", "INT16", "UINT32", "UINT16")
M, K, N = 3, 70, 5


def of_counts(matrices=4, values=4, a="INT8", b="INT8", y="FLOAT32"):
    ones, ones_of_values = (1,) * (matrices - 2), (1,) * values
    return to_float_desc(
        a_tensor=tensor(a, *ones, 2, 3),
        a_scale_tensor=tensor(y, *ones_of_values),
        a_zero_point_tensor=tensor(a, *ones_of_values),
        b_tensor=tensor(b, *ones, 3, 4),
        b_scale_tensor=tensor(y, *ones_of_values),
        b_zero_point_tensor=tensor(b, *ones_of_values),
        bias_tensor=tensor(y, *ones, 2, 4),
        output_tensor=tensor(y, *ones, 2, 4),
    )


def test_microsofts_table():
    for level in levels_of("6_2", None):
        assert [n for n in range(2, 9) if supported(of_counts(matrices=n), level)] == [2, 3, 4]
        assert [n for n in range(1, 9) if supported(of_counts(values=n), level)] == [1, 2, 3, 4]
        alike = [t for t in ALL_TYPES if supported(of_counts(a=t, b=t), level)]
        assert set(alike) == {*WIDE, "INT8", "UINT8"}
        assert supported(of_counts(a="UINT8", b="INT8"), level)
        assert {t for t in ALL_TYPES if supported(of_counts(y=t), level)} == {"FLOAT32", "FLOAT16"}
    for level in levels_of("1_0", "6_2"):
        assert not supported(of_counts(), level)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"b_tensor": tensor("INT16", 1, 2, 3, 4)},
            "BTensor.DataType is INT16; allowed: INT8, UINT8 (ATensor.DataType is UINT8)",
        ),
        ({"a_tensor": tensor("INT32", 1, 2, 2, 3)}, "BTensor.DataType is INT8; allowed: INT32 (ATensor.DataType)"),
        (
            {"a_scale_tensor": tensor("FLOAT16", 1, 1, 2, 1)},
            "AScaleTensor.DataType is FLOAT16; allowed: FLOAT32 (OutputTensor.DataType)",
        ),
        (
            {"b_scale_tensor": tensor("FLOAT16", 1, 1, 1, 1)},
            "BScaleTensor.DataType is FLOAT16; allowed: FLOAT32 (OutputTensor.DataType)",
        ),
        (
            {"b_scale_tensor": tensor("FLOAT32", 1)},
            "BScaleTensor.DimensionCount is 1; allowed: 4 (AScaleTensor.DimensionCount)",
        ),
        (
            {"b_zero_point_tensor": tensor("INT8", 1)},
            "BZeroPointTensor.DimensionCount is 1; allowed: 4 (AScaleTensor.DimensionCount)",
        ),
        (
            {"a_scale_tensor": tensor("FLOAT32", 1, 1, 1, 2)},
            "AScaleTensor.Sizes is (1, 1, 1, 2); allowed: (1, 1, 1, 1), or (1, 1, 2, 1) (one for each row)",
        ),
        (
            {"bias_tensor": tensor("FLOAT32", 2, 4)},
            "BiasTensor.DimensionCount is 2; allowed: 4 (ATensor.DimensionCount)",
        ),
        (
            {"bias_tensor": tensor("FLOAT32", 1, 1, 1, 4)},
            "BiasTensor.Sizes is (1, 1, 1, 4); allowed: (1, 2, 2, 4) (OutputTensor.Sizes)",
        ),
        (
            {"bias_tensor": tensor("FLOAT16", 1, 2, 2, 4)},
            "BiasTensor.DataType is FLOAT16; allowed: FLOAT32 (OutputTensor.DataType)",
        ),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(InvalidDescriptorError) as caught:
        to_float_desc(**fields)
    assert str(caught.value) == f"DML_OPERATOR_MATRIX_MULTIPLY_INTEGER_TO_FLOAT: {message}"


def operands(a_type, b_type, y_type, extreme=False):
    """Return random tensors of two products, with all that is optional."""
    rng = np.random.default_rng(3)

    def numbers(dtype, *shape):
        limits = np.iinfo(dtype)
        whole = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return np.full_like(whole, limits.max) if extreme else whole

    a_type, b_type, y_type = a_type.lower(), b_type.lower(), y_type.lower()
    zero = np.iinfo(a_type).min if extreme else 3
    return {
        "a_tensor": numbers(a_type, 2, M, K),
        "a_scale_tensor": np.array([[0.5], [-0.1], [1e-4]], y_type),
        "a_zero_point_tensor": np.full((M, 1), zero, a_type),
        "b_tensor": numbers(b_type, 2, K, N),
        "b_scale_tensor": rng.normal(0, 1, (1, N)).astype(y_type),
        "b_zero_point_tensor": np.full((1, N), 1, b_type),
        "bias_tensor": rng.normal(0, 1, (2, M, N)).astype(y_type),
    }


def expected(arrays):
    return reference.matmul_integer_to_float(*arrays.values(), out_dtype=arrays["bias_tensor"].dtype)


TYPES = [*itertools.product(("INT8", "UINT8"), repeat=2), *((each, each) for each in WIDE)]


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("y_type", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize(("a_type", "b_type"), TYPES)
def test_all_types(a_type, b_type, y_type, extreme):
    arrays = operands(a_type, b_type, y_type, extreme)
    right, output = expected(arrays), tensor(y_type, 2, M, N)
    run = compile_operator(to_float_desc(**described(arrays), output_tensor=output))
    assert_same_bits((run(**arrays),), (right,))
    backwards = {name: array[..., ::-1].copy()[..., ::-1] for name, array in arrays.items()}  # not packed
    assert_same_bits((run(**backwards),), (right,))
    fields = {name: tensor(array.dtype.name.upper(), *array.shape, flags=OWNED) for name, array in arrays.items()}
    run = compile_operator(to_float_desc(**{**fields, "a_tensor": tensor(a_type, 2, M, K)}, output_tensor=output))
    a = arrays.pop("a_tensor")
    run.initialize(**arrays)
    for array in arrays.values():
        array[...] = 0
    assert_same_bits((run(a_tensor=a),), (right,))
    out = np.empty(right.shape, right.dtype)
    bound = run.bind(a_tensor=a, output_tensor=out)
    assert_same_bits((bound(),), (right,))


@pytest.mark.parametrize("y_type", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("a_type", ["INT8", "UINT16"])
def test_optional_tensors_may_be_missing(a_type, y_type):
    whole = operands(a_type, a_type, y_type)
    optional = ("a_zero_point_tensor", "b_zero_point_tensor", "bias_tensor")
    arrays = {name: array for name, array in whole.items() if name not in optional}
    run = compile_operator(to_float_desc(**described(arrays), output_tensor=tensor(y_type, 2, M, N)))
    right = expected(
        {name: None if name in optional else array for name, array in whole.items()}
        | {"bias_tensor": np.full((), -0.0, y_type.lower())}
    )
    assert_same_bits((run(**arrays),), (right,))


@pytest.mark.parametrize("a_type", ["INT8", "INT32"])
def test_a_bias_that_strides_repeat(a_type):
    arrays = operands(a_type, a_type, "FLOAT32")
    row = arrays["bias_tensor"][0, 0]
    arrays["bias_tensor"] = np.broadcast_to(row, (2, M, N))
    fields = {**described(arrays), "bias_tensor": tensor("FLOAT32", 2, M, N, strides=(0, 0, 1))}
    run = compile_operator(to_float_desc(**fields, output_tensor=tensor("FLOAT32", 2, M, N)))
    assert_same_bits((run(**arrays),), (expected(arrays),))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output_tensor": tensor("INT32", 1, 2, 2, 4)}, "OutputTensor.DataType is INT32; allowed: FLOAT32, FLOAT16"),
        ({"a_tensor": tensor("FLOAT32", 1, 2, 2, 3)}, "ATensor.DataType is FLOAT32; allowed: INT32, INT16, INT8"),
    ],
)
def test_of_two_types_that_differ_the_one_that_no_level_has_is_refused(fields, message):
    with pytest.raises(UnsupportedError, match=message):
        compile_operator(to_float_desc(**fields))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("copies", [1, 64])  # the sum has 61 bits, or 67
@pytest.mark.parametrize(("odd", "below", "tie", "above"), [(1, 0, 0, 2), (3, 2, 4, 4)])
def test_wide_sums_are_rounded_once(odd, below, tie, above, copies, sign):
    """Sums beside the middle between two float32: rounded to float64 first, they would be that middle."""
    unit = copies << 36
    for low, rounded in ((-1, below), (0, tie), (1, above)):
        a = np.array([[*[(2**24 + odd) << 6] * copies, 1]], np.int32) * np.int32(sign)
        b = np.array([[2**30]] * copies + [[low]], np.int32)
        one = np.ones((1, 1), np.float32)
        arrays = {"a_tensor": a, "a_scale_tensor": one, "b_tensor": b, "b_scale_tensor": one}
        run = compile_operator(to_float_desc(**described(arrays), output_tensor=tensor("FLOAT32", 1, 1)))
        right = np.array([[sign * (2**24 + rounded) * unit]], np.float32)
        assert_same_bits((run(**arrays),), (right,))
        assert_same_bits((reference.matmul_integer_to_float(a, 1, None, b, 1, None),), (right,))


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_wide_sums_of_the_greatest_numbers(dtype):
    """Whole sums of more of the greatest products than one chunk has, and zero points at the other end."""
    lowest, highest, depth = np.iinfo(dtype).min, np.iinfo(dtype).max, _CHUNK + 7
    a, b = np.full((1, depth), highest, dtype), np.full((depth, 1), highest, dtype)
    zero, one = np.full((1, 1), lowest, dtype), np.ones((1, 1), np.float32)
    arrays = {"a_tensor": a, "a_scale_tensor": one, "a_zero_point_tensor": zero, "b_tensor": b, "b_scale_tensor": one}
    arrays["b_zero_point_tensor"] = zero
    run = compile_operator(to_float_desc(**described(arrays), output_tensor=tensor("FLOAT32", 1, 1)))
    assert run(**arrays)[0, 0] == np.float32((2**32 - 1) ** 2 * depth)


@pytest.mark.parametrize("depth", [1, 2**30, 2**31 - 1])
def test_sums_of_halves_of_any_depth_are_rounded_once(depth):
    """Sums that would take hours to form: of products of the extreme numbers, and of ones between."""
    numbers = [2**32 - 1, 1 - 2**32, 0xFFFF, -0xFFFF, -(2**31), 0x1FFFF, -1, 3]
    for a, b in itertools.combinations_with_replacement(numbers, 2):
        (a_upper, a_lower), (b_upper, b_lower) = divmod(a, 2**16), divmod(b, 2**16)
        sums = [a_upper * b_upper, a_upper * b_lower, a_lower * b_upper, a_lower * b_lower]
        found = rounded_sum(*(np.array([[depth * each]]) for each in sums))
        assert found.dtype == np.float32
        assert int(found[0, 0]) == rounded_to_24_bits(depth * a * b), (a, b)


def rounded_to_24_bits(number):
    """Return an integer as float32 has it."""
    unit = 1 << max(abs(number).bit_length() - 24, 0)
    whole, rest = divmod(number, unit)
    return (whole + (2 * rest + whole % 2 > unit)) * unit


def test_many_calls_read_every_tensor_anew():
    """After some calls compiled code looks at the tensors, and writes where they lie to a kept call."""
    arrays = operands("UINT8", "INT8", "FLOAT32")
    run = compile_operator(to_float_desc(**described(arrays), output_tensor=tensor("FLOAT32", 2, M, N)))
    for call in range(70):
        given = {name: array.copy() for name, array in arrays.items()}
        given["bias_tensor"] += np.float32(call)
        given["b_scale_tensor"][0, call % N] = (np.nan, np.inf, -0.0)[call % 3]
        assert_same_bits((run(**given),), (expected(given),))
    given["bias_tensor"] = given["bias_tensor"][:, ::-1]  # which takes the long way
    assert_same_bits((run(**given),), (expected(given),))
