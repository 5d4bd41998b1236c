"""Shared by all descriptors: checks of single fields, and the repr."""

import dataclasses
import functools
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, ClassVar, Self

from dmlcpu.directml.enums import meant
from dmlcpu.errors import InvalidDescriptorError

UINT_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

# Sets a field of a frozen dataclass to its plain form, only during initialization.
set_field = object.__setattr__


@functools.cache
def dml_name(name: str) -> str:
    """Return DirectML's spelling of a field's name."""
    return "".join(word.capitalize() for word in name.split("_"))


class Desc:
    """The base class of all descs: dataclasses whose repr is Python code that makes them."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __new__(cls, *_args: Any, **fields: Any) -> Self:
        """Raise the error that names the Python spelling of a DirectML field. Python refuses other unknown names."""
        for name in fields:
            if name not in cls.__dataclass_fields__ and (here := cls._spelled(name)):
                raise TypeError(f"{cls.__name__}: {name} is DirectML's spelling; allowed: {here} here")
        return super().__new__(cls)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A dataclass generates another one unless the class itself has one.
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    @classmethod
    def _spelled(cls, name: str) -> str | None:
        """Return the field that has this name in DirectML."""
        return next((field.name for field in dataclasses.fields(cls) if dml_name(field.name) == name), None)

    def __repr__(self) -> str:
        return written(self)


def check_kind(operator: str, field: str, value: Any, kind: type) -> None:
    """Refuse a value that is not an instance of a class; name the enumeration member that it stands for."""
    if not isinstance(value, kind):
        member = meant(kind, value) if issubclass(kind, Enum) else None
        raise TypeError(f"{operator}: {field} is {value!r}; allowed: {member or kind.__name__}")


def check_range(operator: str, field: str, value: int, low: int, high: int, reason: str = "") -> None:
    """Refuse an integer outside low to high; `reason` explains the bounds."""
    if not low <= value <= high:
        allowed = f"{low} to {high}" if low < high else str(low)
        raise InvalidDescriptorError(operator, field, str(value), f"{allowed} ({reason})" if reason else allowed)


def missing(others: Sequence[str]) -> str:
    """Return a text about a missing field, and others that are also missing."""
    return f"missing, and so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else "missing"


def written(desc: Desc, left_out: Collection[str] = ()) -> str:
    """Return Python code that makes an equal desc, without the fields that have their default."""
    parts = []
    for field in dataclasses.fields(desc):
        value = getattr(desc, field.name)
        if field.repr and field.name not in left_out and value != field.default:
            text = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
            parts.append(f"{field.name}={text}" if field.kw_only else text)
    return f"{type(desc).__name__}({', '.join(parts)})"
