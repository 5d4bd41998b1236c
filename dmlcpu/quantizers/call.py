"""The parts of a call of quantize_linear or dequantize_linear: the key of its plan, its arrays, its output."""

from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_integer, check_apart, check_output, own_all
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.quantizers.arguments import operands_of


def request(
    operator: str, x: Any, scale: Any, zero_point: Any, axis: Any, block_size: Any, out_dtype: Any, out: Any
) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads."""
    x, x_form = formed(operator, "x", x)
    scales, zeros, scale_form, zero_form = operands_of(operator, x.dtype, scale, zero_point, out_dtype)
    if axis is not None:
        axis = as_integer(operator, "axis", axis)
    if block_size is not None:
        block_size = as_integer(operator, "block_size", block_size)
    if out_dtype is not None and isinstance(out_dtype, np.generic):  # in a key, np.int8(1) would be np.uint8(1)
        out_dtype = out_dtype.dtype
    forms = (x_form, scale_form, zero_form, None if out is None else strides_of(out))
    return (operator, forms, (axis, block_size, out_dtype)), (x, scales, zeros)


def allocate(prepared: Prepared, arrays: tuple[Any, ...], out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    if out is None:
        return prepared.new[0]()
    result = check_output(prepared.operator, "out", out, *prepared.results[0])
    if not own_all(result, *arrays):
        others = zip(("x", "scale", "zero_point"), arrays, strict=True)
        check_apart(prepared.operator, "out", result, {name: each for name, each in others if each is not None})
    return result
