"""DirectML's enumerations, with DirectML's numbers and names."""

from enum import STRICT, Enum, IntEnum, IntFlag
from typing import Any, TypeVar

import numpy as np

from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.directml.operator_type import OperatorType as OperatorType
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError

Enumeration = TypeVar("Enumeration", bound=Enum)


class TensorDataType(IntEnum):
    """DML_TENSOR_DATA_TYPE: the type of a tensor's elements."""

    UNKNOWN = 0
    FLOAT32 = DATA_TYPES["float32"].directml
    FLOAT16 = DATA_TYPES["float16"].directml
    UINT32 = DATA_TYPES["uint32"].directml
    UINT16 = DATA_TYPES["uint16"].directml
    UINT8 = DATA_TYPES["uint8"].directml
    INT32 = DATA_TYPES["int32"].directml
    INT16 = DATA_TYPES["int16"].directml
    INT8 = DATA_TYPES["int8"].directml
    FLOAT64 = DATA_TYPES["float64"].directml
    UINT64 = DATA_TYPES["uint64"].directml
    INT64 = DATA_TYPES["int64"].directml
    UINT4 = DATA_TYPES["uint4"].directml
    INT4 = DATA_TYPES["int4"].directml

    @property
    def bits(self) -> int:
        """The size of an element in bits; 0 for UNKNOWN."""
        return DATA_TYPES[self.name.lower()].bits if self else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the same name; UNKNOWN, UINT4 and INT4 have none, and raise UnsupportedError.

        Examples
        --------
        >>> import dmlcpu
        >>> dmlcpu.TensorDataType.FLOAT16.dtype
        dtype('float16')
        """
        dtype = _DTYPES.get(self)
        if dtype is None:
            allowed = ", ".join(member.name for member in _DTYPES)
            raise UnsupportedError("DML_TENSOR_DATA_TYPE", "DataType", self.name, allowed)
        return dtype


_DTYPES = {member: np.dtype(member.name.lower()) for member in TensorDataType if member.bits >= 8}


class TensorFlags(IntFlag, boundary=STRICT):
    """DML_TENSOR_FLAGS: how a tensor is bound."""

    NONE = 0
    OWNED_BY_DML = 1


class AxisDirection(IntEnum):
    """DML_AXIS_DIRECTION: an order; each operator's desc says what it orders."""

    INCREASING = 0
    DECREASING = 1


class QuantizationType(IntEnum):
    """DML_QUANTIZATION_TYPE: which tensors define the numbers that integers represent."""

    NONE = 0
    SCALE = 1
    SCALE_ZERO_POINT = 2


class FeatureLevel(IntEnum):
    """DML_FEATURE_LEVEL: the versions of DirectML's feature set; each includes the previous ones.

    The values are DirectML's hexadecimal numbers: 0x6400 is level 6.4.
    """

    LEVEL_1_0 = 0x1000
    LEVEL_2_0 = 0x2000
    LEVEL_2_1 = 0x2100
    LEVEL_3_0 = 0x3000
    LEVEL_3_1 = 0x3100
    LEVEL_4_0 = 0x4000
    LEVEL_4_1 = 0x4100
    LEVEL_5_0 = 0x5000
    LEVEL_5_1 = 0x5100
    LEVEL_5_2 = 0x5200
    LEVEL_6_0 = 0x6000
    LEVEL_6_1 = 0x6100
    LEVEL_6_2 = 0x6200
    LEVEL_6_3 = 0x6300
    LEVEL_6_4 = 0x6400


# DirectML's prefixes of member names. Python names cannot start with a digit, hence LEVEL_.
PREFIXES: dict[type[Any], str] = {
    TensorDataType: "DML_TENSOR_DATA_TYPE_",
    TensorFlags: "DML_TENSOR_FLAG_",
    AxisDirection: "DML_AXIS_DIRECTION_",
    QuantizationType: "DML_QUANTIZATION_TYPE_",
    OperatorType: "DML_OPERATOR_",
    FeatureLevel: "DML_FEATURE_",
}


def full_name(member: IntEnum | IntFlag) -> str:
    """Return a member's name in DirectML.

    Examples
    --------
    >>> from dmlcpu.directml.enums import FeatureLevel, full_name
    >>> full_name(FeatureLevel.LEVEL_6_4)
    'DML_FEATURE_LEVEL_6_4'
    """
    return f"{PREFIXES[type(member)]}{member.name}"


def offered(kind: type[Enum]) -> list[str]:
    """Return the names for messages: no desc accepts the data type UNKNOWN."""
    return [name for name in kind.__members__ if name != "UNKNOWN"]


def meant(kind: type[Enum], value: Any) -> str | None:
    """Return the member that a number or one of DirectML's names stands for: AxisDirection.DECREASING for 1."""
    text = value.removeprefix(PREFIXES[kind]) if isinstance(value, str) else None
    for name in offered(kind):
        if text == name or (type(value) is int and kind[name].value == value):
            return f"{kind.__name__}.{name}"
    return None


def parse_enum(kind: type[Enumeration], text: Any, operator: str, field: str) -> Enumeration:
    """Return the member that a JSON value names, in full (DML_TENSOR_DATA_TYPE_FLOAT32) or by its suffix (FLOAT32)."""
    name = text.removeprefix(PREFIXES[kind]) if isinstance(text, str) else ""
    if name not in kind.__members__:
        raise InvalidDescriptorError(operator, field, repr(text), ", ".join(offered(kind)))
    return kind[name]
