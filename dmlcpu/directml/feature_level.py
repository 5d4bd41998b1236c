"""The tables of DirectML's reference pages: what each feature level supports. They are data of the operators' descs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dmlcpu.directml.enums import FeatureLevel, TensorDataType, full_name
from dmlcpu.errors import UnsupportedError

if TYPE_CHECKING:
    from dmlcpu.directml.base import OperatorDesc

Types = tuple[TensorDataType, ...]
FOUR = range(4, 5)
ONE_TO_EIGHT = range(1, 9)


class Allowed(NamedTuple):
    """What one tensor may be."""

    dimensions: range
    types: Types
    required: bool = False  # although the desc's field is optional: it became so at a later level


class Support(NamedTuple):
    """What an operator takes from one feature level on; a later row replaces it."""

    since: FeatureLevel
    tensors: dict[str, Allowed]  # all that the desc may have, by DirectML's names; an array's is for all its elements

    def allowed(self, name: str) -> Allowed:
        """Return what a tensor may be, or an element of an array of tensors."""
        return self.tensors[name] if name in self.tensors else self.tensors[name.partition("[")[0]]


def types(names: str) -> Types:
    """Return data types by their names in DirectML, apart by spaces."""
    return tuple(TensorDataType[name] for name in names.split())


UP_TO_32 = types("FLOAT32 FLOAT16 INT32 INT16 INT8 UINT32 UINT16 UINT8")


def check_support(desc: "OperatorDesc", level: FeatureLevel) -> None:
    """Refuse a desc with a tensor that its operator does not take at a feature level, or without one that it needs."""
    rows = desc.FEATURE_LEVELS
    if level < rows[0].since:
        allowed = f"{full_name(rows[0].since)} or later (it introduced the operator)"
        raise UnsupportedError(desc.operator, "FeatureLevel", full_name(level), allowed)
    current = [row for row in rows if row.since <= level][-1]
    at = full_name(level)
    for field, tensor in desc.tensors():
        name, count, data_type = field.dml_name, tensor.dimension_count, tensor.data_type
        here, all_rows = current.allowed(name), [(row.since, row.allowed(name)) for row in rows]
        if count not in here.dimensions:
            since = _first(str(count), (since for since, row in all_rows if count in row.dimensions))
            allowed = f"{_span(here.dimensions)} at {at} ({since})"
            raise UnsupportedError(desc.operator, f"{name}.DimensionCount", str(count), allowed)
        if data_type not in here.types:
            since = _first(data_type.name, (since for since, row in all_rows if data_type in row.types))
            allowed = f"{', '.join(member.name for member in here.types)} at {at} ({since})"
            raise UnsupportedError(desc.operator, f"{name}.DataType", data_type.name, allowed)
    present = {field.dml_name.partition("[")[0] for field, _ in desc.tensors()}
    for name, here in current.tensors.items():
        if here.required and name not in present:
            since = _first("optional", (row.since for row in rows if not row.tensors[name].required))
            raise UnsupportedError(desc.operator, name, "missing", f"a tensor at {at} ({since})")


def _span(dimensions: range) -> str:
    first, last = dimensions[0], dimensions[-1]
    return str(first) if first == last else f"{first} to {last}"


def _first(what: str, levels: Iterator[FeatureLevel]) -> str:
    """Name the first level at which something holds."""
    first = next(levels, None)
    return f"{what} at no feature level" if first is None else f"{what} from {full_name(first)} on"
