"""DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY: products of 8-bit matrices, dequantized and quantized again."""

from dataclasses import dataclass
from typing import ClassVar

from dmlcpu.descriptors.base import OperatorDesc
from dmlcpu.descriptors.checks import check_range
from dmlcpu.descriptors.enums import OperatorType
from dmlcpu.descriptors.tensor import TensorDesc
from dmlcpu.errors import InvalidDescriptorError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedLinearMatrixMultiplyOperatorDesc(OperatorDesc):
    """DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY: dequantize A and B, multiply, quantize.

    Scales and zero points have 1 to 4 dimensions, all 1 (one value for the tensor) but for the choice of one value for
    each row, M last but one, or for each column, N last.

    Parameters
    ----------
    a_tensor : TensorDesc
        Sizes (..., M, K), INT8 or UINT8.
    a_scale_tensor : TensorDesc
        FLOAT32; one value, or one for each of A's rows.
    a_zero_point_tensor : TensorDesc, optional
        A's DataType; the same choice of sizes. Without it, 0.
    b_tensor : TensorDesc
        Sizes (..., K, N), INT8 or UINT8. Flagged OWNED_BY_DML it is packed once, by `CompiledOperator.initialize`.
    b_scale_tensor : TensorDesc
        FLOAT32; one value, or one for each of B's columns.
    b_zero_point_tensor : TensorDesc, optional
        B's DataType; the same choice of sizes. Without it, 0.
    output_scale_tensor : TensorDesc
        FLOAT32; one value, or one for each of the output's rows.
    output_zero_point_tensor : TensorDesc, optional
        The output's DataType; the same choice of sizes. Without it, 0.
    output_tensor : TensorDesc
        Sizes (..., M, N), INT8 or UINT8.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field is of the wrong Python kind.

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

    a_tensor: TensorDesc
    a_scale_tensor: TensorDesc
    a_zero_point_tensor: TensorDesc | None = None
    b_tensor: TensorDesc
    b_scale_tensor: TensorDesc
    b_zero_point_tensor: TensorDesc | None = None
    output_scale_tensor: TensorDesc
    output_zero_point_tensor: TensorDesc | None = None
    output_tensor: TensorDesc

    def _check(self) -> None:
        self._check_product()
        *_, M, _K = self.a_tensor.sizes
        N = self.b_tensor.sizes[-1]
        self._check_values("AScaleTensor", self.a_scale_tensor, (M, 1), "one for each row")
        self._check_values("BScaleTensor", self.b_scale_tensor, (N,), "one for each column")
        self._check_values("OutputScaleTensor", self.output_scale_tensor, (M, 1), "one for each row")
        for field, zero_point, per, like, tensor in (
            ("AZeroPointTensor", self.a_zero_point_tensor, (M, 1), "ATensor", self.a_tensor),
            ("BZeroPointTensor", self.b_zero_point_tensor, (N,), "BTensor", self.b_tensor),
            ("OutputZeroPointTensor", self.output_zero_point_tensor, (M, 1), "OutputTensor", self.output_tensor),
        ):
            if zero_point is not None:
                self._check_values(
                    field, zero_point, per, "one for each row" if len(per) == 2 else "one for each column"
                )
                self._check_same_type(field, zero_point, like, tensor)

    def _check_product(self) -> None:
        a, b, y = self.a_tensor, self.b_tensor, self.output_tensor
        check_range(self.operator, "ATensor.DimensionCount", a.dimension_count, 2, 8)
        self._check_same_count("BTensor", b, "ATensor", a)
        self._check_same_count("OutputTensor", y, "ATensor", a)
        *batch, M, K = a.sizes
        N = b.sizes[-1]
        self._check_sizes("BTensor", b, (*batch, K, N), "{..., K, N}, ATensor being {..., M, K}")
        self._check_sizes("OutputTensor", y, (*batch, M, N), "{..., M, N}")

    def _check_values(self, field: str, tensor: TensorDesc, per: tuple[int, ...], meaning: str) -> None:
        D = tensor.dimension_count
        one = (1,) * D
        each = (1,) * (D - len(per)) + per
        if tensor.sizes == one or tensor.sizes == each:
            return
        allowed = f"{one}, or {each} ({meaning})" if len(each) == D and each != one else f"{one}"
        raise InvalidDescriptorError(self.operator, f"{field}.Sizes", str(tensor.sizes), allowed)
