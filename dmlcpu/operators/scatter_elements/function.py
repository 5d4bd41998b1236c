"""SCATTER_ELEMENTS: a copy of the input in which each update overwrites, or is reduced into, an element of its line."""

from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.annotations import Array, Element, OutOfRange, Reduction
from dmlcpu.common.arguments import as_axis, as_integer, same_memory
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.indexing.elements import check_indices
from dmlcpu.indexing.reductions import word_bytes
from dmlcpu.indexing.scatters import allocate, as_updates
from dmlcpu.operators.scatter_elements.call import NAME
from dmlcpu.operators.scatter_elements.plan import prepare
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "prepare", "request", "scatter_elements"]  # the parts that `bind` uses


@overload
def scatter_elements(
    x: NDArray[Element],
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    axis: int,
    reduction: Reduction = "none",
    mode: OutOfRange = "raise",
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def scatter_elements(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    axis: int,
    reduction: Reduction = "none",
    mode: OutOfRange = "raise",
    out: Array | None = None,
) -> Array: ...
def scatter_elements(
    x: "ArrayLike",
    indices: "ArrayLike",
    updates: "ArrayLike",
    *,
    axis: int,
    reduction: "Reduction" = "none",
    mode: "OutOfRange" = "raise",
    out: "Array | None" = None,
) -> "Array":
    """Copy x, then write each update at the position that its index names along one axis.

    With axis 0 of three dimensions, ``y[indices[i, j, k], j, k] = updates[i, j, k]``. Updates of one element are
    applied in the order of `indices`, with any number of threads. Without a reduction, the last one wins. With a
    reduction, the result is that of a plain loop.

    Parameters
    ----------
    x : array_like, at least one dimension
        Any type of fixed size; with a reduction, any numeric type (bool, integers, float16, bfloat16, float32,
        float64; complex for "add" and "mul").
    indices : array_like of integers
        As many dimensions as x; any size along `axis`, and at most x's size along the others. Negative indices count
        from the end.
    updates : array_like of x's type, shape indices.shape
        An element for each index. Nothing is broadcast.
    axis : int
        The axis that indices refer to. A negative one counts from the last. It has no default, because the defaults of
        ONNX (0) and `numpy.put_along_axis` (-1) differ.
    reduction : {"none", "add", "mul", "min", "max"}
        How an update is combined with the element. Integers wrap; for bool, "add" is logical or, and "mul" logical and;
        "min" and "max" propagate NaN; float16 and bfloat16 are rounded after every update. A NaN from a sum or product
        is the quiet NaN without payload.
    mode : {"raise", "drop", "clip"}
        What to do about an index out of range: raise before anything is written, skip that update, or clamp the index
        to the axis.
    out : ndarray, optional
        Where to write the result: of x's shape and type, any strides. It may be `x` itself (then nothing is copied),
        and must not share other memory with the arguments.

    Returns
    -------
    ndarray
        A new array like x, or `out`.

    Raises
    ------
    IndexOutOfRangeError
        If an index is out of range and `mode` is "raise"; `out` does not change.
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_SCATTER_OPERATOR_DESC``, with the reductions of ONNX
    ScatterElements 18. DirectML does not define the result of several updates of one element; dmlcpu does. With
    ``mode="clip"``, `numpy.take` replaces negative indices by 0; dmlcpu counts them from the end.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> dmlcpu.scatter_elements([0, 1, 2, 3, 4], [3, 1, 3, 0], [5, 6, 7, 8], axis=0)
    array([8, 6, 2, 7, 4])
    >>> dmlcpu.scatter_elements(np.zeros((2, 3), int), [[0, 0, 2], [1, 1, 1]], [[1, 2, 4]] * 2, axis=1, reduction="add")
    array([[3, 0, 4],
           [0, 7, 0]])
    """
    key, arrays = request(x, indices, updates, axis, reduction, mode, out)
    prepared: Prepared = plan_for_now(prepare, key)
    result = allocate(prepared, arrays, out)
    while prepared.run(*arrays, result, out is None) is not None:  # repeat if another thread has written a valid index
        source, given, _ = arrays
        axis = as_axis(NAME, "axis", axis, "x", source.ndim)
        check_indices(NAME, given, axis, source.shape[axis])
    return result


def request(x: Any, indices: Any, updates: Any, axis: Any, reduction: Any, mode: Any, out: Any = None) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads."""
    x, of_x = formed(NAME, "x", x)
    indices, of_indices = formed(NAME, "indices", indices)
    updates, of_updates = formed(NAME, "updates", as_updates(NAME, updates, x.dtype))
    axis, width = as_integer(NAME, "axis", axis), word_bytes(x.dtype, x, updates, out)
    is_alike = isinstance(out, np.ndarray) and (out.shape, out.dtype) == (x.shape, x.dtype)  # others are refused later
    strides, in_place = (strides_of(out), same_memory(x, out)) if is_alike else (None, False)
    key = ((of_x, of_indices, of_updates, strides), (axis, reduction, mode, in_place, width))
    return key, (x, indices, updates)
