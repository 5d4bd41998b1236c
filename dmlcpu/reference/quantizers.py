"""Quantizers in plain NumPy."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.annotations import Array
from dmlcpu.reference.sorts import written


def quantize_linear(
    x: "ArrayLike",
    scale: "ArrayLike",
    zero_point: "ArrayLike | None" = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: "DTypeLike | None" = None,
    out: "Array | None" = None,
) -> "Array":
    """Divide in float32, round, add in float64, which is exact, and clip. See `dmlcpu.quantize_linear`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> reference.quantize_linear(np.array([0.5, 1.5, 2.5], np.float32), 1.0, np.uint8(1))
    array([1, 3, 3], dtype=uint8)
    """
    x = np.asarray(x)
    if out_dtype is None:
        zero_type = np.asarray(zero_point).dtype
        out_dtype = zero_type if zero_type.name in _INTEGERS and zero_type.name[-2:] != "32" else np.uint8
    zeros = _spread(0 if zero_point is None else zero_point, x.shape, axis, block_size).astype(np.float64)
    lowest, highest = _INTEGERS[np.dtype(out_dtype).name]
    with np.errstate(all="ignore"):
        steps = _spread(scale, x.shape, axis, block_size).astype(np.float32)
        rounded = np.rint(np.asarray(x).astype(np.float32) / steps).astype(np.float64) + zeros
    y = np.where(np.isnan(rounded), lowest, np.clip(rounded, lowest, highest))
    return written(y.astype(np.int64).astype(out_dtype), out)


def dequantize_linear(
    x: "ArrayLike",
    scale: "ArrayLike",
    zero_point: "ArrayLike | None" = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: "DTypeLike | None" = None,
    out: "Array | None" = None,
) -> "Array":
    """Subtract in int64, and round each step to float32. See `dmlcpu.dequantize_linear`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> reference.dequantize_linear(np.array([0, 128, 255], np.uint8), 0.5, 128)
    array([-64. ,   0. ,  63.5], dtype=float32)
    """
    x = np.asarray(x)
    if out_dtype is None:
        scale_type = np.asarray(scale).dtype if hasattr(scale, "dtype") else np.dtype(np.float32)
        out_dtype = scale_type if scale_type.name in ("float16", "bfloat16") else np.float32
    zeros = _spread(0 if zero_point is None else zero_point, x.shape, axis, block_size).astype(np.int64)
    with np.errstate(all="ignore"):
        steps = _spread(scale, x.shape, axis, block_size).astype(np.float32)
        product = np.asarray((x.astype(np.int64) - zeros).astype(np.float32) * steps)
        product[np.isnan(product)] = np.nan
        return written(product.astype(out_dtype), out)


class DynamicQuantized(NamedTuple):
    """Integers, scale and zero point, as `dmlcpu.dynamic_quantize_linear` returns them."""

    y: Array
    scale: Array
    zero_point: Array


def dynamic_quantize_linear(
    x: "ArrayLike",
    *,
    axis: int | None = None,
    out_dtype: "DTypeLike" = np.uint8,
    out: "tuple[Array, Array, Array] | None" = None,
) -> "DynamicQuantized":
    """Find the range of x, or of each row, with 0 in it, then quantize. See `dmlcpu.dynamic_quantize_linear`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> reference.dynamic_quantize_linear(np.array([0, 2, -3], np.float32)).y
    array([153, 255,   0], dtype=uint8)
    """
    lowest, highest = _INTEGERS[np.dtype(out_dtype).name]
    with np.errstate(all="ignore"):
        values = np.asarray(x).astype(np.float32)
        lo = np.asarray(values.min(axis=axis, keepdims=axis is not None, initial=0))
        hi = np.asarray(values.max(axis=axis, keepdims=axis is not None, initial=0))
        scale = np.asarray((hi - lo) / np.float32(255))
        scale[scale == 0] = 1
        place = np.float32(lowest) - lo / scale
    zero = np.asarray(np.rint(np.clip(place, lowest, highest)).astype(np.int64).astype(out_dtype))
    y = quantize_linear(values, scale, zero, out_dtype=out_dtype)
    return DynamicQuantized(*map(written, (y, scale, zero), out or (None, None, None)))


# The least and the greatest integer of each type.
_INTEGERS = {
    f"{sign}int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sign == "" else (0, 2**bits - 1)
    for sign in ("", "u")
    for bits in (4, 8, 16, 32)
}


def _spread(values: ArrayLike, shape: tuple[int, ...], axis: int | None, block_size: int | None) -> Array:
    """Return a scale or zero point for each element of x."""
    array = np.asarray(values)
    if array.size == 1:
        return np.broadcast_to(array.reshape(()), shape)
    if axis is not None and array.shape == (shape[axis],):
        array = array.reshape([-1 if d == axis % len(shape) else 1 for d in range(len(shape))])
    for d, n in enumerate(shape):
        is_cut = block_size is not None and axis is not None and d == axis % len(shape)
        block = block_size if is_cut and array.shape[d] not in (1, n) else n // max(1, array.shape[d])
        array = np.take(array, np.arange(n) // max(1, block or 1), axis=d)
    return array
