"""Checks of single fields, shared by all descriptors."""

from typing import Any

from dmlcpu.errors import InvalidDescriptorError

UINT_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

# A frozen dataclass puts a field into its plain form while it is made, and never again.
set_field = object.__setattr__


def check_kind(operator: str, field: str, value: Any, kind: type) -> None:
    """Refuse a value that is not an instance of a class."""
    if not isinstance(value, kind):
        raise TypeError(f"{operator}: {field} is {value!r}; allowed: {kind.__name__}")


def check_range(operator: str, field: str, value: int, low: int, high: int, reason: str = "") -> None:
    """Refuse an integer outside low to high; `reason` says where the bounds come from."""
    if not low <= value <= high:
        allowed = f"{low} to {high}" if low < high else str(low)
        raise InvalidDescriptorError(operator, field, str(value), f"{allowed} ({reason})" if reason else allowed)
