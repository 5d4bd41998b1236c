import numpy as np
import pytest

from dmlcpu import AxisDirection, FeatureLevel, OperatorType, TensorDataType, TensorFlags
from dmlcpu.directml.enums import full_name, meant, parse_enum
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError


def numbers(enumeration):
    return {name: int(member) for name, member in enumeration.__members__.items()}


def test_the_numbers_are_directmls():
    assert numbers(TensorDataType) == {
        "UNKNOWN": 0,
        "FLOAT32": 1,
        "FLOAT16": 2,
        "UINT32": 3,
        "UINT16": 4,
        "UINT8": 5,
        "INT32": 6,
        "INT16": 7,
        "INT8": 8,
        "FLOAT64": 9,
        "UINT64": 10,
        "INT64": 11,
        "UINT4": 12,
        "INT4": 13,
    }
    assert numbers(TensorFlags) == {"NONE": 0, "OWNED_BY_DML": 1}
    assert numbers(AxisDirection) == {"INCREASING": 0, "DECREASING": 1}
    assert numbers(OperatorType) == {
        "ELEMENT_WISE_QUANTIZE_LINEAR": 33,
        "ELEMENT_WISE_DEQUANTIZE_LINEAR": 34,
        "TOP_K": 71,
        "SCATTER": 94,
        "SCATTER_ELEMENTS": 94,
        "GATHER_ELEMENTS": 107,
        "SCATTER_ND": 109,
        "TOP_K1": 112,
        "MATRIX_MULTIPLY_INTEGER": 117,
        "QUANTIZED_LINEAR_MATRIX_MULTIPLY": 118,
        "ARGMIN": 137,
        "ARGMAX": 138,
        "DYNAMIC_QUANTIZE_LINEAR": 148,
        "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": 170,
        "QUANTIZE": 173,
        "DEQUANTIZE": 174,
    }
    assert numbers(FeatureLevel) == {
        "LEVEL_1_0": 0x1000,
        "LEVEL_2_0": 0x2000,
        "LEVEL_2_1": 0x2100,
        "LEVEL_3_0": 0x3000,
        "LEVEL_3_1": 0x3100,
        "LEVEL_4_0": 0x4000,
        "LEVEL_4_1": 0x4100,
        "LEVEL_5_0": 0x5000,
        "LEVEL_5_1": 0x5100,
        "LEVEL_5_2": 0x5200,
        "LEVEL_6_0": 0x6000,
        "LEVEL_6_1": 0x6100,
        "LEVEL_6_2": 0x6200,
        "LEVEL_6_3": 0x6300,
        "LEVEL_6_4": 0x6400,
    }


NAMES = [
    (TensorDataType.FLOAT32, "DML_TENSOR_DATA_TYPE_FLOAT32", "FLOAT32"),
    (TensorFlags.OWNED_BY_DML, "DML_TENSOR_FLAG_OWNED_BY_DML", "OWNED_BY_DML"),
    (AxisDirection.INCREASING, "DML_AXIS_DIRECTION_INCREASING", "INCREASING"),
    (OperatorType.TOP_K1, "DML_OPERATOR_TOP_K1", "TOP_K1"),
    (FeatureLevel.LEVEL_2_1, "DML_FEATURE_LEVEL_2_1", "LEVEL_2_1"),
]


@pytest.mark.parametrize(("member", "full", "suffix"), NAMES)
def test_names(member, full, suffix):
    assert full_name(member) == full
    for text in (full, suffix):
        assert parse_enum(type(member), text, "op", "Field") is member


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SIDEWAYS", "'SIDEWAYS'"),
        ("decreasing", "'decreasing'"),
        (1, "1"),
        (None, "None"),
        (["INCREASING"], "['INCREASING']"),
    ],
)
def test_an_unknown_name_is_refused_with_all_that_are_known(text, found):
    with pytest.raises(InvalidDescriptorError) as caught:
        parse_enum(AxisDirection, text, "DML_OPERATOR_TOP_K1", "AxisDirection")
    assert str(caught.value) == (f"DML_OPERATOR_TOP_K1: AxisDirection is {found}; allowed: INCREASING, DECREASING")


def test_unknown_types_are_read_but_not_offered():
    assert parse_enum(TensorDataType, "UNKNOWN", "op", "Field") is TensorDataType.UNKNOWN
    with pytest.raises(InvalidDescriptorError) as caught:
        parse_enum(TensorDataType, "FLOAT31", "op", "Field")
    assert caught.value.allowed == ", ".join(member.name for member in TensorDataType if member.bits)


@pytest.mark.parametrize(
    ("kind", "value", "member"),
    [
        (AxisDirection, 1, "AxisDirection.DECREASING"),
        (AxisDirection, "DECREASING", "AxisDirection.DECREASING"),
        (AxisDirection, "DML_AXIS_DIRECTION_INCREASING", "AxisDirection.INCREASING"),
        (TensorFlags, 0, "TensorFlags.NONE"),
        (FeatureLevel, 0x2100, "FeatureLevel.LEVEL_2_1"),
        (AxisDirection, 2, None),
        (AxisDirection, True, None),
        (AxisDirection, 1.0, None),
        (AxisDirection, "decreasing", None),
        (AxisDirection, None, None),
        (TensorDataType, 0, None),
        (TensorDataType, "UNKNOWN", None),
    ],
)
def test_what_a_value_stands_for(kind, value, member):
    assert meant(kind, value) == member


@pytest.mark.parametrize(
    "name", ["float16", "float32", "float64", *(f"{s}int{bits}" for s in ("", "u") for bits in (8, 16, 32, 64))]
)
def test_numpy_types(name):
    member = TensorDataType[name.upper()]
    assert member.dtype == np.dtype(name)
    assert member.bits == 8 * np.dtype(name).itemsize


@pytest.mark.parametrize(("name", "bits"), [("UNKNOWN", 0), ("UINT4", 4), ("INT4", 4)])
def test_types_that_numpy_has_not(name, bits):
    member = TensorDataType[name]
    assert member.bits == bits
    with pytest.raises(UnsupportedError) as caught:
        _ = member.dtype
    assert str(caught.value) == (
        f"DML_TENSOR_DATA_TYPE: DataType is {name}; allowed: "
        "FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64"
    )


def test_there_are_no_other_flags():
    with pytest.raises(ValueError, match="2"):
        TensorFlags(2)
