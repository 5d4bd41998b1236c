"""DML_MATRIX_MULTIPLY_INTEGER_TO_FLOAT: products of integer matrices, scaled to floating point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dmlcpu.common.arguments import Array
from dmlcpu.common.prepared import ByFunction
from dmlcpu.directml.base import Bound, Key
from dmlcpu.directml.enums import FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import Allowed, Support, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.matmul_integer_to_float.wide import exact_sums, write_scaled
from dmlcpu.products.descriptor import ProductDesc, matrices_of

_INTEGERS, _FLOATS = types("INT32 INT16 INT8 UINT32 UINT16 UINT8"), types("FLOAT32 FLOAT16")
_BYTES = types("INT8 UINT8")
_MATRIX, _VALUES = range(2, 5), range(1, 5)
_PARAMETERS = ("a_scale_tensor", "a_zero_point_tensor", "b_scale_tensor", "b_zero_point_tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixMultiplyIntegerToFloatOperatorDesc(ProductDesc):
    """DML_MATRIX_MULTIPLY_INTEGER_TO_FLOAT: multiply quantized matrices A and B, scale the sums, and add a bias.

    Scales and zero points have 1 to 4 dimensions, and all of them have the same number of dimensions. One value for the
    whole tensor has sizes (..., 1), one value for each row of A (..., M, 1), and one value for each column of B
    (..., N); all other sizes are 1.

    Parameters
    ----------
    a_tensor : TensorDesc
        Sizes (..., M, K), integers of 8, 16 or 32 bits.
    a_scale_tensor : TensorDesc
        The output's DataType; one value, or one for each of A's rows.
    a_zero_point_tensor : TensorDesc, optional
        A's DataType; one value, or one for each of A's rows. Without it, 0.
    b_tensor : TensorDesc
        Sizes (..., K, N), A's DataType; INT8 and UINT8 mix. `CompiledOperator.initialize` packs a B of bytes once if it
        is flagged OWNED_BY_DML.
    b_scale_tensor : TensorDesc
        The output's DataType; one value, or one for each of B's columns.
    b_zero_point_tensor : TensorDesc, optional
        B's DataType; one value, or one for each of B's columns. Without it, 0.
    bias_tensor : TensorDesc, optional
        The output's DataType and sizes; strides of 0 repeat it.
    output_tensor : TensorDesc
        Sizes (..., M, N), FLOAT32 or FLOAT16.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_MATRIX_MULTIPLY_INTEGER_TO_FLOAT_OPERATOR_DESC``. The sums are exact for
    all types. They are converted to float32, multiplied by ``float32(a_scale * b_scale)``, and the bias is added; each
    step rounds once, and so does the conversion to FLOAT16. Only 8-bit A and B have fast kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import MatrixMultiplyIntegerToFloatOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> scale = TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 1, 1))
    >>> desc = MatrixMultiplyIntegerToFloatOperatorDesc(
    ...     a_tensor=TensorDesc(TensorDataType.UINT8, sizes=(1, 1, 2, 3)),
    ...     a_scale_tensor=scale,
    ...     b_tensor=TensorDesc(TensorDataType.INT8, sizes=(1, 1, 3, 2)),
    ...     b_scale_tensor=scale,
    ...     output_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 2, 2)),
    ... )
    >>> compile_operator(desc)(
    ...     a_tensor=np.array([[[[1, 2, 3], [4, 5, 6]]]], np.uint8),
    ...     a_scale_tensor=np.full((1, 1, 1, 1), 0.5, np.float32),
    ...     b_tensor=np.array([[[[1, 0], [0, 1], [-1, 10]]]], np.int8),
    ...     b_scale_tensor=np.ones((1, 1, 1, 1), np.float32),
    ... )
    array([[[[-1. , 16. ],
             [-1. , 32.5]]]], dtype=float32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.MATRIX_MULTIPLY_INTEGER_TO_FLOAT
    OUTPUTS: ClassVar = ("output_tensor",)
    KERNELS: ClassVar = "matmul_integer_to_float"
    FEATURE_LEVELS: ClassVar = (
        Support(
            FeatureLevel.LEVEL_6_2,
            {
                "ATensor": Allowed(_MATRIX, _INTEGERS),
                "AScaleTensor": Allowed(_VALUES, _FLOATS),
                "AZeroPointTensor": Allowed(_VALUES, _INTEGERS),
                "BTensor": Allowed(_MATRIX, _INTEGERS),
                "BScaleTensor": Allowed(_VALUES, _FLOATS),
                "BZeroPointTensor": Allowed(_VALUES, _INTEGERS),
                "BiasTensor": Allowed(_MATRIX, _FLOATS),
                "OutputTensor": Allowed(_MATRIX, _FLOATS),
            },
        ),
    )

    a_tensor: TensorDesc
    a_scale_tensor: TensorDesc
    a_zero_point_tensor: TensorDesc | None = None
    b_tensor: TensorDesc
    b_scale_tensor: TensorDesc
    b_zero_point_tensor: TensorDesc | None = None
    bias_tensor: TensorDesc | None = None
    output_tensor: TensorDesc

    def _check(self) -> None:
        ProductDesc._check(self)
        a, b = self.a_tensor.data_type, self.b_tensor.data_type
        if a not in _BYTES:
            self._check_same_type("b_tensor", "a_tensor")
        elif b not in _BYTES:
            raise self._refusal("BTensor.DataType", b.name, f"INT8, UINT8 (ATensor.DataType is {a.name})")
        for name in ("a_scale_tensor", "b_scale_tensor"):
            self._check_values(name)
            self._check_same_type(name, "output_tensor")
        for name in _PARAMETERS:
            if getattr(self, name) is not None:
                self._check_same_count(name, "a_scale_tensor")
        if self.bias_tensor is not None:
            self._check_same_count("bias_tensor", "a_tensor")
            self._check_sizes("BiasTensor", self.bias_tensor, self.output_tensor.sizes, "OutputTensor.Sizes")
            self._check_same_type("bias_tensor", "output_tensor")

    def _keep(self, name: str, array: Array) -> Any:
        return array.copy() if self._is_wide() else ProductDesc._keep(self, name, array)

    def _make_arrays(self, owned: Bound) -> Callable[[Bound], Sequence[Any]]:
        if not self._is_wide():
            return ProductDesc._make_arrays(self, owned)
        names = ("a_tensor", "b_tensor", *_PARAMETERS, "bias_tensor", "output_tensor")
        return lambda bound: [bound.get(name) for name in names]

    def _key(self, arrays: Any) -> Key:
        if not self._is_wide():
            return ProductDesc._key(self, arrays)
        views = {name: matrices_of(getattr(self, name)) for name in _PARAMETERS if getattr(self, name)}

        def run(*arrays: Any) -> None:
            a, b, *given, bias, y = arrays
            parameters = zip(_PARAMETERS, given, strict=True)
            a_scale, a_zero, b_scale, b_zero = [
                None if each is None else views[name](each) for name, each in parameters
            ]
            write_scaled(exact_sums(a, a_zero, b, b_zero), a_scale, b_scale, bias, y)

        whole = ByFunction(operator=self.operator, kernel="none", results=(), function=run)
        return lambda budget: whole, ()

    def _is_wide(self) -> bool:
        return self.a_tensor.data_type not in _BYTES
