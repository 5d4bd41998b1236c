"""The descs of quantize_linear, dequantize_linear and dynamic_quantize_linear."""

from pathlib import Path

import numpy as np
import pytest
from desc_builders import OWNED, tensor
from feature_levels import ALL_TYPES, ANY, FOUR, levels_of, supported

import dmlcpu
from dmlcpu import QuantizationType, reference
from dmlcpu.errors import DmlError, InvalidDescriptorError, UnsupportedError

ROOT = Path(__file__).parents[2]
SCALE, BOTH = QuantizationType.SCALE, QuantizationType.SCALE_ZERO_POINT
X = np.array([[-4.5, -1, -0.5, 3, 8, -4, 6, 4]], np.float32)
SCALES = np.array([[0.5, 2]], np.float32)


def element_wise(is_quantize, x, scale, zero, y, *sizes, **strides):
    sizes = sizes or (1, 1, 2, 3)
    kind = (
        dmlcpu.ElementWiseQuantizeLinearOperatorDesc if is_quantize else dmlcpu.ElementWiseDequantizeLinearOperatorDesc
    )
    return kind(
        input_tensor=tensor(x, *sizes),
        scale_tensor=tensor(scale, *sizes, **strides),
        zero_point_tensor=zero and tensor(zero, *sizes, **strides),
        output_tensor=tensor(y, *sizes),
    )


def blocked(is_quantize, x, scale, zero, y, sizes=(1, 8), blocks=(1, 2), **fields):
    kind = dmlcpu.QuantizeOperatorDesc if is_quantize else dmlcpu.DequantizeOperatorDesc
    tensors = [tensor(scale, *blocks), *([tensor(zero, *blocks)] if zero else [])]
    given = {"quantization_type": BOTH if zero else SCALE, "quantization_tensors": tensors}
    given |= {"input_tensor": tensor(x, *sizes), "output_tensor": tensor(y, *sizes)}
    return kind(**{**given, **fields})


def dynamic(x="FLOAT32", y="UINT8", scale="FLOAT32", zero=None, sizes=(2, 3), one=(1, 1)):
    return dmlcpu.DynamicQuantizeLinearOperatorDesc(
        input_tensor=tensor(x, *sizes),
        output_tensor=tensor(y, *sizes),
        output_scale_tensor=tensor(scale, *one),
        output_zero_point_tensor=tensor(zero or y, *one),
    )


FLOATS, BYTES = "FLOAT32 FLOAT16", "INT8 UINT8"
STORED = "INT32 INT16 INT8 UINT32 UINT16 UINT8"
# Written down from Microsoft's pages: first level, the one after, dimensions, types of floats and of integers.
QUANTIZE_LEVELS = [
    ("1_0", "2_1", FOUR, "FLOAT32", "UINT8"),
    ("2_1", "3_0", FOUR, "FLOAT32 INT32", BYTES),
    ("3_0", "6_0", ANY, "FLOAT32 INT32", BYTES),
    ("6_0", None, ANY, f"{FLOATS} INT32", BYTES),
]
DEQUANTIZE_LEVELS = [
    ("1_0", "2_1", FOUR, "FLOAT32", "UINT8"),
    ("2_1", "3_0", FOUR, "FLOAT32", STORED),
    ("3_0", "6_0", ANY, "FLOAT32", STORED),
    ("6_0", None, ANY, FLOATS, STORED),
]


def allowed(make, level, types=ALL_TYPES):
    """Return the types that descs made of them may have at a level; a desc may refuse some by itself."""
    found = set()
    for each in types:
        try:
            found |= {each} if supported(make(each), level) else set()
        except InvalidDescriptorError:
            continue
    return found


@pytest.mark.parametrize("row", QUANTIZE_LEVELS)
def test_microsofts_table_of_quantize_linear(row):
    first, after, dimensions, high, low = row
    for level in levels_of(first, after):
        counts = [
            n for n in ANY if supported(element_wise(True, "FLOAT32", "FLOAT32", "UINT8", "UINT8", *[1] * n), level)
        ]
        assert counts == list(dimensions)
        assert allowed(
            lambda t: element_wise(True, t, "FLOAT16" if t == "FLOAT16" else "FLOAT32", "UINT8", "UINT8"), level
        ) == {*high.split()}
        assert allowed(lambda t: element_wise(True, "FLOAT32", "FLOAT32", t, t), level) == {*low.split()}


@pytest.mark.parametrize("row", DEQUANTIZE_LEVELS)
def test_microsofts_table_of_dequantize_linear(row):
    first, after, dimensions, high, low = row
    for level in levels_of(first, after):
        counts = [
            n for n in ANY if supported(element_wise(False, "UINT8", "FLOAT32", "UINT8", "FLOAT32", *[1] * n), level)
        ]
        assert counts == list(dimensions)
        assert allowed(lambda t: element_wise(False, "UINT8", t, "UINT8", t), level) == {*high.split()}
        assert allowed(lambda t: element_wise(False, t, "FLOAT32", t, "FLOAT32"), level) == {*low.split()}


