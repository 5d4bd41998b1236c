"""DML_GATHER_ELEMENTS: elements of a tensor, each with an index along one axis."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import form_of, strides_of
from dmlcpu.directml.base import Bound, Key, OperatorDesc
from dmlcpu.directml.enums import OperatorType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.indexing.descriptor import check_tensors, levels, refuse
from dmlcpu.operators.gather_elements.plan import prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherElementsOperatorDesc(OperatorDesc[Array]):
    """DML_GATHER_ELEMENTS: ``output[i, j] = input[indices[i, j], j]`` if the axis is 0.

    Parameters
    ----------
    input_tensor : TensorDesc
        The elements.
    indices_tensor : TensorDesc
        An index for each element of the output: the input's sizes, except along `axis`.
    output_tensor : TensorDesc
        The indices' sizes, the input's DataType.
    axis : int
        The axis that indices refer to, less than DimensionCount.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other; the three tensors must have the same DimensionCount.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_GATHER_ELEMENTS_OPERATOR_DESC``. Negative indices count from the end
    (signed index types, feature level 3_0). An index out of range raises `IndexOutOfRangeError` before anything is
    written.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import GatherElementsOperatorDesc, TensorDataType, TensorDesc, compile_operator
    >>> desc = GatherElementsOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(3, 3)),
    ...     indices_tensor=TensorDesc(TensorDataType.INT64, sizes=(2, 3)),
    ...     output_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(2, 3)),
    ...     axis=0,
    ... )
    >>> compile_operator(desc)(
    ...     input_tensor=np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32),
    ...     indices_tensor=np.array([[1, 2, 0], [2, 0, 0]]),
    ... )
    array([[4., 8., 3.],
           [7., 2., 3.]], dtype=float32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.GATHER_ELEMENTS
    OUTPUTS: ClassVar = ("output_tensor",)
    FEATURE_LEVELS: ClassVar = levels("InputTensor", "OutputTensor")

    input_tensor: TensorDesc
    indices_tensor: TensorDesc
    output_tensor: TensorDesc
    axis: int

    def _check(self) -> None:
        check_tensors(self, table=(), lines=("output_tensor",))

    def _key(self, arrays: Any) -> Key:
        x, indices, y = arrays
        return prepare, ((form_of(x), form_of(indices), strides_of(y)), (self.axis, "raise", 0))

    def _refuse(self, bound: Bound, refused: Any) -> None:
        refuse(self, bound)
