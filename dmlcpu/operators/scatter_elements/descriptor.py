"""DML_SCATTER, which newer versions call DML_SCATTER_ELEMENTS: a copy of a tensor in which elements are replaced."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import form_of, strides_of
from dmlcpu.directml.base import Bound, Key, OperatorDesc
from dmlcpu.directml.enums import FeatureLevel, OperatorType
from dmlcpu.directml.feature_level import FOUR, types
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.indexing.descriptor import UINT32, check_tensors, level, levels, refuse
from dmlcpu.operators.scatter_elements.plan import prepare

_TENSORS = ("InputTensor", "UpdatesTensor", "OutputTensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterElementsOperatorDesc(OperatorDesc[Array]):
    """DML_SCATTER: ``output = input; output[indices[i, j], j] = updates[i, j]`` if the axis is 0.

    Parameters
    ----------
    input_tensor : TensorDesc
        The tensor to copy.
    indices_tensor : TensorDesc
        An index for each update: the input's sizes, except along `axis`.
    updates_tensor : TensorDesc
        What to write: the indices' sizes, the input's DataType.
    output_tensor : TensorDesc
        The input's sizes and DataType.
    axis : int
        The axis that indices refer to, less than DimensionCount.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other; the four tensors must have the same DimensionCount.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_SCATTER_OPERATOR_DESC``, also named
    ``DML_SCATTER_ELEMENTS_OPERATOR_DESC``. DxDispatch knows only the older name. Negative indices count from the end
    (signed index types, feature level 3_0). An index out of range raises `IndexOutOfRangeError` before anything is
    written. DirectML does not define which of several updates of one element wins; in dmlcpu the last wins.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import ScatterElementsOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> desc = ScatterElementsOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(2, 3)),
    ...     indices_tensor=TensorDesc(TensorDataType.INT32, sizes=(1, 3)),
    ...     updates_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(1, 3)),
    ...     output_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(2, 3)),
    ...     axis=0,
    ... )
    >>> compile_operator(desc)(
    ...     input_tensor=np.zeros((2, 3), np.float32),
    ...     indices_tensor=np.array([[1, 0, -1]], np.int32),
    ...     updates_tensor=np.array([[7, 8, 9]], np.float32),
    ... )
    array([[0., 8., 0.],
           [7., 0., 9.]], dtype=float32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.SCATTER
    OUTPUTS: ClassVar = ("output_tensor",)
    IN_PLACE: ClassVar = ("output_tensor", "input_tensor")
    FEATURE_LEVELS: ClassVar = (
        level(FeatureLevel.LEVEL_2_0, FOUR, types("FLOAT32 FLOAT16"), UINT32, _TENSORS),
        *levels(*_TENSORS),
    )

    input_tensor: TensorDesc
    indices_tensor: TensorDesc
    updates_tensor: TensorDesc
    output_tensor: TensorDesc
    axis: int

    def _check(self) -> None:
        check_tensors(self, table=("output_tensor",), lines=("updates_tensor",))

    def _key(self, arrays: Any) -> Key:
        x, indices, updates, y = arrays
        forms = (form_of(x), form_of(indices), form_of(updates), strides_of(y))
        return prepare, (forms, (self.axis, "none", "raise", x is y, 0))

    def _refuse(self, bound: Bound, refused: Any) -> None:
        refuse(self, bound)
