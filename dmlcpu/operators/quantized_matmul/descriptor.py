"""DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY: products of 8-bit matrices, dequantized and quantized again."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.packing import pack_b
from dmlcpu.common.product_plan import BYTE, Layout, Plan, flat, plan, rhs, run
from dmlcpu.common.quantization import check_scale
from dmlcpu.directml.base import Bound, OperatorDesc, Run, View, dml_name, without_leading
from dmlcpu.directml.checks import check_range
from dmlcpu.directml.enums import FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import FOUR, Allowed, Support, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import InvalidDescriptorError
from dmlcpu.kernels.registry import ROWS
from dmlcpu.operators.quantized_matmul.function import execute
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import packed_strides

# The scales and zero points, in the kernels' order.
_PARAMETERS = (
    "a_scale_tensor",
    "a_zero_point_tensor",
    "b_scale_tensor",
    "b_zero_point_tensor",
    "output_scale_tensor",
    "output_zero_point_tensor",
)
_SCALES = ("a_scale_tensor", "b_scale_tensor", "output_scale_tensor")
_NOT_YET = np.empty(0, np.uint8)


def _level(since: FeatureLevel, matrices: range, values: range) -> Support:
    tensors = {
        "Tensor": Allowed(matrices, types("INT8 UINT8")),
        "ScaleTensor": Allowed(values, types("FLOAT32")),
        "ZeroPointTensor": Allowed(values, types("INT8 UINT8")),
    }
    return Support(since, {f"{of}{kind}": allowed for of in ("A", "B", "Output") for kind, allowed in tensors.items()})


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

    def _keep(self, name: str, array: Array) -> Any:
        if name in _SCALES:
            check_scale(self.operator, dml_name(name), array)
        return pack_b(array) if name == "b_tensor" else array.copy()

    def _make_run(self, owned: Bound) -> Run:
        views = {name: _as_matrix(getattr(self, name)) for name in _PARAMETERS}
        plan_within, given = self._packed_product(owned)
        tensors = {field.name: tensor for field, tensor in self.tensors() if field.name not in owned}
        words = {name: tensor.dtype if name in _SCALES else BYTE for name, tensor in tensors.items()}
        scales = [name for name in _SCALES if name not in owned]
        arrays, places = list(given.values()), [list(given).index(name) for name in words]

        def check(bound: Bound) -> None:
            for name in scales:
                check_scale(self.operator, dml_name(name), bound[name])

        def general(bound: Bound) -> Array:
            check(bound)
            matrices = {name: view(bound[name]) if name in bound else None for name, view in views.items()}
            a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point = matrices.values()
            out: Array = bound["output_tensor"]
            operands = (bound["a_tensor"], a_scale, a_zero_point, bound["b_tensor"], b_scale, b_zero_point)
            execute(*operands, y_scale, y_zero_point, out)  # type: ignore[arg-type]  # all scales are bound
            return out

        def packed(bound: Bound, words: list[Array]) -> Array:
            check(bound)
            mine = arrays.copy()
            for place, array in zip(places, words, strict=True):
                mine[place] = array
            run(plan_within(threads.budget()), *mine)
            out: Array = bound["output_tensor"]
            return out

        return Run(general, words, packed)

    def _packed_product(self, owned: Bound) -> tuple[Callable[[threads.Budget], Plan], Bound]:
        """Return what plans a product of packed tensors, and what its kernel is given, as far as that is known."""
        tensors = (self.a_tensor, self.b_tensor, self.output_tensor)
        layouts = [Layout(each.sizes, packed_strides(each.sizes, each.dtype.itemsize), each.dtype) for each in tensors]
        parameters = {name: getattr(self, name) for name in _PARAMETERS}
        sizes = tuple([None if tensor is None else (1, *tensor.sizes)[-2:] for tensor in parameters.values()])
        b = owned.get("b_tensor")
        b_layout = ROWS if b is None else b.layout

        @functools.lru_cache(maxsize=8)
        def plan_within(budget: threads.Budget) -> Plan:
            return plan("quantized_matmul", *layouts, sizes, b_layout, budget)

        names, panels = ("b_tensor", "panels", "sums"), rhs(_NOT_YET if b is None else b)
        given = {"a_tensor": flat(owned.get("a_tensor")), **dict(zip(names, panels, strict=True))}
        given |= {name: flat(owned.get(name)) for name in parameters}
        return plan_within, {**given, "output_tensor": _NOT_YET}


def _as_matrix(tensor: TensorDesc | None) -> View:
    """Return what makes a tensor of scales or zero points two-dimensional."""
    if tensor is None or tensor.dimension_count == 1:
        return itemgetter((np.newaxis, ...))
    return without_leading(tensor.dimension_count - 2)
