"""DML_ELEMENT_WISE_DEQUANTIZE_LINEAR and DML_DEQUANTIZE: integers of 4 to 32 bits as floats."""

from dataclasses import dataclass
from typing import ClassVar

from dmlcpu.directml.base import counted_by
from dmlcpu.directml.enums import FeatureLevel, OperatorType, QuantizationType
from dmlcpu.directml.feature_level import FOUR, ONE_TO_EIGHT, Allowed, Support, Types, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.quantizers.descriptor import BlockedDesc, ElementWiseDesc

_FLOAT32, _FLOATS = types("FLOAT32"), types("FLOAT32 FLOAT16")
_UINT8, _STORED = types("UINT8"), types("INT32 INT16 INT8 UINT32 UINT16 UINT8")
_BLOCKED = types("INT8 INT4 UINT8 UINT4")


def _level(since: FeatureLevel, dimensions: range, high: Types, scale: Types, low: Types, zero: bool = True) -> Support:
    """Return a row; zero: the zero point is required."""
    tensors = {
        "InputTensor": Allowed(dimensions, low),
        "ScaleTensor": Allowed(dimensions, scale),
        "ZeroPointTensor": Allowed(dimensions, low, required=zero),
        "OutputTensor": Allowed(dimensions, high),
    }
    return Support(since, tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementWiseDequantizeLinearOperatorDesc(ElementWiseDesc):
    """DML_ELEMENT_WISE_DEQUANTIZE_LINEAR: dequantize the input, with a scale and a zero point for each element.

    If all elements, or those of a channel, have one scale, the scale tensor still has the input's sizes. Its strides
    are 0 along the dimensions in which the scale repeats.

    Parameters
    ----------
    input_tensor : TensorDesc
        INT32, INT16, INT8, UINT32, UINT16 or UINT8.
    scale_tensor : TensorDesc
        The input's sizes; the output's DataType.
    zero_point_tensor : TensorDesc, optional
        The input's sizes and the input's DataType. Without it, the zero points are 0. Feature
        levels before 6_2 require it.
    output_tensor : TensorDesc
        The input's sizes; FLOAT32 or FLOAT16.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC``. The exact numbers are those
    of `dmlcpu.dequantize_linear`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import ElementWiseDequantizeLinearOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> desc = ElementWiseDequantizeLinearOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.UINT8, sizes=(1, 1, 2, 2)),
    ...     scale_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 2, 2), strides=(0, 0, 0, 0)),
    ...     zero_point_tensor=TensorDesc(TensorDataType.UINT8, sizes=(1, 1, 2, 2), strides=(0, 0, 0, 0)),
    ...     output_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 2, 2)),
    ... )
    >>> compile_operator(desc)(
    ...     input_tensor=np.array([[[[11, 12], [0, 255]]]], np.uint8),
    ...     scale_tensor=np.array([0.5], np.float32),
    ...     zero_point_tensor=np.array([10], np.uint8),
    ... )
    array([[[[  0.5,   1. ],
             [ -5. , 122.5]]]], dtype=float32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.ELEMENT_WISE_DEQUANTIZE_LINEAR
    OUTPUTS: ClassVar = ("output_tensor",)
    KERNELS: ClassVar = "dequantize_linear"
    FEATURE_LEVELS: ClassVar = (
        _level(FeatureLevel.LEVEL_1_0, FOUR, _FLOAT32, _FLOAT32, _UINT8),
        _level(FeatureLevel.LEVEL_2_1, FOUR, _FLOAT32, _FLOAT32, _STORED),
        _level(FeatureLevel.LEVEL_3_0, ONE_TO_EIGHT, _FLOAT32, _FLOAT32, _STORED),
        _level(FeatureLevel.LEVEL_6_0, ONE_TO_EIGHT, _FLOATS, _FLOATS, _STORED),
        _level(FeatureLevel.LEVEL_6_2, ONE_TO_EIGHT, _FLOATS, _FLOATS, _STORED, zero=False),
    )

    input_tensor: TensorDesc
    scale_tensor: TensorDesc
    zero_point_tensor: TensorDesc | None = None
    output_tensor: TensorDesc


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizeOperatorDesc(BlockedDesc):
    """DML_DEQUANTIZE: dequantize the input, with a scale and a zero point for each block of elements.

    In each dimension the scale's size divides the input's; the quotient is the size of a block. In a tensor of 4-bit
    elements, a byte has two elements, the first in the low bits. Bind it as bytes, or as an array of ml_dtypes' int4 or
    uint4.

    Parameters
    ----------
    input_tensor : TensorDesc
        INT8, INT4, UINT8 or UINT4.
    quantization_type : QuantizationType
        SCALE or SCALE_ZERO_POINT.
    quantization_tensors : tuple of TensorDesc
        The scale, of the output's DataType; with SCALE_ZERO_POINT also the zero point, of the scale's sizes and the
        input's DataType. DirectML's QuantizationTensorCount is their number.
    output_tensor : TensorDesc
        The input's sizes; FLOAT32 or FLOAT16.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_DEQUANTIZE_OPERATOR_DESC``. The exact numbers are those of
    `dmlcpu.dequantize_linear`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import QuantizationType, DequantizeOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> desc = DequantizeOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.INT4, sizes=(1, 8)),
    ...     quantization_type=QuantizationType.SCALE_ZERO_POINT,
    ...     quantization_tensors=[
    ...         TensorDesc(TensorDataType.FLOAT32, sizes=(1, 2)),
    ...         TensorDesc(TensorDataType.INT4, sizes=(1, 2)),
    ...     ],
    ...     output_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 8)),
    ... )
    >>> scale, zero_point = np.array([[0.5, 2]], np.float32), bytes.fromhex("f1")
    >>> compile_operator(desc)(
    ...     input_tensor=bytes.fromhex("f870d312"),
    ...     quantization_tensors=[scale, zero_point],
    ... )
    array([[-4.5, -1. , -0.5,  3. ,  8. , -4. ,  6. ,  4. ]], dtype=float32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.DEQUANTIZE
    OUTPUTS: ClassVar = ("output_tensor",)
    KERNELS: ClassVar = "dequantize_linear"
    FEATURE_LEVELS: ClassVar = (
        Support(
            FeatureLevel.LEVEL_6_3,
            {
                "InputTensor": Allowed(ONE_TO_EIGHT, _BLOCKED),
                "QuantizationTensors[0]": Allowed(ONE_TO_EIGHT, _FLOATS),
                "QuantizationTensors[1]": Allowed(ONE_TO_EIGHT, _BLOCKED),
                "OutputTensor": Allowed(ONE_TO_EIGHT, _FLOATS),
            },
        ),
    )

    input_tensor: TensorDesc
    quantization_type: QuantizationType
    quantization_tensors: tuple[TensorDesc, ...] = counted_by("QuantizationTensorCount")
    output_tensor: TensorDesc
