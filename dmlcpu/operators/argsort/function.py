"""argsort: the positions of each sequence's elements in order."""

from typing import Any, Never, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Nan, Position
from dmlcpu.common.arguments import check_apart, check_output
from dmlcpu.common.forms import fitting, strides_of
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.runtime.threads import plan_for_now
from dmlcpu.sorting import call
from dmlcpu.sorting.plan import prepare as prepare

NAME = "argsort"


@overload
def argsort(
    x: ArrayLike, axis: int = -1, *, descending: bool = False, nan: Nan = "last", out: Array | None = None
) -> NDArray[np.int64]: ...
@overload
def argsort(
    x: ArrayLike,
    axis: int = -1,
    *,
    descending: bool = False,
    nan: Nan = "last",
    index_dtype: DType[Position],
    out: Array | None = None,
) -> NDArray[Position]: ...
@overload
def argsort(
    x: ArrayLike,
    axis: int = -1,
    *,
    descending: bool = False,
    nan: Nan = "last",
    index_dtype: DTypeLike = ...,
    out: Array | None = None,
) -> Array: ...
def argsort(
    x: "ArrayLike",
    axis: int = -1,
    *,
    descending: bool = False,
    nan: "Nan" = "last",
    index_dtype: "DTypeLike" = np.int64,
    out: "Array | None" = None,
    **others: "Never",
) -> "Array":
    """Return the positions that sort each sequence along an axis.

    The order is that of `sort_with_indices`: total and stable, in both directions.

    Parameters
    ----------
    x : array_like, shape (..., N, ...)
        float16, float32, float64, bfloat16 (of ``ml_dtypes``), bool, or any integer type of 8 to 64 bits; at least one
        dimension, any memory layout; N is at most 2**32.
    axis : int, default -1
        The axis of length N. A negative one counts from the last.
    descending : bool, default False
        Whether the greatest come first.
    nan : {"last", "greatest"}, default "last"
        The rank of NaN: last in both directions, as in NumPy; or above +inf, so first in descending order, as in
        PyTorch.
    index_dtype : dtype, default int64
        int64, int32, uint64 or uint32.
    out : ndarray, optional
        Where to write the positions: of x's shape and type `index_dtype`; any strides, no memory shared with `x`.

    Returns
    -------
    ndarray
        The positions, counted from the start of each sequence, in x's shape; `out` if given.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    DirectML has no such operator. In ascending order the result is that of ``numpy.argsort(x, axis, stable=True)``.

    Examples
    --------
    >>> import dmlcpu
    >>> dmlcpu.argsort([3, 1, 2, 1])
    array([1, 3, 2, 0])
    """
    if others:
        call.refuse_others(NAME, others)
    key, arrays = request(x, axis, descending, nan, index_dtype, out)
    prepared: Prepared = plan_for_now(prepare, key)
    result = allocate(prepared, arrays, out)
    prepared.run(*arrays, result)
    return result


def request(x: Any, axis: Any, descending: Any, nan: Any, index_dtype: Any, out: Any = None) -> Request:
    """Return the key of a prepared call, without the budget, and the array that it reads."""
    x, form, options = call.request(NAME, x, axis, descending, nan, index_dtype)
    return (NAME, (form, fitting(strides_of(out), x.shape)), options), (x,)


def allocate(prepared: Prepared, arrays: tuple[Array, ...], out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    if out is None:
        return prepared.new[0]()
    result = check_output(NAME, "out", out, *prepared.results[0])
    check_apart(NAME, "out", result, {"x": arrays[0]})
    return result
