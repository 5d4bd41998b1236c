"""Checks of the arguments of quantize_linear and dequantize_linear."""

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, as_axis, as_dtype, as_integer, check_type, type_name, without_metadata
from dmlcpu.common.forms import Form, Shape, formed
from dmlcpu.common.parameters import NUMBER_TYPES, as_floats, as_integers, check_floating, check_integral, float_number
from dmlcpu.common.prepared import Converter
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.quantizers.layout import meets

FLOATS = ("float32", "float16", "bfloat16", "float64")
RESULTS = ("float32", "float16", "bfloat16")
QUANTIZED = ("int8", "uint8", "int16", "uint16", "int4", "uint4")
STORED = (*QUANTIZED, "int32", "uint32")
FLOAT = np.dtype(np.float32)
QUANTIZE = "quantize_linear"


class Call(NamedTuple):
    """A checked call.

    Scale and zero point have x's dimensions. Their sizes divide x's, except along `axis` with a block size: there the
    last block may be short.
    """

    operator: str
    x: Form
    scale: Form  # float32
    zero_point: Form | None  # of the quantized type; None: one number
    zero: int  # the number
    dtype: np.dtype[Any]  # of the result
    is_checked: bool  # any scale is allowed, or it is a checked number
    axis: int = 0  # of the block size
    block_size: int = 0  # 0: all blocks are of one size

    @property
    def forms(self) -> tuple[Form, Form, Form | None]:
        """The forms of x, scale and zero point."""
        return self.x, self.scale, self.zero_point


def operands_of(operator: str, x: Any, scale: Any, zero_point: Any, out_dtype: Any) -> tuple[Any, ...]:
    """Return scale and zero point as arrays, and their forms as far as known without `check`.

    A number as a scale becomes an array of one element, whose form is its type; a number as a zero point is not an
    array, and its form is its type and value. x: the type of x.
    """
    scale_form: Any
    if type(scale) in NUMBER_TYPES:
        number = float_number if scale else float_number.__wrapped__
        scales, scale_form = number(operator, "scale", scale, operator == QUANTIZE), type(scale)
    elif hasattr(scale, "dtype"):
        scales, scale_form = formed(operator, "scale", scale)
    else:
        scales, scale_form = formed(operator, "scale", as_floats(operator, "scale", scale))
    if zero_point is None:
        return scales, None, scale_form, None
    if type(zero_point) in NUMBER_TYPES:
        return scales, None, scale_form, (type(zero_point), zero_point)
    if not hasattr(zero_point, "dtype"):
        _, quantized = _types(operator, x, _type_of(scale_form), None, out_dtype)
        zero_point = _as_quantized(operator, quantized, zero_point)
    zeros, zero_form = formed(operator, "zero_point", zero_point)
    return scales, zeros, scale_form, zero_form


def _as_quantized(operator: str, dtype: np.dtype[Any], value: Any) -> Array:
    return as_integers(operator, "zero_point", value, dtype, f"{dtype} (the quantized type)", QUANTIZED)


def _type_of(form: Any) -> np.dtype[Any] | None:
    """Return the NumPy type of a form, or of a number's form."""
    if isinstance(form, type):
        return np.dtype(form) if issubclass(form, np.generic) else None
    if form is None or isinstance(form[0], type):
        return form and _type_of(form[0])
    dtype: np.dtype[Any] = form[1]
    return dtype


