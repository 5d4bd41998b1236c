"""Scales, zero points and biases: numbers of any type, as arrays of the type that kernels read."""

import functools
from collections.abc import Collection
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_array, convert, type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.errors import DmlError, UnsupportedError
from dmlcpu.kernels.scales import are_positive
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import PLAIN, frombuffer

# Equal numbers of these types are interchangeable; other hashable objects may change their values.
NUMBER_TYPES = frozenset({int, float, *[np.dtype(code).type for code in "bBhHiIlLqQefd"]})
_FLOAT = np.dtype(np.float32)
_MOST_BITS = 256  # of an integer that an error prints in digits


def as_numbers(operator: str, field: str, value: Any) -> Array:
    """Return what `as_array` returns, but also accept Python integers beyond 64 bits, which NumPy stores as objects."""
    array: Array = value if type(value) is np.ndarray else convert(operator, field, value)
    if not array.dtype.hasobject:
        return as_array(operator, field, array)
    is_plain = not hasattr(value, "dtype") and all(type(each) in (int, float) for each in array.flat)
    return array if is_plain else as_array(operator, field, value)


def as_floats(operator: str, field: str, value: Any) -> Array:
    """Return numbers as float32, copied only if necessary. Numbers that overflow float32 become infinite."""
    array = as_numbers(operator, field, value)
    if array.dtype == _FLOAT:
        return array
    check_floating(operator, field, array.dtype)
    try:
        with np.errstate(all="ignore"):
            return array.astype(_FLOAT)
    except OverflowError:
        raise DmlError(operator, field, "an integer beyond float64", "numbers that float64 holds") from None


def as_float32(array: Array) -> Array:
    """Return a copy of floats, rounded to float32, in C order."""
    with np.errstate(all="ignore"):  # NumPy reports numbers that overflow, and signaling NaNs
        return array.astype(_FLOAT, order="C")


def check_floating(operator: str, field: str, dtype: np.dtype[Any]) -> None:
    """Refuse a type that `as_floats` does not convert."""
    if dtype.kind not in "fiuO" and type_name(dtype) != "bfloat16":
        raise UnsupportedError(operator, f"{field}.dtype", str(dtype), "floating types")


def as_integers(
    operator: str, field: str, value: Any, dtype: np.dtype[Any], allowed: str, others: Collection[str] = ()
) -> Array:
    """Return integers as `dtype`, copied only if necessary; arrays of the types `others` are not converted.

    allowed: the types that an error names.
    """
    array = as_numbers(operator, field, value)
    if array.dtype == dtype:
        return array
    if array.size == 0 and not hasattr(value, "dtype"):  # NumPy makes an empty list an array of floats
        return array.astype(dtype)
    check_integral(operator, field, array.dtype, allowed, others)
    row = DATA_TYPES[type_name(dtype)]
    bad = np.asarray((array < row.lowest) | (array > row.highest))
    if bad.any():
        raise bad_element(operator, field, array, bad, f"{row.lowest} to {row.highest} ({dtype})")
    return array.astype(dtype)


def check_integral(operator: str, field: str, dtype: np.dtype[Any], allowed: str, others: Collection[str] = ()) -> None:
    """Refuse a type that `as_integers` does not convert."""
    if dtype.kind not in "iuO" or type_name(dtype) in others:
        raise UnsupportedError(operator, f"{field}.dtype", str(dtype), allowed)


def bad_element(operator: str, field: str, array: Array, bad: Array, allowed: str) -> DmlError:
    """Return the error that names the first bad element of an array."""
    where = np.unravel_index(int(np.argmax(bad)), bad.shape)
    place = f"[{', '.join(map(str, where))}]" if bad.size > 1 else ""
    element = array[where]
    is_long = type(element) is int and element.bit_length() > _MOST_BITS
    found = f"an integer of {element.bit_length():,} bits" if is_long else str(element)
    return DmlError(operator, f"{field}{place}", found, allowed)


# Most calls repeat the numbers of earlier ones. typed: the cache separates True and 1.0 from 1, but not -0.0 from 0.0,
# so these go to `float_number.__wrapped__`.
@functools.lru_cache(maxsize=1024, typed=True)
def float_number(operator: str, field: str, value: Any, positive: bool) -> Array:
    """Return a number as an array of one float32; positive: it must be positive and finite."""
    array = as_floats(operator, field, value).reshape(1).copy()  # the copy owns its memory
    if positive:
        check_scale(operator, field, array, value)
    return array


def is_usable(scales: Array) -> bool:
    """Return whether scales, float32, are positive and finite."""
    if scales.size == 1:
        return bool(0 < scales.item() < np.inf)
    if scales.flags.num & PLAIN == PLAIN and scales.size and can_compile():
        return are_positive(frombuffer(scales, _FLOAT))
    if 0 in scales.strides:
        scales = scales[tuple([slice(0, 1) if stride == 0 else slice(None) for stride in scales.strides])]
    # Infinity, zero and NaN, for which each comparison is false, fail one of these.
    return scales.size == 0 or bool(scales.min() > 0 and scales.max() < np.inf)


def check_scale(operator: str, field: str, scales: Array, given: Any = None) -> None:
    """Refuse scales that are not positive and finite, naming the first bad element.

    scales: float32; given: the argument before its conversion, whose element the error names.
    """
    if is_usable(scales):
        return
    scales = scales.copy()  # so that no other thread writes to it
    bad = ~((scales > 0) & (scales < np.inf))  # NaN is neither
    if not bad.any():
        return
    elements = scales if given is None else as_numbers(operator, field, given)
    if elements.dtype == _FLOAT:
        elements = scales.reshape(elements.shape)
    allowed = "finite float32 numbers greater than 0"
    raise bad_element(operator, field, elements, bad.reshape(elements.shape), allowed)
