"""Scales, zero points and biases: numbers of any type, as arrays of the one that kernels read."""

from collections.abc import Collection
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_array, convert, type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.errors import DmlError, UnsupportedError

_FLOAT = np.dtype(np.float32)
_MOST_BITS = 256  # of an integer whose digits an error has


def as_numbers(operator: str, field: str, value: Any) -> Array:
    """Return what `as_array` does; Python's integers beyond 64 bits, of which NumPy makes objects, are taken, too."""
    array: Array = value if type(value) is np.ndarray else convert(operator, field, value)
    if not array.dtype.hasobject:
        return as_array(operator, field, array)
    is_plain = not hasattr(value, "dtype") and all(type(each) in (int, float) for each in array.flat)
    return array if is_plain else as_array(operator, field, value)


def as_floats(operator: str, field: str, value: Any) -> Array:
    """Return numbers as float32, copied only if they must be. One that overflows float32 is infinite."""
    array = as_numbers(operator, field, value)
    if array.dtype == _FLOAT:
        return array
    if array.dtype.kind not in "fiuO" and type_name(array.dtype) != "bfloat16":
        raise UnsupportedError(operator, f"{field}.dtype", str(array.dtype), "floating types")
    try:
        with np.errstate(all="ignore"):
            return array.astype(_FLOAT)
    except OverflowError:
        raise DmlError(operator, field, "an integer beyond float64", "numbers that float64 holds") from None


def as_integers(
    operator: str, field: str, value: Any, dtype: np.dtype[Any], allowed: str, others: Collection[str] = ()
) -> Array:
    """Return integers as `dtype`, copied only if they must be; arrays of the types `others` are not converted.

    allowed: the types that an error names.
    """
    array = as_numbers(operator, field, value)
    if array.dtype == dtype:
        return array
    if array.size == 0 and not hasattr(value, "dtype"):  # NumPy takes an empty list for floats
        return array.astype(dtype)
    if array.dtype.kind not in "iuO" or type_name(array.dtype) in others:
        raise UnsupportedError(operator, f"{field}.dtype", str(array.dtype), allowed)
    row = DATA_TYPES[type_name(dtype)]
    bad = np.asarray((array < row.lowest) | (array > row.highest))
    if bad.any():
        raise bad_element(operator, field, array, bad, f"{row.lowest} to {row.highest} ({dtype})")
    return array.astype(dtype)


def bad_element(operator: str, field: str, array: Array, bad: Array, allowed: str) -> DmlError:
    """Return the error that names the first bad element of an array."""
    where = np.unravel_index(int(np.argmax(bad)), bad.shape)
    place = f"[{', '.join(map(str, where))}]" if bad.size > 1 else ""
    element = array[where]
    is_long = type(element) is int and element.bit_length() > _MOST_BITS
    found = f"an integer of {element.bit_length():,} bits" if is_long else str(element)
    return DmlError(operator, f"{field}{place}", found, allowed)
