"""The base class of operator descs: fields, checks of single fields, the dictionary form, feature levels."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Any, ClassVar, Generic, NamedTuple, get_args, get_origin

from dmlcpu.annotations import Result
from dmlcpu.common.arguments import Array, as_integer
from dmlcpu.common.prepared import Prepared
from dmlcpu.directml.checks import UINT_MAX, Desc, check_kind, check_range, dml_name as dml_name, set_field
from dmlcpu.directml.enums import FeatureLevel, OperatorType, TensorFlags, full_name
from dmlcpu.directml.feature_level import Support
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError

Bound = dict[str, Any]  # tensor name -> array, or the operator's form of an owned tensor
View = Callable[[Array], Array]


Key = tuple[Callable[..., Prepared], tuple[Any, ...]]  # a cached `prepare`, and its key without the budget


def without_leading(dimensions: int) -> View:
    """Return a function that drops leading dimensions of size 1."""
    return itemgetter((0,) * dimensions + (...,)) if dimensions else lambda array: array


class Field(NamedTuple):
    """One field of an operator desc, or one element of an array."""

    name: str  # input_tensor
    dml_name: str  # InputTensor
    kind: type  # TensorDesc, int or an enumeration; for an array: the kind of its elements
    optional: bool
    output: bool
    length: str | None = None  # for an array: DirectML's field for its length

    def element(self, i: int) -> "Field":
        """Return an element of an array as a field."""
        return self._replace(name=f"{self.name}[{i}]", dml_name=f"{self.dml_name}[{i}]", length=None)


def counted_by(length: str) -> Any:
    """Declare a field that is an array, without a default. `length` is DirectML's field for its length."""
    return dataclasses.field(metadata={"length": length})


def fields_of(cls: "type[OperatorDesc]") -> tuple[Field, ...]:
    """Return a desc's fields, in DirectML's order."""
    fields = []
    for field in dataclasses.fields(cls):
        optional = field.type == TensorDesc | None
        kind: Any = TensorDesc if optional else field.type
        kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
        length = field.metadata.get("length")
        fields.append(Field(field.name, dml_name(field.name), kind, optional, field.name in cls.OUTPUTS, length))
    return tuple(fields)