def _types(operator: str, x: Any, scale: Any, zero_point: Any, out_dtype: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the type of the result, and the quantized one, for arguments of these types."""
    is_quantize = operator == QUANTIZE
    check_type(operator, "x", x, (*FLOATS, "int32") if is_quantize else STORED)
    allowed, given, usual = (QUANTIZED, zero_point, "uint8") if is_quantize else (RESULTS, scale, "float32")
    if out_dtype is not None:
        dtype = as_dtype(operator, "out_dtype", out_dtype, allowed)
    else:
        dtype = without_metadata(given) if given is not None and type_name(given) in allowed else np.dtype(usual)
    return dtype, (dtype if is_quantize else x)


def check(operator: str, forms: tuple[Any, ...], options: tuple[Any, ...]) -> tuple[Call, list[Converter]]:
    """Return the checked call and the conversions of its arrays; or refuse it.

    forms: of x, and the result of `operands_of`; options: axis, block size and the result's type, as given.
    """
    x, scale, zero_point = Form(*forms[0]), forms[1], forms[2]
    axis, block_size, out_dtype = options
    converters: list[Converter] = []
    dtype, quantized = _types(operator, x.dtype, _type_of(scale), _type_of(zero_point), out_dtype)
    axis = None if axis is None else as_axis(operator, "axis", axis, "x", len(x.shape))
    if block_size is not None:
        block_size = _block_size(operator, block_size, axis)
    is_number = isinstance(scale, type)
    scale = Form((1,), FLOAT) if is_number else Form(*scale)
    if scale.dtype != FLOAT:
        check_floating(operator, "scale", scale.dtype)
        converters.append((1, lambda value: np.ascontiguousarray(as_floats(operator, "scale", value))))
        scale = Form(scale.shape, FLOAT)
    scale = as_dimensions(operator, "scale", scale, x.shape, axis, block_size)
    zero, zero_type = 0, _type_of(zero_point) or quantized
    if zero_point is not None and isinstance(zero_point[0], type):
        zero, zero_point = int(_as_quantized(operator, quantized, zero_point[1])), None
    elif zero_point is not None:
        if zero_type != quantized:
            check_integral(operator, "zero_point", zero_type, f"{quantized} (the quantized type)", QUANTIZED)
            converters.append((2, lambda value: np.ascontiguousarray(_as_quantized(operator, quantized, value))))
            zero_point = (zero_point[0], quantized)
        zero_point = as_dimensions(operator, "zero_point", Form(*zero_point), x.shape, axis, block_size)
    is_short = block_size is not None and axis is not None and x.shape[axis] % block_size != 0
    cut: tuple[Any, ...] = (axis, block_size) if is_short else ()
    return Call(operator, x, scale, zero_point, zero, dtype, is_number or operator != QUANTIZE, *cut), converters


def _block_size(operator: str, value: Any, axis: int | None) -> int:
    size = as_integer(operator, "block_size", value)
    if size < 1:
        raise DmlError(operator, "block_size", str(size), "at least 1")
    if axis is None:
        raise DmlError(operator, "axis", "None", "an axis, as block_size is given")
    return size


def as_dimensions(
    operator: str, field: str, form: Form, shape: Shape, axis: int | None, block_size: int | None
) -> Form:
    """Return the form of scales or zero points, extended to x's dimensions, or refuse their shape."""
    ndim = len(shape)
    if math.prod(form.shape) == 1 and len(form.shape) <= max(ndim, 1):
        one = Form((1,) * ndim, form.dtype)
        return one if form.strides is None else one._replace(strides=one.steps)  # it may be read-only
    if axis is not None and form.shape == shape[axis : axis + 1]:
        own = [(form.shape[0], form.steps[0]) if d == axis else (1, 0) for d in range(ndim)]
        return Form(tuple([n for n, _ in own]), form.dtype, None if form.strides is None else tuple(s for _, s in own))
    allowed = list(shape)
    blocks = shape if block_size is None or axis is None else (*shape[:axis], -1, *shape[axis + 1 :])
    if block_size is not None and axis is not None:
        allowed[axis] = -(-shape[axis] // block_size)
    is_even = len(form.shape) == ndim and all(
        size == n or size == 1 or (whole > 0 and size > 0 and n % size == 0)
        for size, n, whole in zip(form.shape, allowed, blocks, strict=True)
    )
    if not is_even:
        raise BindingError(operator, f"{field}.shape", str(form.shape), _allowed(shape, tuple(allowed), axis))
    return form


def _allowed(shape: Shape, blocks: Shape, axis: int | None) -> str:
    along = "(n,) with axis" if axis is None else f"{shape[axis : axis + 1]} along axis {axis}"
    sizes = f"{len(shape)} dimensions whose sizes divide {shape}"
    return f"one number, {along}, or {sizes if blocks == shape else f'{blocks}, one for each block'}"


def repeats_of(call: Call) -> list[tuple[int, int]]:
    """Return how often zero points are repeated along each dimension, so that the scales' blocks fit theirs."""
    if call.zero_point is None:
        return []
    sizes = zip(call.x.shape, call.zero_point.shape, call.scale.shape, strict=True)
    return [(n // mine, d) for d, (n, mine, scales) in enumerate(sizes) if n and not meets(mine, scales)]
