"""Checks of the arguments of quantize_linear and dequantize_linear."""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, as_array, as_axis, as_dtype, as_integer, check_type, type_name
from dmlcpu.common.parameters import as_floats, as_integers
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.products.quantization import check_scale
from dmlcpu.quantizers.layout import Shape, meets

FLOATS = ("float32", "float16", "bfloat16", "float64")
RESULTS = ("float32", "float16", "bfloat16")
QUANTIZED = ("int8", "uint8", "int16", "uint16", "int4", "uint4")
STORED = (*QUANTIZED, "int32", "uint32")
_FLOAT = np.dtype(np.float32)


class Call(NamedTuple):
    """The arguments of a call in their plain forms, but for the output.

    Scale and zero point have x's dimensions. Their sizes divide x's, but along `axis` if there is a block size: there
    the last block may be short.
    """

    operator: str
    x: Array  # in blocks a stand-in
    scale: Array  # float32
    zero_point: Array | None  # of the quantized type
    dtype: np.dtype[Any]  # of the result
    axis: int | None = None
    block_size: int | None = None  # None: all blocks are of one size


def check(
    operator: str, x: Array, scale: Any, zero_point: Any, axis: Any, block_size: Any, dtype: np.dtype[Any]
) -> Call:
    """Return the arguments in their plain forms, or refuse them. x: checked; dtype: of the result."""
    is_quantize = operator == "quantize_linear"
    axis = None if axis is None else as_axis(operator, "axis", axis, "x", x.ndim)
    if block_size is not None:
        block_size = _block_size(operator, block_size, axis)
    scales = as_floats(operator, "scale", scale)
    if is_quantize:
        check_positive(operator, "scale", scales, scale)
    shaped = as_dimensions(operator, "scale", scales, x.shape, axis, block_size)
    if zero_point is not None:
        quantized = dtype if is_quantize else x.dtype
        allowed = f"{quantized} (the quantized type)"
        zero_point = as_integers(operator, "zero_point", zero_point, quantized, allowed, QUANTIZED)
        zero_point = as_dimensions(operator, "zero_point", zero_point, x.shape, axis, block_size)
        zero_point = _meeting(zero_point, shaped, x.shape, axis if block_size else None)
    is_short = block_size is not None and axis is not None and x.shape[axis] % block_size != 0
    return Call(operator, x, shaped, zero_point, dtype, *((axis, block_size) if is_short else (None, None)))


def _block_size(operator: str, value: Any, axis: int | None) -> int:
    size = as_integer(operator, "block_size", value)
    if size < 1:
        raise DmlError(operator, "block_size", str(size), "at least 1")
    if axis is None:
        raise DmlError(operator, "axis", "None", "an axis, as block_size is given")
    return size


def check_positive(operator: str, field: str, scale: Array, given: Any = None) -> None:
    """Refuse scales that are not positive and finite; given: the argument that they were made of."""
    once = tuple([slice(0, 1) if stride == 0 else slice(None) for stride in scale.strides])
    check_scale(operator, field, scale[once] if 0 in scale.strides else scale, given)


def as_dimensions(
    operator: str, field: str, array: Array, shape: Shape, axis: int | None, block_size: int | None
) -> Array:
    """Return a view of scales or zero points with x's dimensions, or refuse their shape."""
    ndim = len(shape)
    if array.size == 1 and array.ndim <= max(ndim, 1):
        return array.reshape((1,) * ndim)
    if axis is not None and array.shape == shape[axis : axis + 1]:
        return array.reshape([-1 if d == axis else 1 for d in range(ndim)])
    allowed = list(shape)
    blocks = shape if block_size is None or axis is None else (*shape[:axis], -1, *shape[axis + 1 :])
    if block_size is not None and axis is not None:
        allowed[axis] = -(-shape[axis] // block_size)
    is_even = array.ndim == ndim and all(
        size == n or size == 1 or (whole > 0 and size > 0 and n % size == 0)
        for size, n, whole in zip(array.shape, allowed, blocks, strict=True)
    )
    if not is_even:
        raise BindingError(operator, f"{field}.shape", str(array.shape), _allowed(shape, tuple(allowed), axis))
    return array


def _allowed(shape: Shape, blocks: Shape, axis: int | None) -> str:
    along = "(n,) with axis" if axis is None else f"{shape[axis : axis + 1]} along axis {axis}"
    sizes = f"{len(shape)} dimensions whose sizes divide {shape}"
    return f"one number, {along}, or {sizes if blocks == shape else f'{blocks}, one for each block'}"


def _meeting(zero_point: Array, scale: Array, shape: Shape, axis: int | None) -> Array:
    """Return zero points whose blocks divide the scales', or are divided by them, in each dimension.

    axis: that of the block size. There they do: both have one for all, one for each block, or one for each element.
    """
    for d, n in enumerate(shape):
        mine, others = zero_point.shape[d], scale.shape[d]
        if n and d != axis and not meets(mine, others):
            zero_point = np.repeat(zero_point, n // mine, axis=d)
    return zero_point


def quantized_type(operator: str, out_dtype: Any, zero_point: Any) -> np.dtype[Any]:
    """Return the type of a quantized result: `out_dtype`, else the zero point's, else uint8."""
    if out_dtype is not None:
        return np.dtype(as_dtype(operator, "out_dtype", out_dtype, QUANTIZED))
    return _type_of(operator, "zero_point", zero_point, QUANTIZED) or np.dtype(np.uint8)


def floating_type(operator: str, out_dtype: Any, scale: Any) -> np.dtype[Any]:
    """Return the type of a dequantized result: `out_dtype`, else the scale's if that is of 16 bits, else float32."""
    if out_dtype is not None:
        return np.dtype(as_dtype(operator, "out_dtype", out_dtype, RESULTS))
    return _type_of(operator, "scale", scale, RESULTS) or _FLOAT


def _type_of(operator: str, field: str, value: Any, allowed: tuple[str, ...]) -> np.dtype[Any] | None:
    """Return the type of an array if it is one of these."""
    if not hasattr(value, "dtype"):
        return None
    dtype: np.dtype[Any] = as_array(operator, field, value).dtype
    return dtype if type_name(dtype) in allowed else None


def check_input(operator: str, x: Any, allowed: tuple[str, ...]) -> Array:
    """Return x as an array of one of these types."""
    array = as_array(operator, "x", x)
    check_type(operator, "x", array.dtype, allowed)
    return array
