"""QUANTIZE_LINEAR: floats, or integers of 32 bits, as integers of 4 to 16 bits."""

from collections.abc import Sequence
from functools import partial
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Stored
from dmlcpu.common.parameters import as_floats, check_scale
from dmlcpu.quantizers.call import allocate, request as request_of
from dmlcpu.quantizers.plan import prepare
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "prepare", "quantize_linear", "request"]  # the parts that `bind` uses


@overload
def quantize_linear(
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
def quantize_linear(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: int | Sequence[int] | None = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[np.uint8]: ...
@overload
def quantize_linear(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: Stored | NDArray[Stored],
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[Stored]: ...
@overload
def quantize_linear(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike | None = None,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    out_dtype: DTypeLike | None = None,
    out: Array | None = None,
) -> Array: ...
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
    """Quantize an array: clip(round(x / scale) + zero_point) to the limits of an integer type.

    Quotients are rounded half to even, before the zero point is added. NaN becomes the lowest integer.

    Parameters
    ----------
    x : array_like
        float32, float16, bfloat16 (of ``ml_dtypes``), int32 or float64; any shape and memory layout. int32 and float64
        are rounded to float32 first.
    scale : array_like
        The steps, finite and greater than 0 as float32: one number; one for each index of `axis`; or one for each block
        of x, as an array with as many dimensions as x, whose sizes divide x's.
    zero_point : array_like, optional
        The integers that represent 0, of the result's type: in any shape that is allowed for `scale`; the two may
        differ. By default 0. Python integers, and integers of 32 and 64 bits, are converted.
    axis : int, optional
        The axis of a 1-D `scale` or `zero_point`, or the axis of blocks of `block_size`. A negative one counts from the
        last.
    block_size : int, optional
        The number of elements of a block along `axis`; the last block may be shorter.
    out_dtype : dtype, optional
        int8, uint8, int16, uint16, or int4 or uint4 of ``ml_dtypes``. By default the type of `zero_point` if that is an
        array of one of these, else uint8.
    out : ndarray, optional
        Where to write the result: of x's shape and the result's type, with any strides; no memory shared with the other
        arguments.

    Returns
    -------
    ndarray
        The integers, in x's shape; `out` if given.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_ELEMENT_WISE_QUANTIZE_LINEAR_OPERATOR_DESC`` and
    ``DML_QUANTIZE_OPERATOR_DESC``, and of ONNX QuantizeLinear up to version 25. There is one float32 division for each
    element, for any type of `x`.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> dmlcpu.quantize_linear(np.array([0.5, 1.5, 2.5, 3.5], np.float32), 1.0, np.uint8(1))
    array([1, 3, 3, 5], dtype=uint8)
    >>> x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    >>> dmlcpu.quantize_linear(x, [0.5, 2], np.array([0, 10], np.uint8), axis=0)
    array([[ 2,  4,  6],
           [12, 12, 13]], dtype=uint8)
    >>> dmlcpu.quantize_linear(x, [[0.5, 1], [1, 2]], axis=1, block_size=2, out_dtype=np.int8)
    array([[2, 4, 3],
           [4, 5, 3]], dtype=int8)
    """
    key, arrays = request(x, scale, zero_point, axis, block_size, out_dtype, out)
    prepared = plan_for_now(prepare, key)
    result: Array = prepared.new[0]() if out is None else allocate(prepared, arrays, out)
    while prepared.run(*arrays, result) is not None:  # repeat if another thread has written a valid one
        check_scale("quantize_linear", "scale", as_floats("quantize_linear", "scale", arrays[1]), scale)
    return result


request = partial(request_of, "quantize_linear")
