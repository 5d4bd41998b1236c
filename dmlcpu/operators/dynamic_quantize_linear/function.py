"""DYNAMIC_QUANTIZE_LINEAR: an array quantized by the range of its elements."""

from typing import Any, Generic, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Values
from dmlcpu.common.arguments import check_apart, check_output, check_tuple
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.prepared import Prepared
from dmlcpu.quantizers.dynamic import NAME, check_range, prepare
from dmlcpu.runtime.threads import plan_for_now


class DynamicQuantized(NamedTuple, Generic[Values]):
    """The result of `dynamic_quantize_linear`.

    Attributes
    ----------
    y : ndarray
        The integers.
    scale : ndarray of float32
        The step. Its shape is (); with `axis`, x's shape with 1 along the axis.
    zero_point : ndarray of the same shape
        The integer that represents 0, of y's type.
    """

    y: Values
    scale: NDArray[np.float32]
    zero_point: Values


@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, axis: int | None = None, out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized[NDArray[np.uint8]]: ...
@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, axis: int | None = None, out_dtype: DType[Element], out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized[NDArray[Element]]: ...
@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, axis: int | None = None, out_dtype: DTypeLike, out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized: ...
def dynamic_quantize_linear(
    x: "ArrayLike",
    *,
    axis: int | None = None,
    out_dtype: "DTypeLike" = np.uint8,
    out: "tuple[Array, Array, Array] | None" = None,
) -> "DynamicQuantized":
    """Quantize an array, or each of its rows, to 8 bits by the range of its elements.

    The range is the smallest that contains the elements and 0. The scale is the length of the range divided by 255, as
    float32. The zero point is the integer that represents 0.

    Parameters
    ----------
    x : array_like
        float32, float16, bfloat16 (of ``ml_dtypes``) or float64, which is rounded to float32 first. All elements must
        be finite; any shape and memory layout.
    axis : int, optional
        The axis along which elements share a range: with -1, each row has a scale and a zero point. By default all
        elements share one range.
    out_dtype : dtype, default uint8
        uint8 or int8.
    out : tuple of three ndarrays, optional
        Where to write the results: y of x's shape and `out_dtype`, scale of float32, zero_point of `out_dtype`; no
        memory shared with `x` or with one another.

    Returns
    -------
    DynamicQuantized
        A named tuple (y, scale, zero_point); the arrays of `out` if given.

    Raises
    ------
    DmlError
        If an argument is not valid, an element is not finite, or the length of a range exceeds float32; then nothing is
        written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_DYNAMIC_QUANTIZE_LINEAR_OPERATOR_DESC`` and of ONNX
    DynamicQuantizeLinear 11, which has only uint8 and one range. If all elements are 0, or there are none, the scale is
    1. `dequantize_linear` and `matmul_integer_to_float` accept scales and zero points along an axis directly.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> y, scale, zero_point = dmlcpu.dynamic_quantize_linear(np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32))
    >>> y
    array([153, 255,   0,  26, 221, 179], dtype=uint8)
    >>> scale, zero_point
    (array(0.01960784, dtype=float32), array(153, dtype=uint8))
    >>> dmlcpu.dynamic_quantize_linear(np.array([[1, 2], [-100, 300]], np.float32), axis=-1).scale
    array([[0.00784314],
           [1.5686275 ]], dtype=float32)
    """
    key, arrays = request(x, axis, out_dtype, out)
    prepared = plan_for_now(prepare, key)
    if out is None:
        y, scale, zero_point = prepared.new
        # `DynamicQuantized` itself is a Python call.
        result = tuple.__new__(DynamicQuantized, (y(), scale(), zero_point()))
    else:
        result = allocate(prepared, arrays, out)
    while prepared.run(*arrays, *result) is not None:  # repeat if another thread has written a valid one
        check_range(arrays[0], axis, NAME, "x")
    return result


def request(x: Any, axis: Any, out_dtype: Any, out: Any) -> tuple[tuple[Any, ...], tuple[Array]]:
    """Return the key of a prepared call, without the budget, and the array that it reads."""
    x, form = formed(NAME, "x", x)
    y_strides = strides_of(out[0]) if isinstance(out, tuple) and out else None
    return (form, axis, out_dtype, y_strides), (x,)


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
