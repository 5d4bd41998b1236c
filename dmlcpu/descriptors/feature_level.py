"""What each feature level of DirectML supports: the tables of its reference pages, as data."""

from typing import NamedTuple

from dmlcpu.descriptors.base import OperatorDesc
from dmlcpu.descriptors.enums import FeatureLevel, OperatorType, TensorDataType, full_name
from dmlcpu.errors import UnsupportedError


class Allowed(NamedTuple):
    """What one tensor may be."""

    dimensions: range
    types: tuple[TensorDataType, ...]


class Support(NamedTuple):
    """What an operator takes from one feature level on; a later row replaces it."""

    since: FeatureLevel
    tensors: dict[str, Allowed]


def _types(names: str) -> tuple[TensorDataType, ...]:
    return tuple(TensorDataType[name] for name in names.split())


_FLOAT = _types("FLOAT32 FLOAT16")
_INDEX32 = _types("UINT32")
_UP_TO_32 = _types("FLOAT32 FLOAT16 INT32 INT16 INT8 UINT32 UINT16 UINT8")
_INTEGERS_TO_64 = _types("FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8")
_UP_TO_64 = _types("FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8")
_ANY_INDEX = _types("INT64 INT32 UINT64 UINT32")

_FOUR = range(4, 5)
_ONE_TO_EIGHT = range(1, 9)


def _top_k(
    since: FeatureLevel,
    dimensions: range,
    values: tuple[TensorDataType, ...],
    indices: tuple[TensorDataType, ...],
) -> Support:
    value = Allowed(dimensions, values)
    return Support(
        since,
        {
            "InputTensor": value,
            "OutputValueTensor": value,
            "OutputIndexTensor": Allowed(dimensions, indices),
        },
    )


def _scatter_nd(
    since: FeatureLevel,
    dimensions: range,
    values: tuple[TensorDataType, ...],
    indices: tuple[TensorDataType, ...],
) -> Support:
    value = Allowed(dimensions, values)
    return Support(
        since,
        {
            "InputTensor": value,
            "IndicesTensor": Allowed(dimensions, indices),
            "UpdatesTensor": value,
            "OutputTensor": value,
        },
    )


def _quantized(since: FeatureLevel, matrices: range, values: range) -> Support:
    matrix = Allowed(matrices, _types("INT8 UINT8"))
    scale = Allowed(values, _types("FLOAT32"))
    zero_point = Allowed(values, _types("INT8 UINT8"))
    return Support(
        since,
        {
            "ATensor": matrix,
            "AScaleTensor": scale,
            "AZeroPointTensor": zero_point,
            "BTensor": matrix,
            "BScaleTensor": scale,
            "BZeroPointTensor": zero_point,
            "OutputScaleTensor": scale,
            "OutputZeroPointTensor": zero_point,
            "OutputTensor": matrix,
        },
    )


_TOP_K1 = (
    _top_k(FeatureLevel.LEVEL_2_1, _FOUR, _UP_TO_32, _INDEX32),
    _top_k(FeatureLevel.LEVEL_3_1, _ONE_TO_EIGHT, _UP_TO_32, _INDEX32),
    _top_k(FeatureLevel.LEVEL_5_0, _ONE_TO_EIGHT, _INTEGERS_TO_64, _types("UINT64 UINT32")),
)

# Oldest first. A row supports all that the ones before it do.
SUPPORT: dict[OperatorType, tuple[Support, ...]] = {
    OperatorType.TOP_K: (_top_k(FeatureLevel.LEVEL_2_0, _FOUR, _FLOAT, _INDEX32), *_TOP_K1),
    OperatorType.TOP_K1: _TOP_K1,
    OperatorType.SCATTER_ND: (
        _scatter_nd(FeatureLevel.LEVEL_2_1, _FOUR, _UP_TO_32, _INDEX32),
        _scatter_nd(FeatureLevel.LEVEL_3_0, _ONE_TO_EIGHT, _UP_TO_32, _ANY_INDEX),
        _scatter_nd(FeatureLevel.LEVEL_4_1, _ONE_TO_EIGHT, _UP_TO_64, _ANY_INDEX),
    ),
    OperatorType.QUANTIZED_LINEAR_MATRIX_MULTIPLY: (
        _quantized(FeatureLevel.LEVEL_2_1, matrices=_FOUR, values=_FOUR),
        _quantized(FeatureLevel.LEVEL_4_0, matrices=range(2, 5), values=range(1, 5)),
    ),
}


def check_support(desc: OperatorDesc, level: FeatureLevel) -> None:
    """Refuse a desc with a tensor that its operator does not take at a feature level."""
    rows = SUPPORT[desc.OPERATOR_TYPE]
    if level < rows[0].since:
        allowed = f"{full_name(rows[0].since)} or later (it introduced the operator)"
        raise UnsupportedError(desc.operator, "FeatureLevel", full_name(level), allowed)
    current = [row for row in rows if row.since <= level][-1]
    for field, tensor in desc.tensors():
        name, count, data_type = field.dml_name, tensor.dimension_count, tensor.data_type
        allowed_here = current.tensors[name]
        if count not in allowed_here.dimensions:
            later = [row.since for row in rows if count in row.tensors[name].dimensions]
            allowed = f"{_span(allowed_here.dimensions)} at {full_name(level)} ({_first(str(count), later)})"
            raise UnsupportedError(desc.operator, f"{name}.DimensionCount", str(count), allowed)
        if data_type not in allowed_here.types:
            later = [row.since for row in rows if data_type in row.tensors[name].types]
            names = ", ".join(member.name for member in allowed_here.types)
            allowed = f"{names} at {full_name(level)} ({_first(data_type.name, later)})"
            raise UnsupportedError(desc.operator, f"{name}.DataType", data_type.name, allowed)


def _span(dimensions: range) -> str:
    first, last = dimensions[0], dimensions[-1]
    return str(first) if first == last else f"{first} to {last}"


def _first(what: str, levels: list[FeatureLevel]) -> str:
    return f"{what} from {full_name(levels[0])} on" if levels else f"{what} at no feature level"
