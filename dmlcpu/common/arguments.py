"""Checks that functions and descriptors share. Each error names operator, field, found and allowed."""

import functools
import operator as op
import re
import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlcpu.common.imports import optional
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.runtime.memory import OWNS_DATA, PLAIN, elements_overlap, overlap, spans_meet

Array = NDArray[Any]

NDARRAY = np.ndarray  # a global name, which Python finds in half the time
_BOOLS = (bool, np.bool_)
_INTEGER = re.compile(r"Python integer (-?\d+) ")  # in NumPy's message


def as_array(operator: str, field: str, value: Any) -> Array:
    """Return `value` as an aligned array of fixed-size elements in native byte order, copied only if necessary."""
    array: Array = value if type(value) is np.ndarray else convert(operator, field, value)
    dtype = array.dtype
    if dtype.hasobject:
        found = type(value).__name__ if array.ndim == 0 else f"an array of dtype {dtype}"
        raise TypeError(f"{operator}: {field} is {found}; allowed: an array of fixed-size elements")
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
    return array if array.flags.aligned else array.copy()


def convert(operator: str, field: str, value: Any) -> Array:
    """Return what NumPy makes of a value that is not a plain array."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{operator}: {field} is a masked array; allowed: an array without a mask")
    nulls = getattr(value, "null_count", 0)  # of Arrow arrays, which NumPy would read as NaN
    if isinstance(nulls, int) and nulls:
        raise BindingError(operator, f"{field}.null_count", str(nulls), "0")
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value) if str(getattr(value, "dtype", "")) != "torch.bfloat16" else by_bits(value)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise BindingError(
                operator, field, "lists of different lengths", "an array, or lists of one length"
            ) from None
        raise BindingError(operator, field, str(error), "an array, or what numpy.asarray converts to one") from None
    except (TypeError, RuntimeError, BufferError) as error:  # for example for tensors on devices or sparse ones
        device = str(getattr(value, "device", "cpu"))
        found = type(value).__name__ + ("" if device == "cpu" else f" on device {device}")
        raise TypeError(f"{operator}: {field} is {found} ({error}); allowed: an array that NumPy can read") from error


def by_bits(tensor: Any) -> Array:
    """Return a tensor of torch.bfloat16 as an array; neither PyTorch nor NumPy converts the type."""
    if tensor.requires_grad:
        return np.asarray(tensor)  # raises PyTorch's error
    return np.asarray(tensor.view(sys.modules["torch"].int16)).view(bfloat16_of_tensors())


def bfloat16_of_tensors() -> np.dtype[Any]:
    """Return the type of an array over a tensor of torch.bfloat16."""
    dtype: np.dtype[Any] = np.dtype(optional("ml_dtypes", "torch.bfloat16 needs", "torch").bfloat16)
    return dtype


@functools.lru_cache(maxsize=256)
def type_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a type. Cached, as NumPy composes it for each call, which takes microseconds."""
    return dtype.name


def as_integer(operator: str, field: str, value: Any) -> int:
    """Return an integer argument as an int."""
    if type(value) is int:
        return value
    if not isinstance(value, _BOOLS):
        try:
            return op.index(value)
        except TypeError:
            pass
    raise TypeError(f"{operator}: {field} is {value!r}; allowed: an integer")


def as_axis(operator: str, field: str, value: Any, array: str, dimensions: int) -> int:
    """Return an axis of the argument `array`, counted from the first; a negative one counts from the last."""
    axis = value if type(value) is int else as_integer(operator, field, value)
    if not -dimensions <= axis < dimensions:
        allowed = f"{-dimensions} to {dimensions - 1} ({array} has {dimensions} dimension{'s' * (dimensions != 1)})"
        raise DmlError(operator, field, str(axis), allowed)
    return axis % dimensions


def named(name: str, what: str = "") -> np.dtype[Any]:
    """Return the type with a name in the package's table; what: named by the error if ml_dtypes is missing."""
    if name in np.sctypeDict:
        return np.dtype(name)
    dtype: np.dtype[Any] = np.dtype(getattr(optional("ml_dtypes", f"{what or name} needs"), name))
    return dtype


def as_dtype(operator: str, field: str, value: Any, allowed: Collection[str]) -> np.dtype[Any]:
    """Return a data type argument as a dtype, one of a list of names."""
    try:
        is_name = isinstance(value, str) and value in allowed
        dtype: np.dtype[Any] = named(value, f"{operator}: {field} {value!r}") if is_name else np.dtype(value)
    except (TypeError, ValueError):
        raise TypeError(f"{operator}: {field} is {value!r}; allowed: {', '.join(allowed)}") from None
    if value is None or type_name(dtype) not in allowed or not dtype.isnative:
        raise UnsupportedError(operator, field, "None" if value is None else str(dtype), ", ".join(allowed))
    return without_metadata(dtype)


