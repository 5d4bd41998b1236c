"""The errors of compiled callers: about types when they are compiled, about values when they run."""

from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import TypingError
from numba.np.numpy_support import as_dtype

from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.products.arguments import PARAMETERS
from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.records import CELL

# Cells of the largest workspace on a thread's own stack: 96 KiB are a small part of the smallest usual stack (512 KiB),
# and enough for the 40 largest of 150,000 float32.
STACK = 96 * 1024 // CELL


def refusal(operator, field, found, allowed):
    """Return the error about a type, worded as all errors are."""
    return TypingError(f"{operator}: {field} is {found}; allowed: {allowed}")


def constant(operator, field, given):
    """Return the value of an argument that has to be constant."""
    if isinstance(given, types.Literal):
        return given.literal_value
    if isinstance(given, types.Omitted):
        return given.value
    if isinstance(given, types.NoneType):
        return None
    if isinstance(given, types.NumberClass | types.DType):
        return as_dtype(given.dtype)
    if isinstance(given, types.Type):
        raise refusal(operator, field, given, "a constant, in compiled code")
    return given  # a default


def data_type(operator, field, given):
    """Return an argument that is a data type."""
    value = constant(operator, field, given)
    try:
        return np.dtype(value)
    except TypeError:
        raise refusal(operator, field, repr(value), "a data type") from None


def choice(operator, field, given, choices):
    """Return a string argument that is one of the choices."""
    value = constant(operator, field, given)
    if value not in choices:
        raise refusal(operator, field, repr(value), ", ".join(map(repr, choices)))
    return value


def flag(operator, field, given):
    """Return a boolean argument."""
    value = constant(operator, field, given)
    if not isinstance(value, bool):
        raise refusal(operator, field, repr(value), "True or False")
    return value


def is_given(value):
    """Return whether an argument is there, and not None."""
    return value is not None and not isinstance(value, types.Omitted | types.NoneType)


def array_type(operator, field, given):
    """Return the type of a contiguous array's elements."""
    given = types.unliteral(given) if isinstance(given, types.Type) else given
    if not isinstance(given, types.Array):
        raise refusal(operator, field, given, "an array, in compiled code")
    if given.layout != "C":
        raise refusal(operator, field, f"laid out {given.layout!r}", "a C-contiguous array, in compiled code")
    if not given.aligned:
        raise refusal(operator, field, "not aligned to its element size", "an aligned array, in compiled code")
    try:
        dtype = as_dtype(given.dtype)
    except NotImplementedError:
        raise refusal(operator, f"{field}.dtype", given.dtype, "a type of fixed size") from None
    if dtype.name == "float16":
        raise refusal(operator, f"{field}.dtype", dtype, "types that Numba has on processors: no float16")
    return dtype


def check_type(operator, field, dtype, allowed):
    """Refuse a data type that is not in a list of names."""
    if dtype.name not in allowed:
        raise refusal(operator, f"{field}.dtype", dtype, ", ".join(allowed))


def output_type(operator, field, given, ndim, dtype):
    """Refuse an output that by its type cannot take a result."""
    found = array_type(operator, field, given)
    if given.ndim != ndim:
        raise refusal(operator, f"{field}.ndim", given.ndim, str(ndim))
    if found != dtype:
        raise refusal(operator, f"{field}.dtype", found, str(dtype))
    if not given.mutable:
        raise refusal(operator, field, "read-only", "an array that can be written to")


def _updates(found, indices, x, coordinates):
    """Say what shape updates should have; the shapes of updates and of x have one more dimension."""
    allowed = f"{(*indices[:-1], *x[coordinates:-1])} (indices.shape[:-1] + x.shape[{coordinates}:]"
    return "scatter_nd", "updates.shape", str(found[:-1]), f"{allowed}; updates are not broadcast)"


def _index(place, found, indices, x, is_signed):
    """Say which index is out of range; place: in the array of indices; indices, x: the shapes."""
    number, coordinate = divmod(place, indices[-1])
    where, size = ", ".join(map(str, np.unravel_index(place, indices))), x[coordinate]
    allowed = f"{-size if is_signed else 0} to {size - 1}" if size else "none"
    of = f"coordinate {coordinate} of tuple {number}; that dimension has {size} elements"
    return "scatter_nd", f"indices[{where}]", str(found), f"{allowed} ({of})"


_SCATTER, _PRODUCT = "scatter_nd", "quantized_matmul"
_CLIPPED, _POSITIVE = "clipped into an empty dimension", "finite float32 numbers greater than 0"
# For each error: operator, field, found, allowed.
WORDS: dict[str, Any] = {
    "axis": lambda op, axis, ndim: (op, "axis", str(axis), f"{-ndim} to {ndim - 1} (x has {ndim} dimensions)"),
    "shape": lambda op, field, found, allowed: (op, f"{field}.shape", str(found), str(allowed)),
    "shared": lambda op, field, other: (op, field, f"sharing memory with {other}", "memory of its own"),
    "k": lambda k, n, axis: ("top_k", "k", str(k), f"0 to {n} (the elements along axis {axis})"),
    "index_dtype": lambda name, n: ("top_k", "index_dtype", name, f"a type that holds {n - 1}"),
    "updates": _updates,
    "coordinates": lambda n, T: (_SCATTER, "indices.shape[-1]", str(n), f"{T} (by the dimensions of updates)"),
    "clip": lambda d: (_SCATTER, "indices", _CLIPPED, f"none: dimension {d} has 0 elements"),
    "index": _index,
    "depth": lambda a, b: (_PRODUCT, "b.shape", str(b), f"K = {a[1]} rows (a.shape is {a})"),
    # Parameters of products come by their numbers in PARAMETERS.
    "parameter": lambda i: WORDS["shared"](_PRODUCT, "out", PARAMETERS[i]),
    "length": lambda i, n, most: (_PRODUCT, f"{PARAMETERS[i]}.shape", f"({n},)", f"one number, or ({most},)"),
    "scale": lambda i, j, n, x: (_PRODUCT, PARAMETERS[i] + f"[{j}]" * (n > 1), str(x), _POSITIVE),
    "zero": lambda i, x, low, high: (_PRODUCT, PARAMETERS[i], str(x), f"{low} to {high} ({'u' * (low == 0)}int8)"),
}
_CLASSES = dict.fromkeys(("axis", "k", "index_dtype", "scale", "zero"), DmlError)
_CLASSES |= dict.fromkeys(("clip", "index"), IndexOutOfRangeError)  # those of other names are BindingErrors


class RefusalError(Exception):
    """What compiled code raises, by a name in WORDS and that function's arguments; callers get the public error.

    Compiled code passes numbers, and Python makes the text: Numba takes seconds to compile text.
    """

    def __new__(cls, name, *found):  # noqa: D102
        return _CLASSES.get(name, BindingError)(*WORDS[name](*found))


@device
def share_memory(a, b):
    """Return whether two contiguous arrays share memory."""
    first, other = address_of(a, 0), address_of(b, 0)
    return a.size > 0 and b.size > 0 and first < other + b.size * b.itemsize and other < first + a.size * a.itemsize
