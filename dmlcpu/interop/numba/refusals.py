"""The errors of compiled callers: about types when they are compiled, about values when they run."""

from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import TypingError
from numba.np.numpy_support import as_dtype

from dmlcpu.common.forms import Form
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.operators.scatter_nd import call as scatter_nd_call
from dmlcpu.operators.top_k import call as top_k_call
from dmlcpu.products.arguments import PARAMETERS, converted, shapes_of
from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.records import CELL

# Cells of the largest workspace on a thread's stack: 96 KiB are a small part of the smallest usual stack (512 KiB), and
# enough for the 40 largest of 150,000 float32.
STACK = 96 * 1024 // CELL


def refusal(operator, field, found, allowed):
    """Return the error about a type, worded as all errors are."""
    return TypingError(f"{operator}: {field} is {found}; allowed: {allowed}")


def constant(operator, field, given):
    """Return the value of an argument that must be constant."""
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


def typed(check, *arguments):
    """Return what a check of the package returns; its refusal is an error about types."""
    try:
        return check(*arguments)
    except (DmlError, TypeError) as error:
        raise TypingError(str(error)) from None


def is_given(value):
    """Return whether an argument is given and not None."""
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


def output_type(operator, field, given, ndim, dtype):
    """Refuse an output whose type cannot hold the result."""
    found = array_type(operator, field, given)
    if given.ndim != ndim:
        raise refusal(operator, f"{field}.ndim", given.ndim, str(ndim))
    if found != dtype:
        raise refusal(operator, f"{field}.dtype", found, str(dtype))
    if not given.mutable:
        raise refusal(operator, field, "read-only", "an array that can be written to")


_SCATTER, _PRODUCT = "scatter_nd", "quantized_matmul"
_FLOAT, _INT, _UINT = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.uint64)


def _top_k(k, axis, shape, index_dtype):
    """Refuse k, axis or the type of indices, for any elements."""
    top_k_call.check(Form(shape, _FLOAT), (k, axis, None, None, True, "greatest", index_dtype))


def _scatter_nd(x, indices, updates):
    """Refuse shapes, for any elements; those of x and updates have one more dimension."""
    forms = Form(x[:-1], _FLOAT), Form(indices, _INT), Form(updates[:-1], _FLOAT), None
    scatter_nd_call.check(forms, ("none", "clip"))


def _length(place, found, most):
    return BindingError(_PRODUCT, f"{PARAMETERS[place]}.shape", f"({found},)", f"one number, or ({most},)")


def _scale(place, index, size, value):
    field = PARAMETERS[place] + f"[{index}]" * (size > 1)
    return DmlError(_PRODUCT, field, str(value), "finite float32 numbers greater than 0")


_BY_UPDATES = "(by the dimensions of updates)"
# Each returns an error or raises one. Parameters of products are passed as their positions in PARAMETERS.
ERRORS: dict[str, Any] = {
    "shape": lambda op, field, found, allowed: BindingError(op, f"{field}.shape", str(found), str(allowed)),
    "shared": lambda op, field, other: BindingError(op, field, f"sharing memory with {other}", "its own memory"),
    "top_k": _top_k,
    "coordinates": lambda n, T: BindingError(_SCATTER, "indices.shape[-1]", str(n), f"{T} {_BY_UPDATES}"),
    "scatter_nd": _scatter_nd,
    "index": lambda place, n, i, x, signed: scatter_nd_call.out_of_range(n, place, (i, _INT if signed else _UINT), x),
    "depth": lambda a, b: shapes_of(_PRODUCT, a, b),
    "parameter": lambda place: ERRORS["shared"](_PRODUCT, "out", PARAMETERS[place]),
    "length": _length,
    "scale": _scale,
    "zero": lambda place, value, lowest: converted(_PRODUCT, place, value, np.dtype("i1" if lowest else "u1")),
}


class RefusalError(Exception):
    """The error in compiled code, by a name in ERRORS and that function's arguments; callers get the public error.

    Compiled code passes numbers, and Python makes the text: Numba takes seconds to compile text.
    """

    def __new__(cls, name, *found):  # noqa: D102
        try:
            return ERRORS[name](*found)
        except DmlError as error:
            return error


@device
def share_memory(a, b):
    """Return whether two contiguous arrays share memory."""
    first, other = address_of(a, 0), address_of(b, 0)
    return a.size > 0 and b.size > 0 and first < other + b.size * b.itemsize and other < first + a.size * a.itemsize
