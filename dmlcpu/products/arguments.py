"""Checks of the arguments of products of bytes: scales, zero points, and matching shapes."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlcpu.common.arguments import NDARRAY, Array, as_dtype, check_type
from dmlcpu.common.data_types import BYTE_TYPES
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.parameters import NUMBER_TYPES, as_floats, as_integers, as_numbers, check_scale
from dmlcpu.errors import BindingError
from dmlcpu.kernels.gemm.table import UNPACKED
from dmlcpu.runtime.memory import OWNS_DATA, PLAIN, frombuffer, spans_meet

ResultType = Callable[[str, Any, Any, np.dtype[Any]], np.dtype[Any]]

ABSENT: Final = object()  # for a scale that an operator lacks
PARAMETERS = ("a_scale", "a_zero_point", "b_scale", "b_zero_point", "y_scale", "y_zero_point")  # in the kernels' order
SCALES = (0, 2, 4)  # their positions
OPERANDS = ("a", *PARAMETERS[:2], "b", *PARAMETERS[2:])  # in the functions' order
DYNAMIC = "dynamic_quantize_matmul"
FLOAT, BYTE = np.dtype(np.float32), np.dtype(np.uint8)
_WORDS = (FLOAT, BYTE) * 3  # the types in which kernels read parameters
_ZEROS = (np.zeros(1, BYTE),) * len(PARAMETERS)
_NO_SHAPES: tuple[Shape | None, ...] = (None,) * len(PARAMETERS)
_CONSTANTS = NUMBER_TYPES | {type(None), type(ABSENT)}  # ABSENT is the only object of its type that is ever passed
_BYTE_DTYPES = {np.dtype(name).num: np.dtype(name) for name in BYTE_TYPES}
_BIAS = ("float32", "float16")

Parameters = tuple[tuple[Array, ...], tuple[Shape | None, ...], np.dtype[Any]]  # see `parameters_of`


def type_of_bytes(operator: str, out_dtype: Any, y_zero_point: Any, default: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a quantized product: `out_dtype`, else the zero point's, else the default."""
    if out_dtype is not None:
        return as_dtype(operator, "out_dtype", out_dtype, BYTE_TYPES)
    found = None
    if type(y_zero_point) is np.ndarray:
        found = _BYTE_DTYPES.get(y_zero_point.dtype.num)
    elif not (y_zero_point is None or type(y_zero_point) is int):
        found = _BYTE_DTYPES.get(as_numbers(operator, "y_zero_point", y_zero_point).dtype.num)
    return found or _BYTE_DTYPES.get(default.num, default)


def parameters_of(
    operator: str,
    result_type: ResultType,
    a_type: Any,
    b_type: Any,
    asked: tuple[Any, Any],
    parameters: tuple[Any, ...],
) -> Parameters:
    """Return scales and zero points, flat, their shapes, and the type of the result. Refuse types of a and b.

    The shape of a number or of a missing parameter is None. Numbers are checked here, the shapes of arrays by `check`,
    and their values when the product runs. Parameters that share memory with `out` are copied. asked: out_dtype and
    out.
    """
    out_dtype, out = asked
    # Most calls repeat the numbers of earlier ones. Most calls with arrays have one for b's scale or a's zero point:
    # this check takes a tenth of the time of an exception.
    if not (type(parameters[2]) is NDARRAY or type(parameters[1]) is NDARRAY):
        try:
            return _of_numbers(operator, result_type, a_type, b_type, out_dtype, *parameters)
        except (TypeError, ValueError):  # another array, a scale of 0, an invalid value, or one that cannot be hashed
            pass
    return _looked_at(operator, result_type, a_type, b_type, out_dtype, out, parameters)


# typed: the cache separates True and 1.0 from 1.
@functools.lru_cache(maxsize=1024, typed=True)
def _of_numbers(
    operator: str, result_type: ResultType, a_type: Any, b_type: Any, out_dtype: Any, *parameters: Any
) -> Parameters:
    """Return what `parameters_of` does if all parameters are numbers or missing; else raise TypeError."""
    if not _CONSTANTS.issuperset(map(type, parameters)) or any(parameters[place] == 0 for place in SCALES):
        raise TypeError("not a number, or -0.0, which the cache confuses with 0.0")
    return _looked_at(operator, result_type, a_type, b_type, out_dtype, None, parameters)


