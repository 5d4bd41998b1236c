"""Checks of the arguments of quantized operators: int8 matrices, scales and zero points."""

import functools
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_array, as_dtype, check_type
from dmlcpu.common.data_types import QUANTIZED
from dmlcpu.common.parameters import as_floats, as_integers, as_numbers, bad_element
from dmlcpu.errors import BindingError
from dmlcpu.kernels.scales import are_positive
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import PLAIN, frombuffer

Shape = tuple[int, ...]

_QUANTIZED = {np.dtype(name).num for name in QUANTIZED}
_BIAS = ("float32", "float16")
_FLOATS = (float, np.float32, np.float64)
_TINY, _HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def check_matrix(operator: str, field: str, value: Any, at_least: int = 1) -> Array:
    """Return an int8 or uint8 array of at least this number of dimensions."""
    array = as_array(operator, field, value)
    if array.dtype.num not in _QUANTIZED:  # a number is looked up faster than a name
        check_type(operator, field, array.dtype, QUANTIZED)
    if array.ndim < at_least:
        raise BindingError(operator, f"{field}.ndim", str(array.ndim), f"at least {at_least}")
    return array


def common_batch(operator: str, a: Shape, b: Shape, left: Shape, right: Shape) -> Shape:
    """Return the batch shape of a product, or refuse its operands. a, b: their shapes; left, right: as matrices."""
    if left[-1] != right[-2]:
        raise BindingError(operator, "b.shape", str(b), f"K = {left[-1]} rows (a.shape is {a})")
    batch = left[:-2]
    if batch == right[:-2]:
        return batch
    try:
        return np.broadcast_shapes(batch, right[:-2])
    except ValueError:
        allowed = f"batch dimensions that broadcast with {batch} (a.shape is {a})"
        raise BindingError(operator, "b.shape", str(b), allowed) from None


def output_type(operator: str, out_dtype: Any, y_zero_point: Any, default: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a quantized product: `out_dtype`, else the zero point's, else the default."""
    if out_dtype is None:
        dtype = default
        if not (y_zero_point is None or type(y_zero_point) is int):
            is_array = type(y_zero_point) is np.ndarray
            zero_type = y_zero_point.dtype if is_array else as_numbers(operator, "y_zero_point", y_zero_point).dtype
            dtype = zero_type if zero_type.num in _QUANTIZED else default
        return np.dtype(dtype.char)  # without the metadata of an operand's
    return as_dtype(operator, "out_dtype", out_dtype, QUANTIZED)


def scale(operator: str, field: str, value: Any, shape: Shape, *, rows: bool, positive: bool = True) -> Array:
    """Return a scale as float32 in a shape that broadcasts to `shape`: (..., M, 1) of rows, else (..., 1, N).

    positive: it has to be positive and finite.
    """
    if type(value) in _FLOATS and _TINY < value < _HUGE:  # an ordinary number needs no further check
        return _number(float(value), "f")
    array = copy_scales(operator, field, value)
    if positive:
        check_scale(operator, field, array, value)
    return spread(operator, field, array, shape, rows)


def copy_scales(operator: str, field: str, value: Any) -> Array:
    """Return a copy of scales as float32: an output that shares their memory must not change them."""
    return as_floats(operator, field, value).copy()


@functools.lru_cache(maxsize=1024)
def _number(value: float, dtype: str) -> Array:
    """Return a number as a matrix of one element. Cached: most calls repeat the numbers of earlier ones."""
    return np.array([[value]], dtype)


def zero_point(
    operator: str, field: str, value: Any, dtype: np.dtype[Any], shape: Shape, *, rows: bool
) -> Array | None:
    """Return a zero point in its tensor's type, in a shape that broadcasts to `shape`; None stays None."""
    if value is None:
        return None
    if (type(value) is int or type(value) is dtype.type) and (
        0 <= value < 256 if dtype == np.uint8 else -128 <= value < 128
    ):
        return _number(int(value), dtype.char)
    return spread(operator, field, copy_zero_points(operator, field, value, dtype), shape, rows)


def copy_zero_points(operator: str, field: str, value: Any, dtype: np.dtype[Any]) -> Array:
    """Return a copy of zero points in their tensor's type."""
    return as_integers(operator, field, value, dtype, f"{dtype} (its tensor's type)", QUANTIZED).copy()


def check_bias(operator: str, value: Any, shape: Shape) -> Array:
    """Return a bias as float32 or float16 in a shape that broadcasts to the result's, or refuse it."""
    array = as_array(operator, "bias", value) if hasattr(value, "dtype") else as_floats(operator, "bias", value)
    check_type(operator, "bias", array.dtype, _BIAS)
    check_bias_shape(operator, array.shape, shape)
    return array


def check_bias_shape(operator: str, bias: Shape, shape: Shape) -> None:
    """Refuse the shape of a bias that does not broadcast to the result's."""
    try:
        fits = np.broadcast_shapes(bias, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise BindingError(operator, "bias.shape", str(bias), f"a shape that broadcasts to {shape}")


def check_scale(operator: str, field: str, array: Array, given: Any = None) -> None:
    """Refuse scales that are not positive and finite, naming the first bad element.

    array: float32; given: the argument that it was made of, which has the element as it was given.
    """
    # Infinity, zero, and NaN, which compares as false with everything, fail one of these.
    if array.size == 1 and 0 < array.item() < np.inf:
        return
    if array.flags.num & PLAIN == PLAIN and array.dtype == np.float32 and array.size and can_compile():
        if are_positive(frombuffer(array, array.dtype)):
            return
    elif array.size and array.min() > 0 and array.max() < np.inf:
        return
    bad = ~((array > 0) & (array < np.inf))  # NaN is neither
    if bad.any():
        elements = array if given is None else as_numbers(operator, field, given)
        raise bad_element(operator, field, elements, bad, "finite float32 numbers greater than 0")


def spread(operator: str, field: str, array: Array, shape: Shape, rows: bool) -> Array:
    """Return a view of `array` with the dimensions of `shape`: (..., length, 1) or (..., 1, length)."""
    length = shape[-2] if rows else shape[-1]
    if array.size == 1:
        return array.reshape(1, 1)
    if array.shape == (length,):
        return array.reshape(shape[-2:])
    if array.shape == shape:
        return array
    try:
        fits = array.ndim > 1 and np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        allowed = f"one number, ({length},), or a shape that broadcasts to {shape}"
        raise BindingError(operator, f"{field}.shape", str(array.shape), allowed)
    return array
