"""DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY: products of 8-bit matrices, dequantized and quantized again."""

from dataclasses import dataclass
from typing import ClassVar

from dmlcpu.directml.enums import FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import FOUR, Allowed, Support, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.products.descriptor import ProductDesc


def _level(since: FeatureLevel, matrices: range, values: range) -> Support:
    tensors = {
        "Tensor": Allowed(matrices, types("INT8 UINT8")),
        "ScaleTensor": Allowed(values, types("FLOAT32")),
        "ZeroPointTensor": Allowed(values, types("INT8 UINT8")),
    }
    return Support(since, {f"{of}{kind}": allowed for of in ("A", "B", "Output") for kind, allowed in tensors.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedLinearMatrixMultiplyOperatorDesc(ProductDesc):
    """DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY: multiply quantized matrices A and B, and quantize the product.

    Scales and zero points have 1 to 4 dimensions. One value for the whole tensor has sizes (..., 1), one value for each
    row (..., M, 1), and one value for each column (..., N); all other sizes are 1.

    Parameters
    ----------
    a_tensor : TensorDesc
        Sizes (..., M, K), INT8 or UINT8.
    a_scale_tensor : TensorDesc
        FLOAT32; one value, or one for each of A's rows.
    a_zero_point_tensor : TensorDesc, optional
        A's DataType; one value, or one for each of A's rows. Without it, 0.
    b_tensor : TensorDesc
        Sizes (..., K, N), INT8 or UINT8. `CompiledOperator.initialize` packs it once if it is flagged OWNED_BY_DML.
    b_scale_tensor : TensorDesc
        FLOAT32; one value, or one for each of B's columns.
    b_zero_point_tensor : TensorDesc, optional
        B's DataType; one value, or one for each of B's columns. Without it, 0.
    output_scale_tensor : TensorDesc
        FLOAT32; one value, or one for each of the output's rows.
    output_zero_point_tensor : TensorDesc, optional
        The output's DataType; one value, or one for each of the output's rows. Without it, 0.
    output_tensor : TensorDesc
        Sizes (..., M, N), INT8 or UINT8.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY_OPERATOR_DESC``. The result is exact
    to the last bit: an integer sum that never wraps, times ``float32(a_scale * b_scale) / y_scale`` in float32,
    rounded half to even; then the zero point is added and the sum clipped to the output's type.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import QuantizedLinearMatrixMultiplyOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> scale = TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 1, 1))
    >>> desc = QuantizedLinearMatrixMultiplyOperatorDesc(
    ...     a_tensor=TensorDesc(TensorDataType.UINT8, sizes=(1, 1, 2, 3)),
    ...     a_scale_tensor=scale,
    ...     b_tensor=TensorDesc(TensorDataType.INT8, sizes=(1, 1, 3, 2)),
    ...     b_scale_tensor=scale,
    ...     output_scale_tensor=scale,
    ...     output_tensor=TensorDesc(TensorDataType.INT8, sizes=(1, 1, 2, 2)),
    ... )
    >>> one = np.ones((1, 1, 1, 1), np.float32)
    >>> compile_operator(desc)(
    ...     a_tensor=np.array([[[[1, 2, 3], [4, 5, 6]]]], np.uint8),
    ...     a_scale_tensor=one,
    ...     b_tensor=np.array([[[[1, 0], [0, 1], [-1, 10]]]], np.int8),
    ...     b_scale_tensor=one,
    ...     output_scale_tensor=one,
    ... )
    array([[[[-2, 32],
             [-2, 65]]]], dtype=int8)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.QUANTIZED_LINEAR_MATRIX_MULTIPLY
    OUTPUTS: ClassVar = ("output_tensor",)
    KERNELS: ClassVar = "quantized_matmul"
    POSITIVE: ClassVar = ("a_scale_tensor", "b_scale_tensor", "output_scale_tensor")
    FEATURE_LEVELS: ClassVar = (
        _level(FeatureLevel.LEVEL_2_1, matrices=FOUR, values=FOUR),
        _level(FeatureLevel.LEVEL_4_0, matrices=range(2, 5), values=range(1, 5)),
    )

    a_tensor: TensorDesc
    a_scale_tensor: TensorDesc
    a_zero_point_tensor: TensorDesc | None = None
    b_tensor: TensorDesc
    b_scale_tensor: TensorDesc
    b_zero_point_tensor: TensorDesc | None = None
    output_scale_tensor: TensorDesc
    output_zero_point_tensor: TensorDesc | None = None
    output_tensor: TensorDesc
