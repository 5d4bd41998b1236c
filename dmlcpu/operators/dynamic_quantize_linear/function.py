"""DYNAMIC_QUANTIZE_LINEAR: an array quantized by the range of its own elements."""

from typing import Any, Generic, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Values
from dmlcpu.common.arguments import check_apart, check_output, check_tuple
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.prepared import Prepared
from dmlcpu.errors import DmlError
from dmlcpu.operators.dynamic_quantize_linear.plan import NAME, prepare
from dmlcpu.quantizers.arguments import FLOAT
from dmlcpu.runtime.threads import plan_for_now


class DynamicQuantized(NamedTuple, Generic[Values]):
    """What `dynamic_quantize_linear` returns.

    Attributes
    ----------
    y : ndarray
        The integers.
    scale : ndarray, shape ()
        The step, of float32.
    zero_point : ndarray, shape ()
        The integer that 0 becomes, of y's type.
    """

    y: Values
    scale: NDArray[np.float32]
    zero_point: Values


@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized[NDArray[np.uint8]]: ...
@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, out_dtype: DType[Element], out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized[NDArray[Element]]: ...
@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, out_dtype: DTypeLike, out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized: ...
def dynamic_quantize_linear(
    x: "ArrayLike", *, out_dtype: "DTypeLike" = np.uint8, out: "tuple[Array, Array, Array] | None" = None
) -> "DynamicQuantized":
    """Quantize an array to 8 bits by the range of its own elements.

    The range is that of the elements and 0. A 255th of it, as float32, is the scale; the zero point is what 0 becomes.

    Parameters
    ----------
    x : array_like
        float32, float16, bfloat16 (of ``ml_dtypes``) or float64, which is rounded to float32 first; finite; any shape
        and memory layout.
    out_dtype : dtype, default uint8
        uint8 or int8.
    out : tuple of three ndarrays, optional
        Where to write the results: of x's shape and `out_dtype`, of shape () and float32, of shape () and `out_dtype`;
        no memory shared with `x` or with one another.

    Returns
    -------
    DynamicQuantized
        A named tuple (y, scale, zero_point); the arrays of `out` if given.

    Raises
    ------
    DmlError
        If an argument does not fit: an element is not finite, or the range exceeds float32; nothing has been written
        then.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    The semantics are those of DirectML's ``DML_DYNAMIC_QUANTIZE_LINEAR_OPERATOR_DESC`` and of ONNX
    DynamicQuantizeLinear 11, which has uint8 alone. The scale of zeros, and of no elements, is 1.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> y, scale, zero_point = dmlcpu.dynamic_quantize_linear(np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32))
    >>> y
    array([153, 255,   0,  26, 221, 179], dtype=uint8)
    >>> scale, zero_point
    (array(0.01960784, dtype=float32), array(153, dtype=uint8))
    """
    key, arrays = request(x, out_dtype, out)
    prepared = plan_for_now(prepare, key)
    if out is None:
        y, scale, zero_point = prepared.new
        # `DynamicQuantized` itself is a Python call.
        result = tuple.__new__(DynamicQuantized, (y(), scale(), zero_point()))
    else:
        result = allocate(prepared, arrays, out)
    while prepared.run(*arrays, *result) is not None:  # again, if another thread has written a valid one
        check_range(arrays[0], NAME, "x")
    return result


def request(x: Any, out_dtype: Any, out: Any) -> tuple[tuple[Any, ...], tuple[Array]]:
    """Return the key of a prepared call, but for the budget, and the array that it reads."""
    x, form = formed(NAME, "x", x)
    if type(out_dtype) is not type and isinstance(out_dtype, np.generic):  # in a key, np.int8(1) would be np.uint8(1)
        out_dtype = out_dtype.dtype
    y_strides = strides_of(out[0]) if isinstance(out, tuple) and out else None
    return ((form, y_strides), (out_dtype,)), (x,)


def allocate(prepared: Prepared, arrays: tuple[Array], out: Any) -> DynamicQuantized:
    """Return the outputs: new arrays, or those of `out` if they fit."""
    if out is None:
        return DynamicQuantized._make([make() for make in prepared.new])
    check_tuple(NAME, out, 3, "a tuple (y, scale, zero_point) of three arrays")
    found = [check_output(NAME, f"out[{i}]", out[i], *wanted) for i, wanted in enumerate(prepared.results)]
    others = {"x": arrays[0]}
    for i, array in enumerate(found):
        check_apart(NAME, f"out[{i}]", array, others)
        others[f"out[{i}]"] = array
    return DynamicQuantized._make(found)


def check_range(x: Array, operator: str, field: str, start: tuple[int, ...] = ()) -> None:
    """Refuse elements that are not finite, and ranges beyond float32; start: the place of x in a larger array."""
    with np.errstate(all="ignore"):
        values = x.astype(FLOAT)
        bad = ~np.isfinite(values)
        if bad.any():
            where = [int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)]
            place = [i + j for i, j in zip(where, start or (0,) * x.ndim, strict=True)]
            found = str(x[tuple(where)])
            raise DmlError(operator, f"{field}[{', '.join(map(str, place))}]", found, "finite float32 numbers")
        check_limits(np.float32(values.min(initial=0)), np.float32(values.max(initial=0)), operator, field)


def check_limits(low: np.float32, high: np.float32, operator: str, field: str) -> None:
    """Refuse a range beyond float32."""
    with np.errstate(all="ignore"):
        if not high - low < np.inf:
            raise DmlError(operator, field, f"from {low!s} to {high!s}", "elements whose range is a finite float32")
