"""DML_DYNAMIC_QUANTIZE_LINEAR: an array quantized by the range of its elements."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dmlcpu.common.forms import form_of, strides_of
from dmlcpu.directml.base import Bound, Key, OperatorDesc, dml_name
from dmlcpu.directml.enums import FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import ONE_TO_EIGHT, Allowed, Support, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.dynamic_quantize_linear.function import DynamicQuantized
from dmlcpu.quantizers.dynamic import check_range, prepare

_BYTES = Allowed(ONE_TO_EIGHT, types("INT8 UINT8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicQuantizeLinearOperatorDesc(OperatorDesc[DynamicQuantized]):
    """DML_DYNAMIC_QUANTIZE_LINEAR: quantize the input by the range of its elements and 0.

    Parameters
    ----------
    input_tensor : TensorDesc
        FLOAT32 or FLOAT16.
    output_tensor : TensorDesc
        The input's sizes; INT8 or UINT8.
    output_scale_tensor : TensorDesc
        One element of FLOAT32; as many dimensions as the input.
    output_zero_point_tensor : TensorDesc
        One element of the output's DataType; as many dimensions as the input.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_DYNAMIC_QUANTIZE_LINEAR_OPERATOR_DESC``. The exact numbers are those of
    `dmlcpu.dynamic_quantize_linear`. A call refuses an input with elements that are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import DynamicQuantizeLinearOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> desc = DynamicQuantizeLinearOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(6,)),
    ...     output_tensor=TensorDesc(TensorDataType.INT8, sizes=(6,)),
    ...     output_scale_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1,)),
    ...     output_zero_point_tensor=TensorDesc(TensorDataType.INT8, sizes=(1,)),
    ... )
    >>> result = compile_operator(desc)(input_tensor=np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32))
    >>> result.y
    array([  25,  127, -128, -102,   93,   51], dtype=int8)
    >>> result.scale, result.zero_point
    (array([0.01960784], dtype=float32), array([25], dtype=int8))
    """

    OPERATOR_TYPE: ClassVar = OperatorType.DYNAMIC_QUANTIZE_LINEAR
    OUTPUTS: ClassVar = ("output_tensor", "output_scale_tensor", "output_zero_point_tensor")
    RESULT: ClassVar = DynamicQuantized
    FEATURE_LEVELS: ClassVar = (
        Support(
            FeatureLevel.LEVEL_4_0,
            {
                "InputTensor": Allowed(ONE_TO_EIGHT, types("FLOAT32 FLOAT16")),
                "OutputTensor": _BYTES,
                "OutputScaleTensor": Allowed(ONE_TO_EIGHT, types("FLOAT32")),
                "OutputZeroPointTensor": _BYTES,
            },
        ),
    )

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    output_scale_tensor: TensorDesc
    output_zero_point_tensor: TensorDesc

    def _check(self) -> None:
        sizes = self.input_tensor.sizes
        for name in self.OUTPUTS:
            self._check_same_count(name, "input_tensor")
            is_one = name != "output_tensor"
            wanted, why = ((1,) * len(sizes), "one element") if is_one else (sizes, "InputTensor.Sizes")
            self._check_sizes(dml_name(name), getattr(self, name), wanted, why)
        self._check_same_type("output_zero_point_tensor", "output_tensor")

    def _key(self, arrays: Any) -> Key:
        x, y = arrays[:2]
        return prepare, (form_of(x), None, y.dtype, strides_of(y))

    def _refuse(self, bound: Bound, refused: Any) -> None:
        check_range(bound["input_tensor"], None, self.operator, "InputTensor")
