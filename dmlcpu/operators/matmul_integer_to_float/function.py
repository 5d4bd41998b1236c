"""MATRIX_MULTIPLY_INTEGER_TO_FLOAT: products of 8-bit matrices, scaled to floating point; exact to the bit."""

from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Wide
from dmlcpu.common.arguments import as_array, as_dtype
from dmlcpu.common.prepared import Request
from dmlcpu.products.arguments import ABSENT
from dmlcpu.products.call import allocate, request as request_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.plan import prepare
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "matmul_integer_to_float", "prepare", "request"]  # the parts that `bind` uses

NAME = "matmul_integer_to_float"
_FLOAT32, _FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)


@overload
def matmul_integer_to_float(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    bias: ArrayLike | None = None,
    *,
    out_dtype: DType[Element],
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def matmul_integer_to_float(
    a: ArrayLike,
    a_scale: Wide,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    bias: ArrayLike | None = None,
    *,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[np.float32]: ...
@overload
def matmul_integer_to_float(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: Wide,
    b_zero_point: ArrayLike | None,
    bias: ArrayLike | None = None,
    *,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[np.float32]: ...
@overload
def matmul_integer_to_float(
    a: ArrayLike,
    a_scale: NDArray[np.float16],
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: NDArray[np.float16],
    b_zero_point: ArrayLike | None,
    bias: ArrayLike | None = None,
    *,
    out_dtype: None = None,
    out: Array | None = None,
) -> NDArray[np.float16]: ...
@overload
def matmul_integer_to_float(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    bias: ArrayLike | None = None,
    *,
    out_dtype: DTypeLike | None = None,
    out: Array | None = None,
) -> Array: ...
def matmul_integer_to_float(
    a: "ArrayLike",
    a_scale: "ArrayLike",
    a_zero_point: "ArrayLike | None",
    b: "ArrayLike | PackedMatrix",
    b_scale: "ArrayLike",
    b_zero_point: "ArrayLike | None",
    bias: "ArrayLike | None" = None,
    *,
    out_dtype: "DTypeLike | None" = None,
    out: "Array | None" = None,
) -> "Array":
    """Multiply two quantized matrices and return the product in floating point, with a bias.

    The result is defined bit for bit, on every machine and with any number of threads::

        acc[m, n] = sum over k of (a[m, k] - a_zero_point[m]) * (b[k, n] - b_zero_point[n])    exact, never wraps
        y[m, n]   = float32(acc) * float32(a_scale[m] * b_scale[n])                            float32
        y[m, n]   = y[m, n] + bias[m, n]                                                       float32, never fused

    Results of float16 are rounded once more, half to even. A NaN is the quiet NaN without sign or payload.

    Parameters
    ----------
    a : array_like of int8 or uint8, shape (..., M, K) or (K,)
    a_scale : array_like of floats
        One number, or one for each row: shape (M,) or (..., M, 1), broadcast against a's batch. Used as float32. Any
        number is allowed: 0, negative, infinite, NaN.
    a_zero_point : array_like of a's type, or None
        One number, or one for each row, independently of the scale; None is 0. Integers of other sizes are converted.
    b : array_like of int8 or uint8, shape (..., K, N) or (K,), or PackedMatrix
        Pack constant weights once, with `pack_b`.
    b_scale, b_zero_point : array_like
        As for `a`, but one for each column: shape (N,) or (..., 1, N).
    bias : array_like of float32 or float16, optional
        Added to the product: any shape that broadcasts to the result's. Lists are converted to float32.
    out_dtype : dtype, optional
        float32 or float16; by default float16 if both scales are arrays of float16, else float32.
    out : ndarray, optional
        Where to write the result: of its shape and type, any strides, no memory shared with `a`, `b` or `bias`.

    Returns
    -------
    ndarray of out_dtype, shape (..., M, N)
        Batch dimensions are broadcast. If an operand has one dimension, the result has no M or no N, as with
        `numpy.matmul`.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_MATRIX_MULTIPLY_INTEGER_TO_FLOAT_OPERATOR_DESC`` and ONNX Runtime's
    ``com.microsoft.MatMulIntegerToFloat``, which rounds in this order on x86.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> a = np.array([[10, 20], [30, 40]], np.uint8)
    >>> b = np.array([[1, -1], [2, -2]], np.int8)
    >>> dmlcpu.matmul_integer_to_float(a, 0.5, None, b, [0.5, 0.25], None, [1, -1])
    array([[ 13.5 ,  -7.25],
           [ 28.5 , -14.75]], dtype=float32)
    """
    if out_dtype is None:
        out_dtype = _default(a_scale, b_scale)
    parameters = (a_scale, a_zero_point, b_scale, b_zero_point, ABSENT, None)
    key, arrays = request_of(NAME, _float_type, a, b, parameters, bias, (out_dtype, out))
    prepared = plan_for_now(prepare, key)
    result: Array = prepared.new[0]() if out is None else allocate(prepared, arrays, out)
    prepared.run(*arrays, result)
    return result


def request(*given: Any) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads; given: all arguments."""
    a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias, out_dtype, out = given
    out_dtype = _default(a_scale, b_scale) if out_dtype is None else out_dtype
    parameters = (a_scale, a_zero_point, b_scale, b_zero_point, ABSENT, None)
    return request_of(NAME, _float_type, a, b, parameters, bias, (out_dtype, out))


def _default(a_scale: Any, b_scale: Any) -> np.dtype[Any]:
    """Return the default type of the result."""
    return _FLOAT16 if _is_half("a_scale", a_scale) and _is_half("b_scale", b_scale) else _FLOAT32


def _is_half(field: str, scale: Any) -> bool:
    """Return whether a scale is a float16 array of any library, in any byte order."""
    dtype = getattr(scale, "dtype", None)
    if dtype is None or dtype is _FLOAT32:
        return False
    numpys = dtype if isinstance(dtype, np.dtype) else as_array(NAME, field, scale).dtype
    return bool(numpys.num == _FLOAT16.num)


def _float_type(operator: str, out_dtype: Any, *_: Any) -> np.dtype[Any]:
    """Return the type of the result, or refuse it."""
    return _FLOAT32 if out_dtype is _FLOAT32 else as_dtype(operator, "out_dtype", out_dtype, ("float32", "float16"))
