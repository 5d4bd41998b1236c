"""DML_ARGMIN: the position of the smallest element of each set."""

from dataclasses import dataclass
from typing import ClassVar

from dmlcpu.directml.base import counted_by
from dmlcpu.directml.enums import AxisDirection, OperatorType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.reductions.descriptor import ArgDesc


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgminOperatorDesc(ArgDesc):
    """DML_ARGMIN: the position of the smallest element of each set, whose elements lie along some axes.

    Parameters
    ----------
    input_tensor : TensorDesc
        The elements.
    output_tensor : TensorDesc
        The input's sizes, except 1 along each axis; INT64, INT32, UINT64 or UINT32.
    axes : tuple of int
        One axis or more, in any order, no axis twice; DirectML's AxisCount is their number.
    axis_direction : AxisDirection
        INCREASING takes the first of equal elements, DECREASING the last.

    Raises
    ------
    InvalidDescriptorError
        If the fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields are those of DirectML's ``DML_ARGMIN_OPERATOR_DESC``. The exact positions are those of `dmlcpu.argmin`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import ArgminOperatorDesc, AxisDirection, TensorDataType, TensorDesc, compile_operator
    >>> desc = ArgminOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes=(2, 3)),
    ...     output_tensor=TensorDesc(TensorDataType.UINT32, sizes=(2, 1)),
    ...     axes=(1,),
    ...     axis_direction=AxisDirection.INCREASING,
    ... )
    >>> compile_operator(desc)(input_tensor=np.array([[1, 2, 3], [3, 0, 3]], np.float32))
    array([[0],
           [1]], dtype=uint32)
    """

    OPERATOR_TYPE: ClassVar = OperatorType.ARGMIN
    KERNELS: ClassVar = "argmin"

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...] = counted_by("AxisCount")
    axis_direction: AxisDirection
