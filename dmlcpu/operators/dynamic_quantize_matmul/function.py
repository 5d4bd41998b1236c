"""dynamic_quantize_matmul: floats quantized to 8 bits by their own range, times a quantized matrix."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element
from dmlcpu.common.arguments import as_dtype, check_flag, check_type
from dmlcpu.common.forms import Form, fitting, formed
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.products.arguments import ABSENT, BYTE, DYNAMIC as NAME, Call, check, matrix_strides
from dmlcpu.products.call import allocate, request as request_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.products.plan import plan
from dmlcpu.quantizers.arguments import FLOATS
from dmlcpu.quantizers.dynamic import RowsPlan, check_range, kept_shape, prepare as prepare_quantizer
from dmlcpu.runtime.threads import REFERENCE, Budget, plan_for_now

__all__ = ["allocate", "dynamic_quantize_matmul", "prepare", "request"]  # the parts that `bind` uses

TO_FLOAT = "matmul_integer_to_float"  # its kernels multiply
_FLOAT32 = np.dtype(np.float32)
_empty = np.empty


@overload
def dynamic_quantize_matmul(
    x: ArrayLike,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    per_row: bool = False,
    out: Array | None = None,
) -> NDArray[np.float32]: ...
@overload
def dynamic_quantize_matmul(
    x: ArrayLike,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    per_row: bool = False,
    out_dtype: DType[Element],
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def dynamic_quantize_matmul(
    x: ArrayLike,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    per_row: bool = False,
    out_dtype: DTypeLike,
    out: Array | None = None,
) -> Array: ...
def dynamic_quantize_matmul(
    x: "ArrayLike",
    b: "ArrayLike | PackedMatrix",
    b_scale: "ArrayLike",
    b_zero_point: "ArrayLike | None" = None,
    bias: "ArrayLike | None" = None,
    *,
    per_row: bool = False,
    out_dtype: "DTypeLike" = np.float32,
    out: "Array | None" = None,
) -> "Array":
    """Quantize floats by their own range, and multiply them by a quantized matrix: a linear layer in one call.

    The result has the bits of two calls, on every machine and with any number of threads::

        a, a_scale, a_zero_point = dynamic_quantize_linear(x, axis=-1 if per_row else None)
        matmul_integer_to_float(a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias, out_dtype=out_dtype)

    Parameters
    ----------
    x : array_like, shape (..., M, K) or (K,)
        float32, float16, bfloat16 (of ``ml_dtypes``) or float64, which is rounded to float32 first. All elements must
        be finite. They are quantized to uint8.
    b : array_like of int8 or uint8, shape (..., K, N) or (K,), or PackedMatrix
        Pack constant weights once, with `pack_b`.
    b_scale : array_like of floats
        One number, or one for each column: shape (N,) or (..., 1, N), broadcast against b's batch. Any number is
        allowed.
    b_zero_point : array_like of b's type, optional
        One number, or one for each column, independently of the scale; by default 0. Integers of other sizes are
        converted.
    bias : array_like of float32 or float16, optional
        Added to the product: any shape that broadcasts to the result's. Lists are converted to float32.
    per_row : bool, default False
        Whether each row of `x` has its own scale and zero point; otherwise all rows share one.
    out_dtype : dtype, default float32
        float32 or float16.
    out : ndarray, optional
        Where to write the result: of its shape and type, any strides, no memory shared with `x`, `b` or `bias`.

    Returns
    -------
    ndarray of out_dtype, shape (..., M, N)
        Batch dimensions are broadcast. If an operand has one dimension, the result has no M or no N, as with
        `numpy.matmul`.

    Raises
    ------
    DmlError
        If an argument is not valid, an element of `x` is not finite, or the length of a range exceeds float32; then
        nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    DirectML has no such operator. The semantics are those of its ``DML_DYNAMIC_QUANTIZE_LINEAR_OPERATOR_DESC`` and then
    ``DML_MATRIX_MULTIPLY_INTEGER_TO_FLOAT_OPERATOR_DESC``, and of ONNX Runtime's
    ``com.microsoft.DynamicQuantizeMatMul``, which has no `per_row`.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> weights = dmlcpu.pack_b(np.array([[1, -1], [2, -2]], np.int8))
    >>> x = np.array([[51, 255], [0.5, 0.25]], np.float32)
    >>> dmlcpu.dynamic_quantize_matmul(x, weights, [0.5, 0.25], bias=[1, -1])
    array([[ 281.5 , -141.25],
           [   1.  ,   -1.  ]], dtype=float32)
    >>> dmlcpu.dynamic_quantize_matmul(x, weights, [0.5, 0.25], bias=[1, -1], per_row=True)
    array([[ 281.5      , -141.25     ],
           [   1.4990196,   -1.2495098]], dtype=float32)
    """
    key, arrays = request(x, b, b_scale, b_zero_point, bias, per_row, out_dtype, out)
    prepared = plan_for_now(prepare, key)
    result: Array = prepared.new[0]() if out is None else allocate(prepared, arrays, out)
    while prepared.run(*arrays, result) is not None:  # repeat if another thread has written a valid one
        check_range(arrays[0], -1 if per_row else None, NAME, "x")
    return result


def request(*given: Any) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads; given: all arguments."""
    x, b, b_scale, b_zero_point, bias, per_row, out_dtype, out = given
    x, form = formed(NAME, "x", x)
    if type(per_row) is not bool:  # in a key, 1 would be True
        per_row = check_flag(NAME, "per_row", per_row)
    # The call finds the scales and zero points of the quantized x. `Form` itself is a Python call.
    a = tuple.__new__(Form, (x.shape, BYTE, None))
    parameters = (ABSENT, None, b_scale, b_zero_point, ABSENT, None)
    key, (_, *others) = request_of(NAME, _float_type, a, b, parameters, bias, (out_dtype, out))
    return (form, per_row, *key[1:]), (x, *others)


