"""Shared by the descs of argmax and argmin."""

import math
from typing import Any, ClassVar

from dmlcpu.annotations import Array
from dmlcpu.common.forms import form_of, strides_of
from dmlcpu.directml.base import Key, OperatorDesc
from dmlcpu.directml.checks import check_range
from dmlcpu.directml.enums import AxisDirection, FeatureLevel
from dmlcpu.directml.feature_level import ONE_TO_EIGHT, UP_TO_32, Allowed, Support, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.reductions.arguments import fits
from dmlcpu.reductions.plan import prepare

_INDICES = Allowed(ONE_TO_EIGHT, types("INT64 INT32 UINT64 UINT32"))
_WITH_64 = (*UP_TO_32, *types("INT64 UINT64"))


class ArgDesc(OperatorDesc[Array]):
    """The base class of ARGMAX and ARGMIN."""

    __slots__ = ()
    KERNELS: ClassVar[str]  # the operator whose kernels compute it
    OUTPUTS: ClassVar = ("output_tensor",)
    FEATURE_LEVELS: ClassVar = (
        Support(FeatureLevel.LEVEL_3_0, {"InputTensor": Allowed(ONE_TO_EIGHT, UP_TO_32), "OutputTensor": _INDICES}),
        Support(FeatureLevel.LEVEL_4_1, {"InputTensor": Allowed(ONE_TO_EIGHT, _WITH_64), "OutputTensor": _INDICES}),
    )
    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]
    axis_direction: AxisDirection

    def _check(self) -> None:
        sizes, axes = self.input_tensor.sizes, self.axes
        check_range(self.operator, "AxisCount", len(axes), 1, len(sizes), "at most InputTensor.DimensionCount")
        for i, axis in enumerate(axes):
            check_range(self.operator, f"Axes[{i}]", axis, 0, len(sizes) - 1, "below InputTensor.DimensionCount")
            if axis in axes[:i]:
                raise self._refusal(f"Axes[{i}]", axis, "an axis that was not named before")
        reduced = tuple([1 if d in axes else n for d, n in enumerate(sizes)])
        self._check_sizes("OutputTensor", self.output_tensor, reduced, "InputTensor.Sizes, with 1 along each of Axes")
        size, data_type = math.prod([sizes[axis] for axis in axes]), self.output_tensor.data_type
        if self._takes("OutputTensor", self.output_tensor) and not fits(size, data_type.dtype):
            raise self._refusal("OutputTensor.DataType", data_type.name, f"a type that holds {size - 1}")

    def _key(self, arrays: Any) -> Key:
        x, y = arrays
        select_last = self.axis_direction is AxisDirection.DECREASING
        return prepare, (self.KERNELS, form_of(x), strides_of(y), self.axes, select_last, True, y.dtype)
