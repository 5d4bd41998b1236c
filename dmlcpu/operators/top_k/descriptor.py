"""DML_TOP_K1 and DML_TOP_K: the K largest or smallest elements of each sequence."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dmlcpu.common.forms import Form, form_of, strides_of
from dmlcpu.directml.base import Key, OperatorDesc, dml_name
from dmlcpu.directml.checks import check_range
from dmlcpu.directml.enums import AxisDirection, FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import FOUR, ONE_TO_EIGHT, UP_TO_32, Allowed, Support, Types, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.top_k.call import Call
from dmlcpu.operators.top_k.function import TopK
from dmlcpu.operators.top_k.plan import plan


def _level(since: FeatureLevel, dimensions: range, values: Types, indices: Types) -> Support:
    value, index = Allowed(dimensions, values), Allowed(dimensions, indices)
    return Support(since, {"InputTensor": value, "OutputValueTensor": value, "OutputIndexTensor": index})


_UP_TO_64 = types("FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8")
_TOP_K1_LEVELS = (
    _level(FeatureLevel.LEVEL_2_1, FOUR, UP_TO_32, types("UINT32")),
    _level(FeatureLevel.LEVEL_3_1, ONE_TO_EIGHT, UP_TO_32, types("UINT32")),
    _level(FeatureLevel.LEVEL_5_0, ONE_TO_EIGHT, _UP_TO_64, types("UINT64 UINT32")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopKBase(OperatorDesc[TopK]):
    """The fields and checks of both operators."""

    OUTPUTS: ClassVar = ("output_value_tensor", "output_index_tensor")
    RESULT: ClassVar = TopK

    input_tensor: TensorDesc
    output_value_tensor: TensorDesc
    output_index_tensor: TensorDesc
    axis: int
    k: int

    def _check(self) -> None:
        sizes = self.input_tensor.sizes
        last = self.input_tensor.dimension_count - 1
        check_range(self.operator, "Axis", self.axis, 0, last, "below InputTensor.DimensionCount")
        check_range(self.operator, "K", self.k, 1, sizes[self.axis], f"InputTensor.Sizes[{self.axis}]")
        selected = (*sizes[: self.axis], self.k, *sizes[self.axis + 1 :])
        reason = f"InputTensor.Sizes with K = {self.k} at Axis {self.axis}"
        for name in self.OUTPUTS:
            self._check_same_count(name, "input_tensor")
            self._check_sizes(dml_name(name), getattr(self, name), selected, reason)
        self._check_same_type("output_value_tensor", "input_tensor")

    @property
    def largest(self) -> bool:
        """Whether the largest elements are selected; always true for TOP_K, which has no direction."""
        return getattr(self, "axis_direction", AxisDirection.DECREASING) is AxisDirection.DECREASING

    def _key(self, arrays: Any) -> Key:
        x, values, indices = arrays
        call = Call(Form(*form_of(x)), self.k, self.axis, indices.dtype, self.largest)
        return plan, (call, (strides_of(values), strides_of(indices)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKOperatorDesc(_TopKBase):
    """DML_TOP_K: the K largest elements of each sequence along an axis, largest first, with their positions.

    Parameters
    ----------
    input_tensor : TensorDesc
        The elements to select from.
    output_value_tensor : TensorDesc
        The input's DataType and its sizes, except K along the axis.
    output_index_tensor : TensorDesc
        The sizes of `output_value_tensor`.
    axis : int
        The dimension along which a sequence lies; not negative.
    k : int
        1 to the input's size along the axis.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_TOP_K_OPERATOR_DESC``, in snake_case. The result is that of
    `TopK1OperatorDesc` with DECREASING.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import TensorDataType, TensorDesc, TopKOperatorDesc, compile_operator
    >>> desc = TopKOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 1, 4)),
    ...     output_value_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 1, 3)),
    ...     output_index_tensor=TensorDesc(TensorDataType.UINT32, sizes=(1, 1, 1, 3)),
    ...     axis=3,
    ...     k=3,
    ... )
    >>> values, indices = compile_operator(desc)(input_tensor=np.array([[[[1, 2, 2, 3]]]], np.float32))
    >>> values
    array([[[[3., 2., 2.]]]], dtype=float32)
    >>> indices
    array([[[[3, 1, 2]]]], dtype=uint32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.TOP_K
    FEATURE_LEVELS: ClassVar = (
        _level(FeatureLevel.LEVEL_2_0, FOUR, types("FLOAT32 FLOAT16"), types("UINT32")),
        *_TOP_K1_LEVELS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK1OperatorDesc(_TopKBase):
    """DML_TOP_K1: the K largest or smallest elements of each sequence along an axis, with their positions.

    Parameters
    ----------
    input_tensor : TensorDesc
        The elements to select from.
    output_value_tensor : TensorDesc
        The input's DataType and its sizes, except K along the axis.
    output_index_tensor : TensorDesc
        The sizes of `output_value_tensor`.
    axis : int
        The dimension along which a sequence lies; not negative.
    k : int
        1 to the input's size along the axis.
    axis_direction : AxisDirection
        DECREASING selects the largest elements, largest first; INCREASING the smallest, smallest first.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields and the selection are those of DirectML's ``DML_TOP_K1_OPERATOR_DESC``. Equal elements appear by
    ascending index in both directions, and indices count from the start of their sequence. K may equal the size along
    the axis, as programs that use DirectML expect. NaN ranks above +inf; NaNs tie, and so do -0.0 and +0.0.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import AxisDirection, TensorDataType, TensorDesc, TopK1OperatorDesc, compile_operator
    >>> desc = TopK1OperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 3, 4)),
    ...     output_value_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 1, 3, 2)),
    ...     output_index_tensor=TensorDesc(TensorDataType.UINT32, sizes=(1, 1, 3, 2)),
    ...     axis=3,
    ...     k=2,
    ...     axis_direction=AxisDirection.DECREASING,
    ... )
    >>> x = np.array([[[[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]]]], np.float32)
    >>> values, indices = compile_operator(desc)(input_tensor=x)
    >>> values
    array([[[[11., 10.],
             [ 9.,  8.],
             [ 7.,  6.]]]], dtype=float32)
    >>> indices
    array([[[[3, 2],
             [2, 3],
             [3, 2]]]], dtype=uint32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.TOP_K1
    FEATURE_LEVELS: ClassVar = _TOP_K1_LEVELS

    axis_direction: AxisDirection
