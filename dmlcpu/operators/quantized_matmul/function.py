"""QUANTIZED_LINEAR_MATRIX_MULTIPLY: dequantize A and B, multiply, quantize; exact to the bit."""

from typing import Any, overload

from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element
from dmlcpu.common.parameters import check_scale
from dmlcpu.common.prepared import Request
from dmlcpu.products.arguments import PARAMETERS, type_of_bytes
from dmlcpu.products.call import allocate, request as request_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.plan import prepare
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "prepare", "quantized_matmul", "request"]  # the parts that `bind` uses

NAME = "quantized_matmul"


@overload
def quantized_matmul(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None,
    *,
    out_dtype: DType[Element],
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def quantized_matmul(
    a: NDArray[Element],
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: int | None,
    *,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def quantized_matmul(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None,
    *,
    out_dtype: DTypeLike | None = None,
    out: Array | None = None,
) -> Array: ...
def quantized_matmul(
    a: "ArrayLike",
    a_scale: "ArrayLike",
    a_zero_point: "ArrayLike | None",
    b: "ArrayLike | PackedMatrix",
    b_scale: "ArrayLike",
    b_zero_point: "ArrayLike | None",
    y_scale: "ArrayLike",
    y_zero_point: "ArrayLike | None",
    *,
    out_dtype: "DTypeLike | None" = None,
    out: "Array | None" = None,
) -> "Array":
    """Multiply two quantized matrices and quantize the product.

    The result is defined bit for bit, on every machine and with any number of threads::

        acc[m, n] = sum over k of (a[m, k] - a_zero_point[m]) * (b[k, n] - b_zero_point[n])    exact, never wraps
        mul[m, n] = float32(float32(a_scale[m] * b_scale[n]) / y_scale[m])
        y[m, n]   = clip(round_half_even(float32(acc) * mul) + y_zero_point[m], lowest, highest)

    Lowest and highest are the limits of y's type. If acc is 0, y is the zero point, even if mul overflows.

    Parameters
    ----------
    a : array_like of int8 or uint8, shape (..., M, K) or (K,)
    a_scale : array_like of floats
        One positive number, or one for each row: shape (M,) or (..., M, 1), broadcast against a's batch. Used as
        float32.
    a_zero_point : array_like of a's type, or None
        One number, or one for each row, independently of the scale; None is 0. Integers of other sizes are converted.
    b : array_like of int8 or uint8, shape (..., K, N) or (K,), or PackedMatrix
        Pack constant weights once, with `pack_b`.
    b_scale, b_zero_point : array_like
        As for `a`, but one for each column: shape (N,) or (..., 1, N).
    y_scale, y_zero_point : array_like
        As for `a`: one number, or one for each row of the product.
    out_dtype : dtype, optional
        int8 or uint8. By default the type of `y_zero_point` if it is an array of one of these, else the type of `a`.
    out : ndarray, optional
        Where to write the result: of its shape and type, any strides, no memory shared with `a` or `b`.

    Returns
    -------
    ndarray, shape (..., M, N)
        Batch dimensions are broadcast. If an operand has one dimension, the result has no M or no N, as with
        `numpy.matmul`.

    Raises
    ------
    DmlError
        If an argument is not valid, or a scale is not a positive finite float32; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY_OPERATOR_DESC`` and ONNX QLinearMatMul
    21. The roundings come in the same order as in ONNX Runtime on x86, but sums do not wrap at 32 bits.

    A new array of 32 MiB to 1 GiB may reuse the memory of an earlier result. Then it does not own its data and cannot
    be resized in place.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> a = np.array([[10, 20], [30, 40]], np.uint8)
    >>> b = np.array([[1, -1], [2, -2]], np.int8)
    >>> dmlcpu.quantized_matmul(a, 0.5, None, b, [0.5, 0.25], None, 1.0, 100)
    array([[112,  94],
           [128,  86]], dtype=uint8)
    """
    parameters = (a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point)
    key, arrays = request_of(NAME, type_of_bytes, a, b, parameters, None, (out_dtype, out))
    prepared = plan_for_now(prepare, key)
    result: Array = prepared.new[0]() if out is None else allocate(prepared, arrays, out)
    while (refused := prepared.run(*arrays, result)) is not None:  # repeat if another thread has written a valid one
        check_scale(NAME, PARAMETERS[refused], arrays[2][refused], parameters[refused])
    return result


def request(*given: Any) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads; given: all arguments."""
    a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, *asked = given
    parameters = (a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point)
    return request_of(NAME, type_of_bytes, a, b, parameters, None, asked)