class OperatorDesc(Desc, Generic[Result]):
    """The base of the operator descs: frozen dataclasses whose fields are DirectML's, in snake_case.

    `Result` is what calls of the operator return, for type checkers.
    A field is a TensorDesc (``TensorDesc | None`` if it is optional, inputs and outputs alike), an int, an enumeration,
    or an array: ``tuple[TensorDesc, ...]`` or ``tuple[int, ...]`` with `counted_by` as its default.
    """

    __slots__ = ()
    OPERATOR_TYPE: ClassVar[OperatorType]
    OUTPUTS: ClassVar[tuple[str, ...]]
    RESULT: ClassVar[type[tuple[Any, ...]]] = tuple  # of several outputs
    IN_PLACE: ClassVar[tuple[str, str] | None] = None  # an output tensor, and the input tensor whose memory it may use
    FEATURE_LEVELS: ClassVar[tuple[Support, ...]]  # oldest first; each row supports everything in the rows before it

    def __post_init__(self) -> None:
        fields = fields_of(type(self))
        for field in fields:
            value = getattr(self, field.name)
            if field.length is not None:
                set_field(self, field.name, self._checked_array(field, value))
            elif not (field.optional and value is None):
                set_field(self, field.name, self._checked(field, value))
        self._check_lengths([field for field in fields if field.length])
        self._check()
        for field, number in self._elements(int):  # last, as the operator may have refused a smaller range
            check_range(self.operator, field.dml_name, number, 0, UINT_MAX)

    def _checked_array(self, field: Field, values: Any) -> tuple[Any, ...]:
        try:
            elements = list(values)
        except TypeError:
            allowed = f"a sequence of {field.kind.__name__}"
            raise TypeError(f"{self.operator}: {field.dml_name} is {values!r}; allowed: {allowed}") from None
        return tuple(self._checked(field.element(i), element) for i, element in enumerate(elements))

    def _check_lengths(self, arrays: list[Field]) -> None:
        """Refuse arrays of unequal lengths if DirectML has one field for both lengths."""
        first: dict[str | None, Field] = {}
        for field in arrays:
            other = first.setdefault(field.length, field)
            mine, theirs = len(getattr(self, field.name)), len(getattr(self, other.name))
            if mine != theirs:
                allowed = f"{theirs} elements ({field.length}, as {other.dml_name} has)"
                raise self._refusal(field.dml_name, f"{mine} elements", allowed)

    def _checked(self, field: Field, value: Any) -> Any:
        """Return the value of a field as its plain type."""
        if field.kind is int:
            return as_integer(self.operator, field.dml_name, value)
        check_kind(self.operator, field.dml_name, value, field.kind)
        if field.output:
            self._check_output(field.dml_name, value)
        return value

    def _check_output(self, field: str, tensor: TensorDesc) -> None:
        if tensor.flags & TensorFlags.OWNED_BY_DML:
            raise self._refusal(f"{field}.Flags", "OWNED_BY_DML", "NONE (only inputs may be owned)")
        for i, (size, stride) in enumerate(zip(tensor.sizes, tensor.strides or (), strict=False)):
            if size > 1 and stride == 0:
                raise self._refusal(f"{field}.Strides[{i}]", 0, "1 or more (only inputs may repeat an element)")
        if tensor.elements_overlap():
            found = f"{tensor.strides} for Sizes {tensor.sizes}"
            raise self._refusal(f"{field}.Strides", found, "strides that give each element its own memory")

    def _check(self) -> None:
        """Check the fields against each other."""
        raise NotImplementedError

    def _make_arrays(self, owned: Bound) -> Callable[[Bound], Sequence[Any]]:
        """Return a function that finds the arrays for a prepared call: all tensors, unless an operator overrides it.

        owned: the tensors that the operator owns already.
        """
        return itemgetter(*[field.name for field, _ in self.tensors()])

    def _key(self, arrays: Any) -> Key:
        """Return `prepare` and its key for a call on these arrays.

        It is called once for all calls whose tensors are packed and not in place.
        """
        raise NotImplementedError

    def _refuse(self, bound: Bound, refused: Any) -> None:
        """Raise the error about values that a prepared call has refused, unless they have become valid.

        refused: what the call returned.
        """
        raise AssertionError(refused)

    def _make_result(self) -> Callable[[Bound], Any]:
        """Return a function that finds the result of a call: the output, or all outputs as a RESULT."""
        find = itemgetter(*[field.name for field, _ in self.tensors() if field.output])
        return find if self.RESULT is tuple else lambda bound: tuple.__new__(self.RESULT, find(bound))

    def _keep(self, name: str, array: Array) -> Any:
        """Return the operator's copy of an owned tensor, in the form that its kernels read fastest."""
        return array.copy()

    def _check_sizes(self, field: str, tensor: TensorDesc, sizes: tuple[int, ...], reason: str) -> None:
        if tensor.sizes != sizes:
            raise self._refusal(f"{field}.Sizes", tensor.sizes, f"{sizes} ({reason})")

    def _check_same_count(self, name: str, like: str) -> None:
        """Refuse a tensor with another number of dimensions; name, like: fields."""
        found, count = (getattr(self, each).dimension_count for each in (name, like))
        if found != count:
            raise self._refusal(f"{dml_name(name)}.DimensionCount", found, f"{count} ({dml_name(like)}.DimensionCount)")

    def _check_same_type(self, name: str, like: str) -> None:
        """Refuse a tensor with another data type if the operator supports the other tensor's; name, like: fields."""
        found, wanted = (getattr(self, each).data_type.name for each in (name, like))
        if found != wanted and self._takes(dml_name(like), getattr(self, like)):
            raise self._refusal(f"{dml_name(name)}.DataType", found, f"{wanted} ({dml_name(like)}.DataType)")

    def _takes(self, field: str, tensor: TensorDesc) -> bool:
        """Return whether the operator supports a tensor's data type at any feature level. If not, compilation fails."""
        return tensor.data_type in self.FEATURE_LEVELS[-1].allowed(field).types

    def _refusal(self, field: str, found: Any, allowed: str) -> InvalidDescriptorError:
        return InvalidDescriptorError(self.operator, field, str(found), allowed)

    @property
    def operator(self) -> str:
        """The operator's full name in DirectML, ``DML_OPERATOR_TOP_K1`` for instance."""
        return full_name(self.OPERATOR_TYPE)

    def tensors(self) -> Iterator[tuple[Field, TensorDesc]]:
        """Yield the tensors of the desc in DirectML's order; those of an array one by one."""
        return self._elements(TensorDesc)

    def _elements(self, kind: type) -> Iterator[tuple[Field, Any]]:
        """Yield the fields of a kind with their values; those of an array one by one."""
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if field.kind is not kind or value is None:
                continue
            if field.length is None:
                yield field, value
            else:
                yield from ((field.element(i), element) for i, element in enumerate(value))

    def to_dict(self) -> dict[str, Any]:
        """Return the desc as DxDispatch writes it in JSON; `operator_desc_from_dict` reads it back.

        Returns
        -------
        dict
            ``{"type": "DML_OPERATOR_...", "desc": {...}}`` of strings, integers, lists and dictionaries. Optional
            tensors that are None are left out.
        """
        desc: dict[str, Any] = {}
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if field.length is not None:
                desc[field.length] = len(value)
                desc[field.dml_name] = [_plain(element) for element in value]
            elif value is not None:
                desc[field.dml_name] = _plain(value)
        return {"type": self.operator, "desc": desc}


def _plain(value: Any) -> Any:
    if isinstance(value, TensorDesc):
        return value.to_dict()
    return full_name(value) if isinstance(value, IntEnum) else value


def check_support(desc: OperatorDesc, level: FeatureLevel) -> None:
    """Refuse a desc with a tensor that the feature level does not support, or without one that it requires."""
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
    """Return the name of the first level at which something holds."""
    first = next(levels, None)
    return f"{what} at no feature level" if first is None else f"{what} from {full_name(first)} on"
