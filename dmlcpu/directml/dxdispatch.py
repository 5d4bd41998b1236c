"""Read descs from the dictionaries of DxDispatch's JSON models.

An error's `field` is its path below the operator's "desc" object, for instance ``InputTensor.Sizes[2]``. Only errors
whose `operator` is ``operator_desc_from_dict`` are about other members than "desc".
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dmlcpu.directml.base import Field, OperatorDesc, fields_of
from dmlcpu.directml.checks import UINT64_MAX, UINT_MAX, missing
from dmlcpu.directml.enums import TensorDataType, TensorFlags, full_name, parse_enum
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import InvalidDescriptorError

_OPTIONAL = ("Flags", "DimensionCount", "Strides", "TotalTensorSizeInBytes", "GuaranteedBaseOffsetAlignment")
# Members of a dispatchable that do not describe the operator.
_IGNORED = ("bindings", "dmlCompileType")


def desc_from_dict(d: dict[str, Any], class_of: Callable[[Any], type[OperatorDesc]]) -> OperatorDesc:
    """Make a desc from its dictionary; class_of: returns the desc class of a type, or refuses the type."""
    if not isinstance(d, dict):
        raise TypeError(f"operator_desc_from_dict: d is {d!r}; allowed: a dictionary")
    _check_members("operator_desc_from_dict", "", d, required=("type", "desc"), optional=_IGNORED)
    cls = class_of(d["type"])
    if not isinstance(d["desc"], dict):
        raise InvalidDescriptorError("operator_desc_from_dict", "desc", repr(d["desc"]), "an object")
    return _operator(cls, d["desc"])


def _operator(cls: type[OperatorDesc], desc: dict[str, Any]) -> OperatorDesc:
    operator, fields = full_name(cls.OPERATOR_TYPE), fields_of(cls)
    required = [field.dml_name for field in fields if not field.optional]
    optional = [field.dml_name for field in fields if field.optional]
    optional += dict.fromkeys(field.length for field in fields if field.length)
    _check_members(operator, "", desc, required, optional)
    return cls(**{field.name: _field(field, operator, desc) for field in fields})


def field_errors(d: dict[str, Any], class_of: Callable[[Any], type[OperatorDesc]]) -> Iterator[InvalidDescriptorError]:
    """Yield the errors of a desc's fields that are found without the others; `desc_from_dict` raises the first."""
    cls = class_of(d["type"])
    for field in fields_of(cls):
        if field.dml_name in d["desc"]:
            try:
                _field(field, full_name(cls.OPERATOR_TYPE), d["desc"])
            except InvalidDescriptorError as error:
                yield error


def _field(field: Field, operator: str, desc: dict[str, Any]) -> Any:
    value = desc.get(field.dml_name)
    if field.length is None:
        return None if value is None and field.optional else _value(field, operator, value)
    if not isinstance(value, list | tuple):
        raise InvalidDescriptorError(operator, field.dml_name, repr(value), "a list")
    length = _integer(operator, field.length, desc.get(field.length, len(value)), UINT_MAX)
    if length != len(value):
        allowed = f"{len(value)} (the length of {field.dml_name})"
        raise InvalidDescriptorError(operator, field.length, str(length), allowed)
    return tuple(_value(field.element(i), operator, each) for i, each in enumerate(value))


def _value(field: Field, operator: str, value: Any) -> Any:
    if field.kind is TensorDesc:
        return _tensor(operator, field.dml_name, value)
    if field.kind is int:
        if type(value) is not int:  # the desc knows its range
            raise InvalidDescriptorError(operator, field.dml_name, repr(value), "an integer")
        return value
    return parse_enum(field.kind, value, operator, field.dml_name)


def _tensor(operator: str, path: str, value: Any) -> TensorDesc:
    members = dict(_object(operator, path, value))
    kind = members.pop("Type", "DML_TENSOR_TYPE_BUFFER")
    if kind not in ("DML_TENSOR_TYPE_BUFFER", "BUFFER"):
        raise InvalidDescriptorError(operator, f"{path}.Type", repr(kind), "DML_TENSOR_TYPE_BUFFER")
    if "Desc" in members:
        _check_members(operator, path, members, required=("Desc",), optional=())
        path = f"{path}.Desc"
        members = _object(operator, path, members["Desc"])
    return _buffer(operator, path, members)


def _object(operator: str, path: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidDescriptorError(operator, path, repr(value), "an object with DataType and Sizes")
    return value


def _buffer(operator: str, path: str, members: dict[str, Any]) -> TensorDesc:
    _check_members(operator, path, members, required=("DataType", "Sizes"), optional=_OPTIONAL)
    given = {name: member for name, member in members.items() if member is not None}

    def integer(name: str, default: int, most: int = UINT_MAX) -> int:
        return _integer(operator, f"{path}.{name}", given.get(name, default), most)

    sizes = _integers(operator, f"{path}.Sizes", members["Sizes"], least=1)
    count = integer("DimensionCount", len(sizes))
    if count != len(sizes):
        allowed = f"{len(sizes)} (the length of Sizes)"
        raise InvalidDescriptorError(operator, f"{path}.DimensionCount", str(count), allowed)
    strides = _integers(operator, f"{path}.Strides", given.get("Strides", []))
    total = integer("TotalTensorSizeInBytes", 0, UINT64_MAX)
    alignment = integer("GuaranteedBaseOffsetAlignment", 0)
    data_type = parse_enum(TensorDataType, members["DataType"], operator, f"{path}.DataType")
    names = given.get("Flags", [])
    flags = TensorFlags.NONE
    for name in names if isinstance(names, list) else [names]:
        flags |= parse_enum(TensorFlags, name, operator, f"{path}.Flags")
    try:
        tensor = TensorDesc(
            data_type,
            flags=flags,
            sizes=sizes,
            strides=strides or None,
            total_tensor_size_in_bytes=total or None,  # DxDispatch computes it for 0 too
            guaranteed_base_offset_alignment=alignment,
        )
    except InvalidDescriptorError as error:
        raise InvalidDescriptorError(operator, f"{path}.{error.field}", error.found, error.allowed) from None
    # `to_dict` also writes computed sizes.
    is_least = total == tensor.minimum_size_in_bytes
    return replace(tensor, total_tensor_size_in_bytes=None) if is_least else tensor  # type: ignore[arg-type]


def _integers(operator: str, path: str, value: Any, least: int = 0) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidDescriptorError(operator, path, repr(value), "a list of integers")
    return tuple(_integer(operator, f"{path}[{i}]", item, UINT_MAX, least) for i, item in enumerate(value))


def _integer(operator: str, path: str, value: Any, most: int, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidDescriptorError(operator, path, repr(value), f"an integer from {least} to {most}")
    return value


def _check_members(
    operator: str, path: str, d: dict[str, Any], required: Sequence[str], optional: Sequence[str]
) -> None:
    prefix = f"{path}." if path else ""
    for name in d:
        if name not in required and name not in optional:
            raise InvalidDescriptorError(operator, f"{prefix}{name}", "unknown", ", ".join([*required, *optional]))
    absent = [name for name in required if name not in d]
    if absent:
        first, *others = absent
        raise InvalidDescriptorError(operator, f"{prefix}{first}", missing(others), "a value: it has no default")
