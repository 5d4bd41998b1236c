"""DML_TOP_K1 and DML_TOP_K: the K largest or smallest elements of each sequence."""

from dataclasses import dataclass
from typing import ClassVar

from dmlcpu.descriptors.base import OperatorDesc
from dmlcpu.descriptors.checks import check_range
from dmlcpu.descriptors.enums import AxisDirection, OperatorType
from dmlcpu.descriptors.tensor import TensorDesc


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopKBase(OperatorDesc):
    """The fields and checks of both operators."""

    OUTPUTS: ClassVar = ("output_value_tensor", "output_index_tensor")

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
        for field, tensor in (
            ("OutputValueTensor", self.output_value_tensor),
            ("OutputIndexTensor", self.output_index_tensor),
        ):
            self._check_same_count(field, tensor, "InputTensor", self.input_tensor)
            self._check_sizes(field, tensor, selected, f"InputTensor.Sizes with K = {self.k} at Axis {self.axis}")
        self._check_same_type("OutputValueTensor", self.output_value_tensor, "InputTensor", self.input_tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKOperatorDesc(_TopKBase):
    """DML_TOP_K: the K largest elements of each sequence along an axis, largest first, with their positions.

    Parameters
    ----------
    input_tensor : TensorDesc
        The elements to select from.
    output_value_tensor : TensorDesc
        The input's DataType, and its sizes but K along the axis.
    output_index_tensor : TensorDesc
        The sizes of `output_value_tensor`.
    axis : int
        The dimension a sequence lies along; it does not count from the end.
    k : int
        1 to the input's size along the axis.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field is of the wrong Python kind.

    Notes
    -----
    The fields are those of DirectML's ``DML_TOP_K_OPERATOR_DESC``, in snake_case; `TopK1OperatorDesc` with
    DECREASING means the same. Selection and order are described there.

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

    @property
    def largest(self) -> bool:
        """Whether the largest elements are selected: always."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK1OperatorDesc(_TopKBase):
    """DML_TOP_K1: the K largest or smallest elements of each sequence along an axis, with their positions.

    Parameters
    ----------
    input_tensor : TensorDesc
        The elements to select from.
    output_value_tensor : TensorDesc
        The input's DataType, and its sizes but K along the axis.
    output_index_tensor : TensorDesc
        The sizes of `output_value_tensor`.
    axis : int
        The dimension a sequence lies along; it does not count from the end.
    k : int
        1 to the input's size along the axis.
    axis_direction : AxisDirection
        DECREASING selects the largest elements, largest first; INCREASING the smallest, smallest first.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field is of the wrong Python kind.

    Notes
    -----
    The fields and the selection are those of DirectML's ``DML_TOP_K1_OPERATOR_DESC``. Equal elements appear by
    ascending index in both directions, and indices count from the start of their own sequence. As DirectML's
    callers have it, K may equal the size along the axis. NaN ranks above +inf; NaNs tie, and so do -0.0 and +0.0.

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

    axis_direction: AxisDirection

    @property
    def largest(self) -> bool:
        """Whether the largest elements are selected."""
        return self.axis_direction is AxisDirection.DECREASING