@pytest.mark.parametrize("is_quantize", [True, False])
def test_zero_point_is_optional_from_6_2_on(is_quantize):
    types = ("FLOAT32", "FLOAT32", None, "UINT8") if is_quantize else ("UINT8", "FLOAT32", None, "FLOAT32")
    desc = element_wise(is_quantize, *types)
    assert [level for level in levels_of("1_0", None) if supported(desc, level)] == levels_of("6_2", None)
    with pytest.raises(
        UnsupportedError, match=r"ZeroPointTensor is missing; allowed: a tensor at .*optional from .*6_2 on"
    ):
        dmlcpu.compile_operator(desc, feature_level=dmlcpu.FeatureLevel.LEVEL_6_1)


def test_microsofts_tables_of_blocks_and_of_dynamic():
    for level in levels_of("6_3", None):
        for n in ANY:
            assert supported(blocked(True, "FLOAT32", "FLOAT32", None, "INT4", (1,) * n, (1,) * n), level)
        assert allowed(lambda t: blocked(True, t, t, "INT8", "INT8"), level) == {*FLOATS.split()}
        assert allowed(lambda t: blocked(False, "INT8", t, "INT8", t), level) == {*FLOATS.split()}
        for is_quantize in (True, False):
            sides = (
                (lambda t: ("FLOAT32", "FLOAT32", t, t)) if is_quantize else (lambda t: (t, "FLOAT32", t, "FLOAT32"))
            )
            found = allowed(lambda t, sides=sides, q=is_quantize: blocked(q, *sides(t)), level)
            assert found == {"INT8", "INT4", "UINT8", "UINT4"}
    for level in levels_of("4_0", None):
        assert all(supported(dynamic(sizes=(2,) * n, one=(1,) * n), level) for n in ANY)
        assert allowed(lambda t: dynamic(x=t), level) == {*FLOATS.split()}
        assert allowed(lambda t: dynamic(y=t), level) == {*BYTES.split()}
        assert allowed(lambda t: dynamic(scale=t), level) == {"FLOAT32"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: element_wise(True, "FLOAT32", "FLOAT16", "INT8", "INT8"),
            "ScaleTensor.DataType is FLOAT16; allowed: FL",
        ),
        (
            lambda: element_wise(True, "INT32", "INT32", "INT8", "INT8"),
            r"ScaleTensor.DataType is INT32; allowed: FLOAT32 \(",
        ),
        (lambda: element_wise(False, "INT8", "FLOAT16", "INT8", "FLOAT32"), "ScaleTensor.DataType is FLOAT16"),
        (
            lambda: element_wise(True, "FLOAT32", "FLOAT32", "INT8", "UINT8"),
            "ZeroPointTensor.DataType is INT8; allowed: UI",
        ),
        (lambda: element_wise(False, "INT8", "FLOAT32", "UINT8", "FLOAT32"), "ZeroPointTensor.DataType is UINT8"),
        (
            lambda: blocked(True, "FLOAT32", "FLOAT32", "INT4", "INT4", blocks=(1, 3)),
            r"\[0\].Sizes is \(1, 3\); allowed: s",
        ),
        (
            lambda: blocked(True, "FLOAT32", "FLOAT32", "INT4", "INT4", blocks=(2,)),
            r"\[0\].DimensionCount is 1; allowed: 2",
        ),
        (lambda: blocked(True, "FLOAT32", "FLOAT16", "INT4", "INT4"), r"QuantizationTensors\[0\].DataType is FLOAT16"),
        (lambda: blocked(True, "FLOAT32", "FLOAT32", "INT8", "INT4"), r"QuantizationTensors\[1\].DataType is INT8"),
        (
            lambda: blocked(False, "INT4", "FLOAT32", "INT4", "FLOAT32", quantization_type=QuantizationType.NONE),
            "QuantizationType is NONE; allowed: SCALE, SCALE_ZERO_POINT",
        ),
        (
            lambda: blocked(False, "INT4", "FLOAT32", None, "FLOAT32", quantization_type=BOTH),
            r"QuantizationTensorCount is 1; allowed: 2 \(QuantizationType is SCALE_ZERO_POINT\)",
        ),
        (
            lambda: blocked(
                False,
                "INT4",
                "FLOAT32",
                None,
                "FLOAT32",
                quantization_type=BOTH,
                quantization_tensors=[tensor("FLOAT32", 1, 2), tensor("INT4", 1, 1)],
            ),
            r"QuantizationTensors\[1\].Sizes is \(1, 1\); allowed: \(1, 2\)",
        ),
        (lambda: dynamic(one=(1, 2)), r"OutputScaleTensor.Sizes is \(1, 2\); allowed: \(1, 1\)"),
        (lambda: dynamic(one=(1,)), "OutputScaleTensor.DimensionCount is 1; allowed: 2"),
        (lambda: blocked(False, "INT8", "INT32", "INT8", "FLOAT32"), r"QuantizationTensors\[0\].DataType is INT32"),
        (lambda: dynamic(zero="INT8"), "OutputZeroPointTensor.DataType is INT8; allowed: UINT8"),
    ],
)
def test_desc_that_contradicts_itself_is_refused(make, message):
    with pytest.raises(InvalidDescriptorError, match=message):
        make()


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (blocked(True, "FLOAT32", "FLOAT32", "INT8", "INT16"), "OutputTensor.DataType is INT16; allowed: INT8, INT4"),
        (blocked(True, "INT32", "FLOAT16", None, "INT8"), "InputTensor.DataType is INT32; allowed: FLOAT32, FLOAT16"),
        (blocked(False, "INT8", "FLOAT32", "INT8", "INT32"), "OutputTensor.DataType is INT32; allowed: FLOAT32"),
        (dynamic(y="INT16", zero="INT8"), "OutputTensor.DataType is INT16; allowed: INT8, UINT8"),
    ],
)
def test_of_two_types_that_differ_the_one_that_no_level_has_is_refused(desc, message):
    with pytest.raises(UnsupportedError, match=message):
        dmlcpu.compile_operator(desc)