def _float_type(operator: str, out_dtype: Any, *_: Any) -> np.dtype[Any]:
    """Return the type of the result, or refuse it."""
    if out_dtype is np.float32 or out_dtype is _FLOAT32:
        return _FLOAT32
    return as_dtype(operator, "out_dtype", out_dtype, ("float32", "float16"))


@functools.lru_cache(maxsize=1024)
def prepare(
    form: Any,
    per_row: bool,
    a: Any,
    b: Any,
    parameters: tuple[Any, ...],
    bias: Any,
    y_strides: Any,
    dtype: np.dtype[Any],
    budget: Budget,
) -> Prepared:
    """Return the prepared call. form: of x; a: of the quantized x; the rest is that of products."""
    call, axis = checked(form, per_row, a, b, parameters, bias, dtype)
    strides = matrix_strides(fitting(y_strides, call.shape), len(a[0]) == 1, len(b[0]) == 1)
    product = plan(call, strides, budget)
    of_quantizer = budget if budget == REFERENCE else budget._replace(kernel=None)  # it names a kernel of the product
    quantizer = prepare_quantizer(form, axis, BYTE, None, of_quantizer)
    return Plan(
        operator=NAME,
        results=product.results,
        kernel=product.kernel,
        is_single=quantizer.is_single and product.is_single,
        workspace=max((quantizer.workspace, product.workspace), key=lambda each: each.cells),
        make=quantizer.new[0],
        ranges=math.prod(quantizer.results[1].shape),
        quantize=quantizer.run_flat if isinstance(quantizer, RowsPlan) else quantizer.run,
        product=product,
    )


def checked(form: Any, per_row: bool, *product: Any) -> tuple[Call, int | None]:
    """Return the product, and the axis whose elements share a range, or refuse them; given: `prepare`'s, without y."""
    x, (a, b, parameters, bias, dtype) = Form(*form), product
    check_type(NAME, "x", x.dtype, FLOATS)
    axis = len(x.shape) - 1 if per_row else None
    kept = kept_shape(x.shape, axis)
    return check(NAME, a, b, (kept, kept, *parameters[2:]), bias, dtype)._replace(operator=TO_FLOAT), axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The two steps of a call."""

    make: Callable[[], Array]  # returns an array for the quantized x
    ranges: int  # the number of ranges
    quantize: Callable[..., bool | None]  # writes it, with its scales and zero points
    product: Prepared

    def run(self, x: Array, b: Any, numbers: tuple[Array, ...], bias: Any, y: Array) -> bool | None:
        """Run; return True, with nothing written, if a range of x is not finite."""
        a, scale, zero_point = self.make(), _empty(self.ranges, _FLOAT32), _empty(self.ranges, BYTE)
        if self.quantize(x, a, scale, zero_point):
            return True
        self.product.run(a, b, (scale, zero_point, *numbers[2:]), bias, y)
        return None
