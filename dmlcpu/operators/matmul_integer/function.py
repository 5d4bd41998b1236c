"""MATRIX_MULTIPLY_INTEGER: the integer sums of products of 8-bit matrices."""

from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element
from dmlcpu.common.arguments import as_dtype
from dmlcpu.common.prepared import Request
from dmlcpu.products.arguments import ABSENT
from dmlcpu.products.call import allocate, request as request_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.plan import prepare
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "matmul_integer", "prepare", "request"]  # the parts that `bind` uses

NAME = "matmul_integer"
_INT32 = np.dtype(np.int32)


@overload
def matmul_integer(
    a: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_zero_point: ArrayLike | None,
    *,
    out: Array | None = None,
) -> NDArray[np.int32]: ...
@overload
def matmul_integer(
    a: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_zero_point: ArrayLike | None,
    *,
    out_dtype: DType[Element],
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def matmul_integer(
    a: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_zero_point: ArrayLike | None,
    *,
    out_dtype: DTypeLike,
    out: Array | None = None,
) -> Array: ...
def matmul_integer(
    a: "ArrayLike",
    a_zero_point: "ArrayLike | None",
    b: "ArrayLike | PackedMatrix",
    b_zero_point: "ArrayLike | None",
    *,
    out_dtype: "DTypeLike" = np.int32,
    out: "Array | None" = None,
) -> "Array":
    """Multiply two 8-bit matrices and return the integer sums.

    The result is exact, on every machine and with any number of threads::

        y[m, n] = sum over k of (a[m, k] - a_zero_point[m]) * (b[k, n] - b_zero_point[n])

    Only int32 results wrap: they are the sums modulo 2**32. Up to K = 33,025, no sum wraps.

    Parameters
    ----------
    a : array_like of int8 or uint8, shape (..., M, K) or (K,)
    a_zero_point : array_like of a's type, or None
        One number, or one for each row: shape (M,) or (..., M, 1), broadcast against a's batch. None is 0. Python
        integers are converted.
    b : array_like of int8 or uint8, shape (..., K, N) or (K,), or PackedMatrix
        Pack constant weights once, with `pack_b`.
    b_zero_point : array_like of b's type, or None
        As for `a`, but one for each column: shape (N,) or (..., 1, N).
    out_dtype : dtype, default int32
        int32 or int64. In int64 no sum wraps.
    out : ndarray, optional
        Where to write the result: of its shape and type, any strides, no memory shared with `a` or `b`.

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
    The semantics are those of DirectML's ``DML_MATRIX_MULTIPLY_INTEGER_OPERATOR_DESC`` and ONNX MatMulInteger 10.
    Neither specifies sums beyond 32 bits; ONNX Runtime also wraps.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> a = np.array([[10, 20], [30, 40]], np.uint8)
    >>> b = np.array([[1, -1], [2, -2]], np.int8)
    >>> dmlcpu.matmul_integer(a, None, b, None)
    array([[  50,  -50],
           [ 110, -110]], dtype=int32)
    >>> dmlcpu.matmul_integer(a, [10, 30], b, [1, -1])
    array([[ 10, -10],
           [ 10, -10]], dtype=int32)
    """
    parameters = (ABSENT, a_zero_point, ABSENT, b_zero_point, ABSENT, None)
    key, arrays = request_of(NAME, _sum_type, a, b, parameters, None, (out_dtype, out))
    prepared = plan_for_now(prepare, key)
    result: Array = prepared.new[0]() if out is None else allocate(prepared, arrays, out)
    prepared.run(*arrays, result)
    return result


def request(a: Any, a_zero_point: Any, b: Any, b_zero_point: Any, out_dtype: Any, out: Any) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads."""
    parameters = (ABSENT, a_zero_point, ABSENT, b_zero_point, ABSENT, None)
    return request_of(NAME, _sum_type, a, b, parameters, None, (out_dtype, out))


def _sum_type(operator: str, out_dtype: Any, *_: Any) -> np.dtype[Any]:
    """Return the type of the sums, or refuse it."""
    return _INT32 if out_dtype is np.int32 else as_dtype(operator, "out_dtype", out_dtype, ("int32", "int64"))