def _looked_at(
    operator: str,
    result_type: ResultType,
    a_type: Any,
    b_type: Any,
    out_dtype: Any,
    out: Any,
    parameters: tuple[Any, ...],
) -> Parameters:
    """Return what `parameters_of` does, checking each parameter."""
    if not (a_type.num in _BYTE_DTYPES and b_type.num in _BYTE_DTYPES):
        check_type(operator, "a", a_type, BYTE_TYPES)
        check_type(operator, "b", b_type, BYTE_TYPES)
    dtype = result_type(operator, out_dtype, parameters[-1], a_type)
    kinds = (FLOAT, a_type, FLOAT, b_type, FLOAT, dtype)
    flat, shapes, flags = [*_ZEROS], [*_NO_SHAPES], OWNS_DATA
    for place, value in enumerate(parameters):
        kind = kinds[place]
        if type(value) is NDARRAY:
            its = value.flags.num
            if value.dtype is kind and its & PLAIN == PLAIN and value.size and value is not out:  # most arrays
                word = _WORDS[place]
                flat[place] = value.ravel() if kind is word else frombuffer(value, word)  # as `flat_of`, without a call
                shapes[place] = value.shape
                flags &= its
                continue
        elif value is ABSENT or (value is None and place not in SCALES):
            continue
        elif type(value) in NUMBER_TYPES:
            number = _number if value or place not in SCALES else _number.__wrapped__  # see `_of_numbers`
            flat[place] = number(operator, place, value, kind, parameters[4] is not ABSENT)
            continue
        array = converted(operator, place, value, kind)
        flat[place], shapes[place], flags = flat_of(array), array.shape, 0
    if out is not None and not (type(out) is np.ndarray and out.flags.num & flags):
        return apart(out, flat), tuple(shapes), dtype
    return tuple(flat), tuple(shapes), dtype


@functools.lru_cache(maxsize=1024, typed=True)
def _number(operator: str, place: int, value: Any, dtype: np.dtype[Any], positive: bool) -> Array:
    """Return a number as an array of one element."""
    array = converted(operator, place, value, dtype)
    if positive and place in SCALES:
        check_scale(operator, PARAMETERS[place], array, value)
    return flat_of(array)


def apart(out: Any, numbers: Sequence[Array]) -> tuple[Array, ...]:
    """Return numbers that do not change when the output, or a tuple of outputs, is written."""
    outputs = [each for each in (out if isinstance(out, tuple) else (out,)) if isinstance(each, np.ndarray)]
    return tuple([each.copy() if any(spans_meet(own, each) for own in outputs) else each for each in numbers])


def converted(operator: str, place: int, value: Any, dtype: np.dtype[Any]) -> Array:
    """Return the parameter at a position as an array of its type."""
    name = PARAMETERS[place]
    if place in SCALES:
        return as_floats(operator, name, value)
    return as_integers(operator, name, value, dtype, f"{dtype} (its tensor's type)", BYTE_TYPES)


def flat_of(array: Array) -> Array:
    """Return contiguous numbers: scales as float32, others as bytes; a copy if the array is not packed."""
    if array.flags.num & PLAIN == PLAIN and array.size:
        if array.dtype is FLOAT or array.dtype is BYTE:
            return array.ravel()  # takes a third as long
        return frombuffer(array, FLOAT if array.dtype == FLOAT else BYTE)
    numbers = np.ascontiguousarray(array).ravel()
    if not numbers.flags.writeable:
        numbers = numbers.copy()  # kernels are compiled for writeable arrays
    return numbers if numbers.dtype == FLOAT else numbers.view(BYTE)


class Call(NamedTuple):
    """The checked operands of a product. Matrices have two dimensions or more."""

    operator: str
    a: Form
    b: Form  # a packed matrix has strides of 0
    layout: str  # of b: the packed layout, or UNPACKED
    is_exact: bool  # no pair of b's bytes is known to saturate
    parameters: tuple[Shape | None, ...]  # (..., M, 1) for a and y, (..., 1, N) for b
    bias: Form | None  # broadcasts to `matrix`
    dtype: np.dtype[Any]  # of the result
    matrix: Shape  # the result's, including the dimensions that 1-D operands drop
    shape: Shape  # the result's, without them


class Shapes(NamedTuple):
    """The shapes of a product."""

    left: Shape  # a as matrices, and b
    right: Shape
    rows: Shape  # the shape to which the parameters of a, of b and of the result broadcast
    columns: Shape
    y_rows: Shape
    matrix: Shape  # the result's, including the dimensions that 1-D operands drop
    shape: Shape  # the result's, without them


def check_matrix(operator: str, field: str, form: Form, at_least: int = 1) -> None:
    """Refuse anything but an int8 or uint8 array of at least this number of dimensions."""
    check_type(operator, field, form.dtype, BYTE_TYPES)
    if len(form.shape) < at_least:
        raise BindingError(operator, f"{field}.ndim", str(len(form.shape)), f"at least {at_least}")


def left_of(operator: str) -> str:
    """Return an operator's name for its left operand."""
    return "x" if operator == DYNAMIC else "a"


def check_matrices(operator: str, a: Any, b: Any) -> Shapes:
    """Return the shapes of a product, or refuse the matrices. a, b: forms, or that of a packed matrix."""
    check_matrix(operator, left_of(operator), Form(*a))
    check_matrix(operator, "b", rhs_form(b)[0])
    return shapes_of(operator, a[0], b[0])


