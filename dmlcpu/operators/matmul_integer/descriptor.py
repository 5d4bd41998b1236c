"""DML_MATRIX_MULTIPLY_INTEGER: the integer sums of products of 8-bit matrices."""

from dataclasses import dataclass
from typing import ClassVar

from dmlcpu.directml.enums import FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import FOUR, Allowed, Support, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.products.descriptor import ProductDesc

_BYTES = types("INT8 UINT8")


def _level(since: FeatureLevel, matrices: range, a_values: range, b_values: range) -> Support:
    tensors = {
        "ATensor": Allowed(matrices, _BYTES),
        "AZeroPointTensor": Allowed(a_values, _BYTES),
        "BTensor": Allowed(matrices, _BYTES),
        "BZeroPointTensor": Allowed(b_values, _BYTES),
        "OutputTensor": Allowed(matrices, types("INT32")),
    }
    return Support(since, tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixMultiplyIntegerOperatorDesc(ProductDesc):
    """DML_MATRIX_MULTIPLY_INTEGER: multiply A and B, less their zero points, as integers.

    Zero points have 1 to 4 dimensions. One value for the whole tensor has sizes (..., 1), one value for each row of A
    (..., M, 1), and one value for each column of B (..., N); all other sizes are 1.

    Parameters
    ----------
    a_tensor : TensorDesc
        Sizes (..., M, K), INT8 or UINT8.
    a_zero_point_tensor : TensorDesc, optional
        A's DataType; one value, or one for each of A's rows. Without it, 0.
    b_tensor : TensorDesc
        Sizes (..., K, N), INT8 or UINT8. `CompiledOperator.initialize` packs it once if it is flagged OWNED_BY_DML.
    b_zero_point_tensor : TensorDesc, optional
        B's DataType; one value, or one for each of B's columns. Without it, 0.
    output_tensor : TensorDesc
        Sizes (..., M, N), INT32.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_MATRIX_MULTIPLY_INTEGER_OPERATOR_DESC``. DirectML does not specify sums
    beyond 32 bits; dmlcpu's are exact modulo 2**32.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import MatrixMultiplyIntegerOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> desc = MatrixMultiplyIntegerOperatorDesc(
    ...     a_tensor=TensorDesc(TensorDataType.UINT8, sizes=(1, 1, 2, 3)),
    ...     b_tensor=TensorDesc(TensorDataType.INT8, sizes=(1, 1, 3, 2)),
    ...     output_tensor=TensorDesc(TensorDataType.INT32, sizes=(1, 1, 2, 2)),
    ... )
    >>> compile_operator(desc)(
    ...     a_tensor=np.array([[[[1, 2, 3], [4, 5, 6]]]], np.uint8),
    ...     b_tensor=np.array([[[[1, 0], [0, 1], [-1, 10]]]], np.int8),
    ... )
    array([[[[-2, 32],
             [-2, 65]]]], dtype=int32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.MATRIX_MULTIPLY_INTEGER
    OUTPUTS: ClassVar = ("output_tensor",)
    KERNELS: ClassVar = "matmul_integer"
    FEATURE_LEVELS: ClassVar = (
        _level(FeatureLevel.LEVEL_2_1, FOUR, FOUR, FOUR),
        _level(FeatureLevel.LEVEL_4_0, range(2, 5), range(1, 5), range(2, 5)),
        _level(FeatureLevel.LEVEL_5_2, range(2, 5), range(1, 5), range(1, 5)),
    )

    a_tensor: TensorDesc
    a_zero_point_tensor: TensorDesc | None = None
    b_tensor: TensorDesc
    b_zero_point_tensor: TensorDesc | None = None
    output_tensor: TensorDesc