def without_metadata(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return NumPy's own object for a numeric type in native byte order: an equal type may have metadata."""
    return np.dtype(dtype.type)


def check_flag(operator: str, field: str, value: Any) -> bool:
    """Return a boolean argument as a bool."""
    if not isinstance(value, _BOOLS):
        raise TypeError(f"{operator}: {field} is {value!r}; allowed: True or False")
    return bool(value)


def check_choice(operator: str, field: str, value: Any, choices: Collection[str]) -> None:
    """Refuse a string that is not one of the choices."""
    if not isinstance(value, str):
        raise TypeError(f"{operator}: {field} is {value!r}; allowed: {', '.join(map(repr, choices))}")
    if value not in choices:
        raise DmlError(operator, field, repr(value), ", ".join(map(repr, choices)))


def check_tuple(operator: str, out: Any, length: int, allowed: str) -> None:
    """Refuse an `out` that is not a tuple of this length; allowed: its description."""
    if not isinstance(out, tuple) or len(out) != length:
        found = f"a tuple of {len(out)}" if isinstance(out, tuple) else type(out).__name__
        raise TypeError(f"{operator}: out is {found}; allowed: {allowed}")


def check_output(operator: str, field: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an output as a plain array, or refuse it if the result cannot be written to it directly."""
    if type(array) is NDARRAY and array.dtype is dtype and array.flags.num & PLAIN == PLAIN and array.shape == shape:
        return array
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{operator}: {field} is {type(array).__name__}; allowed: a numpy.ndarray")
    if array.shape != shape:
        raise BindingError(operator, f"{field}.shape", str(array.shape), str(shape))
    if array.dtype != dtype:
        raise BindingError(operator, f"{field}.dtype", str(array.dtype), str(dtype))
    if not array.flags.writeable:
        raise BindingError(operator, field, "read-only", "an array that can be written to")
    if not array.flags.aligned:
        raise BindingError(operator, field, "not aligned to its element size", "an aligned array")
    if not array.flags.c_contiguous and elements_overlap(array.shape, array.strides, array.itemsize):
        raise BindingError(operator, field, "laid out so that elements overlap", "an array whose elements are apart")
    return np.asarray(array)  # a plain view of a matrix or a memory map


def check_apart(operator: str, field: str, out: Array, others: Mapping[str, Array]) -> None:
    """Refuse an output that shares memory with one of the other arrays."""
    flags = out.flags.num & OWNS_DATA
    for name, other in others.items():
        is_own = out is not other and flags & other.flags.num  # different arrays that own their data share no memory
        if not is_own and overlap(out, other):
            raise BindingError(operator, field, f"sharing memory with {name}", "its own memory")


def own_all(out: Array, *others: Array | None) -> bool:
    """Return whether all arrays own their data and none is `out`: then they share no memory with it."""
    flags = out.flags.num & OWNS_DATA
    for other in others:
        if other is out:
            return False
        if other is not None:
            flags &= other.flags.num
    return flags != 0


def same_memory(a: Array, b: Array) -> bool:
    """Return whether two arrays of one shape and type are the same elements in the same places."""
    if a is b:
        return True
    return (
        spans_meet(a, b)
        and a.ctypes.data == b.ctypes.data
        and all(mine == other for n, mine, other in zip(a.shape, a.strides, b.strides, strict=True) if n > 1)
    )


def check_type(operator: str, field: str, dtype: np.dtype[Any], allowed: Collection[str]) -> None:
    """Refuse a data type that is not in a list of names."""
    if type_name(dtype) not in allowed:
        is_nameless = dtype.str == "|V2" and "bfloat16" in allowed  # as .npy files store it
        hint = f"; for bfloat16: {field}.view(ml_dtypes.bfloat16)" if is_nameless else ""
        raise UnsupportedError(operator, f"{field}.dtype", str(dtype), ", ".join(allowed) + hint)


def as_array_like(operator: str, name: str, value: Any, other: str, dtype: np.dtype[Any]) -> Array:
    """Return an array of the type of argument `other`; lists and numbers are converted, arrays must have the type."""
    if type(value) is np.ndarray and value.dtype is dtype and value.flags.aligned:
        return value  # as `as_array` returns it: the type of `other` has been checked
    if not hasattr(value, "dtype"):
        return _from_list(operator, name, value, f"what {dtype} ({other}'s type) holds", dtype)
    array = as_array(operator, name, value)
    if array.dtype != dtype:
        raise BindingError(operator, f"{name}.dtype", str(array.dtype), f"{dtype} ({other}'s type)")
    return array


def _from_list(operator: str, name: str, value: Any, allowed: str, dtype: np.dtype[Any]) -> Array:
    """Convert lists and numbers, but refuse those that would lose a fraction, a digit or characters."""
    given = convert(operator, name, value)
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(given if hasattr(value, "__dlpack__") else value, dtype)
    except OverflowError as error:
        number = _INTEGER.match(str(error))
        raise BindingError(operator, name, number[1] if number else "an integer that overflows", allowed) from None
    except (TypeError, ValueError):
        raise BindingError(operator, name, _kind_of(value, given), allowed) from None
    if given.size and not _converts(given.dtype, dtype):
        raise BindingError(operator, name, _kind_of(value, given), allowed)
    if given.size and given.dtype.kind in "fc" and (np.isinf(array) & ~np.isinf(given)).any():
        raise BindingError(operator, name, "a number that overflows", allowed)
    return array


def _kind_of(value: Any, given: Array) -> str:
    return f"a list of {given.dtype}" if given.ndim else f"{value!r:.80}"


def _converts(given: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether lists of type `given` may become `dtype`; integers are checked by their values."""
    if dtype.name == "bfloat16":
        return given.kind in "biuf"
    if given.kind in "iu" and dtype.kind in "iu":
        return True
    if given.kind in "biufc" and dtype.kind in "biufc":
        return np.can_cast(given, dtype, "same_kind")
    return given.kind == dtype.kind and np.can_cast(given, dtype, "safe")