def check(
    operator: str,
    a: Any,
    b: Any,
    parameters: tuple[Shape | None, ...],
    bias: Any,
    dtype: np.dtype[Any],
) -> Call:
    """Return the checked operands, or refuse them.

    a, b, bias: forms, or that of a packed matrix, None for no bias; parameters: shapes; dtype: of the result.
    """
    shapes = check_matrices(operator, a, b)
    a, (b, layout, is_exact) = Form(*a), rhs_form(b)
    drops = len(a.shape) == 1, len(b.shape) == 1
    return Call(
        operator,
        Form(shapes.left, a.dtype, matrix_strides(a.strides, drops[0], False)),
        Form(shapes.right, b.dtype, matrix_strides(b.strides, False, drops[1])),
        layout,
        is_exact,
        spread_all(operator, parameters, shapes),
        None if bias is None else _bias_form(operator, Form(*bias), shapes.shape, *drops),
        dtype,
        shapes.matrix,
        shapes.shape,
    )


def rhs_form(b: Any) -> tuple[Form, str, bool]:
    """Return the form of a right-hand side, its layout, and whether no pair of its bytes is known to saturate.

    b: a form, or that of a packed matrix, whose strides are 0 then.
    """
    return (Form(b[0], b[1], (0,) * len(b[0])), *b[2:]) if len(b) > 3 else (Form(*b), UNPACKED, False)


def matrix_strides(strides: Shape | None, drops_rows: bool, drops_columns: bool) -> Shape | None:
    """Return strides with a 0 for each dimension of length 1 that a 1-D operand drops; None: a packed array."""
    if strides is None:
        return None
    strides = (*strides, 0) if drops_columns else strides
    return (*strides[:-1], 0, strides[-1]) if drops_rows else strides


def spread_all(operator: str, parameters: tuple[Shape | None, ...], shapes: Shapes) -> tuple[Shape | None, ...]:
    """Return the shapes of parameters, extended to the dimensions of matrices, or refuse them."""
    wanted = (shapes.rows, shapes.rows, shapes.columns, shapes.columns, shapes.y_rows, shapes.y_rows)
    return tuple(
        [
            None if shape is None else spread(operator, name, shape, whole, not name.startswith("b"))
            for name, shape, whole in zip(PARAMETERS, parameters, wanted, strict=False)
        ]
    )


def spread(operator: str, field: str, own: Shape, shape: Shape, rows: bool) -> Shape:
    """Return the shape of a parameter with the dimensions of `shape`: (..., length, 1) or (..., 1, length)."""
    length = shape[-2] if rows else shape[-1]
    if math.prod(own) == 1:
        return (1, 1)
    if own == (length,):
        return shape[-2:]
    if own == shape:
        return own
    try:
        fits = len(own) > 1 and np.broadcast_shapes(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        allowed = f"one number, ({length},), or a shape that broadcasts to {shape}"
        raise BindingError(operator, f"{field}.shape", str(own), allowed)
    return own


def _bias_form(operator: str, bias: Form, shape: Shape, drops_rows: bool, drops_columns: bool) -> Form:
    """Return the form of a bias with the dimensions of matrices, or refuse one that does not broadcast to `shape`."""
    check_type(operator, "bias", bias.dtype, _BIAS)
    try:
        fits = np.broadcast_shapes(bias.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise BindingError(operator, "bias.shape", str(bias.shape), f"a shape that broadcasts to {shape}")
    missing = len(shape) - len(bias.shape)
    own, strides = (1,) * missing + bias.shape, (0,) * missing + bias.steps
    own = (*own, 1) if drops_columns else own
    own = (*own[:-1], 1, own[-1]) if drops_rows else own
    return Form(own, bias.dtype, matrix_strides(strides, drops_rows, drops_columns))


def common_batch(operator: str, a: Shape, b: Shape, left: Shape, right: Shape) -> Shape:
    """Return the batch shape of a product, or refuse its operands. a, b: their shapes; left, right: as matrices."""
    if left[-1] != right[-2]:
        raise BindingError(operator, "b.shape", str(b), f"K = {left[-1]} rows ({left_of(operator)}.shape is {a})")
    batch = left[:-2]
    if batch == right[:-2]:
        return batch
    try:
        return np.broadcast_shapes(batch, right[:-2])
    except ValueError:
        allowed = f"batch dimensions that broadcast with {batch} ({left_of(operator)}.shape is {a})"
        raise BindingError(operator, "b.shape", str(b), allowed) from None


def shapes_of(operator: str, a: Shape, b: Shape) -> Shapes:
    """Return the shapes of a product of operands of these shapes, or refuse them."""
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    batch = common_batch(operator, a, b, left, right)
    return Shapes(
        left,
        right,
        rows=(*left[:-1], 1),
        columns=(*right[:-2], 1, right[-1]),
        y_rows=(*batch, left[-2], 1),
        matrix=(*batch, left[-2], right[-1]),
        shape=(*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())),
    )
