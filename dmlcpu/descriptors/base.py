"""What all operator descs share: the table of their fields, the checks of single fields, the dictionary form."""

import dataclasses
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from dmlcpu.descriptors.checks import UINT_MAX, check_kind, check_range, set_field
from dmlcpu.descriptors.enums import OperatorType, TensorFlags, full_name
from dmlcpu.descriptors.tensor import TensorDesc
from dmlcpu.errors import InvalidDescriptorError
from dmlcpu.operators.arguments import as_integer


class Field(NamedTuple):
    """One field of an operator desc."""

    name: str  # input_tensor
    dml_name: str  # InputTensor
    kind: type  # TensorDesc, int or an enumeration
    optional: bool
    output: bool


def fields_of(cls: "type[OperatorDesc]") -> tuple[Field, ...]:
    """Return a desc's fields, in DirectML's order."""
    return tuple(_field(cls, field) for field in dataclasses.fields(cls))  # type: ignore[arg-type]


def _field(cls: "type[OperatorDesc]", field: "dataclasses.Field[Any]") -> Field:
    optional = field.type == TensorDesc | None
    return Field(
        name=field.name,
        dml_name="".join(word.capitalize() for word in field.name.split("_")),
        kind=TensorDesc if optional else field.type,  # type: ignore[arg-type]
        optional=optional,
        output=field.name in cls.OUTPUTS,
    )


class OperatorDesc:
    """The base of the operator descs: frozen dataclasses whose fields are DirectML's, in snake_case."""

    __slots__ = ()
    OPERATOR_TYPE: ClassVar[OperatorType]
    OUTPUTS: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            self._check_field(field)
        self._check()

    def _check_field(self, field: Field) -> None:
        value = getattr(self, field.name)
        if field.optional and value is None:
            return
        if field.kind is int:
            number = as_integer(self.operator, field.dml_name, value)
            check_range(self.operator, field.dml_name, number, 0, UINT_MAX)
            set_field(self, field.name, number)
            return
        check_kind(self.operator, field.dml_name, value, field.kind)
        if field.output:
            self._check_output(field.dml_name, value)

    def _check_output(self, field: str, tensor: TensorDesc) -> None:
        if tensor.flags & TensorFlags.OWNED_BY_DML:
            raise InvalidDescriptorError(
                self.operator, f"{field}.Flags", "OWNED_BY_DML", "NONE (only inputs may be owned)"
            )
        for i, (size, stride) in enumerate(zip(tensor.sizes, tensor.strides or (), strict=False)):
            if size > 1 and stride == 0:
                allowed = "1 or more (only inputs may repeat an element)"
                raise InvalidDescriptorError(self.operator, f"{field}.Strides[{i}]", "0", allowed)
        if tensor.elements_overlap():
            found = f"{tensor.strides} for Sizes {tensor.sizes}"
            allowed = "strides that give each element memory of its own"
            raise InvalidDescriptorError(self.operator, f"{field}.Strides", found, allowed)

    def _check(self) -> None:
        """Check the fields against each other."""
        raise NotImplementedError

    def _check_sizes(self, field: str, tensor: TensorDesc, sizes: tuple[int, ...], reason: str) -> None:
        if tensor.sizes != sizes:
            raise InvalidDescriptorError(self.operator, f"{field}.Sizes", str(tensor.sizes), f"{sizes} ({reason})")

    def _check_same_count(self, field: str, tensor: TensorDesc, like: str, other: TensorDesc) -> None:
        if tensor.dimension_count != other.dimension_count:
            raise InvalidDescriptorError(
                self.operator,
                f"{field}.DimensionCount",
                str(tensor.dimension_count),
                f"{other.dimension_count} ({like}.DimensionCount)",
            )

    def _check_same_type(self, field: str, tensor: TensorDesc, like: str, other: TensorDesc) -> None:
        if tensor.data_type != other.data_type:
            raise InvalidDescriptorError(
                self.operator,
                f"{field}.DataType",
                tensor.data_type.name,
                f"{other.data_type.name} ({like}.DataType)",
            )

    @property
    def operator(self) -> str:
        """The operator's full name in DirectML, ``DML_OPERATOR_TOP_K1`` for instance."""
        return full_name(self.OPERATOR_TYPE)

    def tensors(self) -> Iterator[tuple[Field, TensorDesc]]:
        """Go through the tensors the desc has, in DirectML's order."""
        for field in fields_of(type(self)):
            tensor = getattr(self, field.name)
            if field.kind is TensorDesc and tensor is not None:
                yield field, tensor

    def to_dict(self) -> dict[str, Any]:
        """Return the desc as DxDispatch writes it in JSON; `operator_desc_from_dict` reads it back.

        Returns
        -------
        dict
            ``{"type": "DML_OPERATOR_...", "desc": {...}}`` of strings, integers, lists and dictionaries. Optional
            tensors that are None are left out.
        """
        desc = {}
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if value is not None:
                desc[field.dml_name] = _plain(value)
        return {"type": self.operator, "desc": desc}


def _plain(value: Any) -> Any:
    if isinstance(value, TensorDesc):
        return value.to_dict()
    return full_name(value) if isinstance(value, IntEnum) else value
