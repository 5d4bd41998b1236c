"""DML_SCATTER_ND: a copy of a tensor in which indexed elements or slices are replaced."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import AnyForm, Shape
from dmlcpu.directml.base import Bound, Key, OperatorDesc
from dmlcpu.directml.checks import check_range
from dmlcpu.directml.enums import FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import FOUR, ONE_TO_EIGHT, UP_TO_32, Allowed, Support, Types, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.scatter_nd.call import check_index
from dmlcpu.operators.scatter_nd.plan import prepare
from dmlcpu.runtime.memory import PLAIN


def _level(since: FeatureLevel, dimensions: range, values: Types, indices: Types) -> Support:
    tensors = dict.fromkeys(("InputTensor", "UpdatesTensor", "OutputTensor"), Allowed(dimensions, values))
    return Support(since, {**tensors, "IndicesTensor": Allowed(dimensions, indices)})


_UP_TO_64 = types("FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8")
_INDICES = types("INT64 INT32 UINT64 UINT32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterNDOperatorDesc(OperatorDesc[Array]):
    """DML_SCATTER_ND: ``output = input; output[indices[...]] = updates[...]``.

    Parameters
    ----------
    input_tensor : TensorDesc
        The tensor to copy.
    indices_tensor : TensorDesc
        Index tuples along the last dimension, of T coordinates each, 1 <= T <= `input_dimension_count`.
    updates_tensor : TensorDesc
        What to write: sizes ``IndicesTensor.Sizes[-indices_dimension_count:-1] +
        InputTensor.Sizes[-input_dimension_count:][T:]``, with leading 1s; the input's DataType.
    output_tensor : TensorDesc
        The input's sizes and DataType.
    input_dimension_count : int
        How many of the input's dimensions count; the sizes before them must be 1.
    indices_dimension_count : int
        How many of the indices' dimensions count; the sizes before them must be 1.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other; the four tensors must have the same DimensionCount.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_SCATTER_ND_OPERATOR_DESC``. Negative indices count from the end
    (signed index types, feature level 3_0). An index out of range raises `IndexOutOfRangeError` before anything is
    written. DirectML does not define which of several updates of one element wins; in dmlcpu the last wins.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import ScatterNDOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> desc = ScatterNDOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 8)),
    ...     indices_tensor=TensorDesc(TensorDataType.UINT32, sizes=(4, 1)),
    ...     updates_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 4)),
    ...     output_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 8)),
    ...     input_dimension_count=1,
    ...     indices_dimension_count=2,
    ... )
    >>> compile_operator(desc)(
    ...     input_tensor=np.array([[1, 2, 3, 4, 5, 6, 7, 8]], np.float32),
    ...     indices_tensor=np.array([[4], [3], [1], [7]], np.uint32),
    ...     updates_tensor=np.array([[9, 10, 11, 12]], np.float32),
    ... )
    array([[ 1., 11.,  3., 10.,  9.,  6.,  7., 12.]], dtype=float32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.SCATTER_ND
    OUTPUTS: ClassVar = ("output_tensor",)
    IN_PLACE: ClassVar = ("output_tensor", "input_tensor")
    FEATURE_LEVELS: ClassVar = (
        _level(FeatureLevel.LEVEL_2_1, FOUR, UP_TO_32, types("UINT32")),
        _level(FeatureLevel.LEVEL_3_0, ONE_TO_EIGHT, UP_TO_32, _INDICES),
        _level(FeatureLevel.LEVEL_4_1, ONE_TO_EIGHT, _UP_TO_64, _INDICES),
    )

    input_tensor: TensorDesc
    indices_tensor: TensorDesc
    updates_tensor: TensorDesc
    output_tensor: TensorDesc
    input_dimension_count: int
    indices_dimension_count: int

    def _check(self) -> None:
        for name in ("indices_tensor", "updates_tensor", "output_tensor"):
            self._check_same_count(name, "input_tensor")
        for name in ("updates_tensor", "output_tensor"):
            self._check_same_type(name, "input_tensor")
        self._check_sizes("OutputTensor", self.output_tensor, self.input_tensor.sizes, "InputTensor.Sizes")
        self._check_dropped("Input", self.input_dimension_count, self.input_tensor)
        self._check_dropped("Indices", self.indices_dimension_count, self.indices_tensor)
        self._check_updates()

    def _check_dropped(self, name: str, count: int, tensor: TensorDesc) -> None:
        leading_ones = next((i for i, n in enumerate(tensor.sizes) if n > 1), tensor.dimension_count - 1)
        least = tensor.dimension_count - leading_ones
        reason = f"{name}Tensor.Sizes are {tensor.sizes}, and only leading 1s may be left out"
        check_range(self.operator, f"{name}DimensionCount", count, least, tensor.dimension_count, reason)

    def _check_updates(self) -> None:
        D = self.input_tensor.dimension_count
        tuple_size = self.indices_tensor.sizes[-1]
        sizes, meaning = self.updates_shape, "coordinates of an index tuple, up to InputDimensionCount"
        check_range(self.operator, f"IndicesTensor.Sizes[{D - 1}]", tuple_size, 1, self.input_dimension_count, meaning)
        reason = f"IndicesTensor.Sizes[{D - self.indices_dimension_count}:{D - 1}]"
        reason += f" + InputTensor.Sizes[{D - self.input_dimension_count + tuple_size}:{D}]"
        if len(sizes) > D:
            raise self._refusal("UpdatesTensor.DimensionCount", D, f"{len(sizes)}, for {sizes} ({reason})")
        self._check_sizes("UpdatesTensor", self.updates_tensor, (1,) * (D - len(sizes)) + sizes, reason)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The sizes of the input's dimensions that count."""
        return self.input_tensor.sizes[-self.input_dimension_count :]

    @property
    def indices_shape(self) -> tuple[int, ...]:
        """The sizes of the indices' dimensions that count."""
        return self.indices_tensor.sizes[-self.indices_dimension_count :]

    @property
    def updates_shape(self) -> tuple[int, ...]:
        """The sizes of the updates, without leading 1s."""
        tuple_size = self.indices_tensor.sizes[-1]
        return self.indices_shape[:-1] + self.input_shape[tuple_size:]

    def _key(self, arrays: Any) -> Key:
        shapes = (self.input_shape, self.indices_shape, self.updates_shape, self.input_shape)
        *inputs, y = [_form(*each) for each in zip(arrays, shapes, strict=True)]
        return prepare, ((*inputs, y[2]), ("none", "raise", arrays[0] is arrays[3], 0))

    def _refuse(self, bound: Bound, refused: Any) -> None:
        indices = bound["indices_tensor"]
        check_index(indices.reshape(self.indices_shape), refused, self.input_shape, self.operator, "IndicesTensor")


def _form(array: Array, shape: Shape) -> AnyForm:
    """Return the form of a bound tensor without its leading dimensions, which are 1 and do not count."""
    return shape, array.dtype, None if array.flags.num & PLAIN == PLAIN else array.strides[array.ndim - len(shape) :]