def test_one_size_for_a_scale_of_all_is_refused_as_directml_does():
    with pytest.raises(InvalidDescriptorError, match=r"ScaleTensor.Sizes is \(1, 1, 1, 1\); allowed: \(1, 1, 2, 3\)"):
        dmlcpu.ElementWiseQuantizeLinearOperatorDesc(
            input_tensor=tensor("FLOAT32", 1, 1, 2, 3),
            scale_tensor=tensor("FLOAT32", 1, 1, 1, 1),
            output_tensor=tensor("UINT8", 1, 1, 2, 3),
        )


@pytest.mark.parametrize("x", ["FLOAT32", "FLOAT16", "INT32"])
def test_scales_of_channels_by_strides_of_0(x):
    scale = "FLOAT16" if x == "FLOAT16" else "FLOAT32"
    operator = dmlcpu.compile_operator(element_wise(True, x, scale, "INT8", "INT8", strides=(0, 0, 1, 0)))
    values = np.arange(6).reshape(1, 1, 2, 3).astype(x.lower())
    scales, zeros = np.array([0.5, 2], scale.lower()), np.array([0, 100], np.int8)
    found = operator(input_tensor=values, scale_tensor=scales, zero_point_tensor=zeros)
    assert found.tolist() == [[[[0, 2, 4], [102, 102, 102]]]]


def test_bad_scale_names_the_field():
    operator = dmlcpu.compile_operator(blocked(True, "FLOAT32", "FLOAT32", None, "INT8"))
    scale, out = np.array([[1, -1]], np.float32), np.full((1, 8), 9, np.int8)
    with pytest.raises(
        DmlError, match=r"DML_OPERATOR_QUANTIZE: QuantizationTensors\[0\]\[0, 1\] is -1.0; allowed: finite"
    ):
        operator(input_tensor=X, quantization_tensors=[scale], output_tensor=out)
    run = operator.bind(input_tensor=X, quantization_tensors=[SCALES], output_tensor=out)
    SCALES_BEFORE = SCALES.copy()
    assert (run() == reference.quantize_linear(X, SCALES_BEFORE, out_dtype=np.int8)).all()


def test_owned_scale_is_checked_once():
    scales = [tensor("FLOAT32", 1, 2, flags=OWNED)]
    operator = dmlcpu.compile_operator(blocked(True, "FLOAT32", "FLOAT32", None, "INT8", quantization_tensors=scales))
    with pytest.raises(DmlError, match=r"QuantizationTensors\[0\]\[0, 0\] is 0.0"):
        operator.initialize(quantization_tensors=[np.array([[0, 1]], np.float32)])
    operator.initialize(quantization_tensors=[SCALES])
    assert (operator(input_tensor=X) == reference.quantize_linear(X, SCALES, out_dtype=np.int8)).all()


def test_dynamic_names_the_input():
    operator = dmlcpu.compile_operator(dynamic(y="INT8"))
    x = np.array([[0, 2, -3], [-2.5, 1.34, 0.5]], np.float32)
    found = operator(input_tensor=x)
    assert isinstance(found, dmlcpu.DynamicQuantized)
    assert found.y.tolist() == [[25, 127, -128], [-102, 93, 51]]
    assert (found.scale.shape, found.zero_point.tolist()) == ((1, 1), [[25]])
    x[1, 0] = np.nan
    with pytest.raises(DmlError, match=r"DML_OPERATOR_DYNAMIC_QUANTIZE_LINEAR: InputTensor\[1, 0\] is nan"):
        operator(input_tensor=x)
