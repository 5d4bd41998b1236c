"""DEQUANTIZE_LINEAR: integers of 4 to 32 bits as floats."""

from functools import partial
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Wide
from dmlcpu.quantizers.call import allocate, request as request_of
from dmlcpu.quantizers.plan import prepare
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "dequantize_linear", "prepare", "request"]  # the parts that `bind` uses


@overload
def dequantize_linear(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike | None = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: DType[Element],
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def dequantize_linear(
    x: ArrayLike,
    scale: Wide,
    zero_point: ArrayLike | None = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[np.float32]: ...
@overload
def dequantize_linear(
    x: ArrayLike,
    scale: NDArray[np.float16],
    zero_point: ArrayLike | None = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[np.float16]: ...
@overload
def dequantize_linear(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike | None = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: DTypeLike | None = None,
    out: Array | None = None,
) -> Array: ...
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
    """Dequantize an array: (x - zero_point) * scale.

    The exact difference, and its product with the scale, are each rounded to float32; 16-bit results are rounded once
    more.

    Parameters
    ----------
    x : array_like
        int8, uint8, int16, uint16, int32, uint32, or int4 or uint4 of ``ml_dtypes``; any shape and memory layout.
    scale : array_like
        The steps, used as float32; any number is allowed. One number for all elements, one for each index of `axis`, or
        one for each block of x: an array with as many dimensions as x, whose sizes divide x's.
    zero_point : array_like, optional
        The integers that represent 0, of x's type, by default 0. They may have any shape that `scale` may have; the two
        may differ. Python integers, and integers of 32 and 64 bits, are converted.
    axis : int, optional
        The axis of a 1-D `scale` or `zero_point`, or the axis of blocks of `block_size`. A negative one counts from the
        last.
    block_size : int, optional
        The number of elements of a block along `axis`; the last block may be shorter.
    out_dtype : dtype, optional
        float32, float16 or bfloat16 (of ``ml_dtypes``). By default the type of `scale` if that is an array of one of
        these, else float32.
    out : ndarray, optional
        Where to write the result: of x's shape and the result's type, with any strides; no memory shared with the other
        arguments.

    Returns
    -------
    ndarray
        The floats, in x's shape; `out` if given. A NaN is quiet, without sign and payload.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC`` and
    ``DML_DEQUANTIZE_OPERATOR_DESC``, and of ONNX DequantizeLinear up to version 25. Scales may be 0, negative, infinite
    or NaN: products follow IEEE 754.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> dmlcpu.dequantize_linear(np.array([0, 128, 255], np.uint8), 0.5, 128)
    array([-64. ,   0. ,  63.5], dtype=float32)
    >>> x = np.array([[-128, 0, 127, 1]], np.int8)
    >>> dmlcpu.dequantize_linear(x, np.array([[0.5, 2]], np.float32))
    array([[-64.,   0., 254.,   2.]], dtype=float32)
    """
    key, arrays = request(x, scale, zero_point, axis, block_size, out_dtype, out)
    prepared = plan_for_now(prepare, key)
    result: Array = prepared.new[0]() if out is None else allocate(prepared, arrays, out)
    prepared.run(*arrays, result)
    return result


request = partial(request_of, "dequantize_linear")
