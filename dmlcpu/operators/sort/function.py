"""sort: the elements of each sequence in order."""

from typing import Any, Never, overload

from numpy.typing import ArrayLike, NDArray

from dmlcpu.annotations import Array, Element, Nan
from dmlcpu.common.arguments import check_apart, check_output, same_memory
from dmlcpu.common.forms import fitting, strides_of
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import plan_for_now
from dmlcpu.sorting import call
from dmlcpu.sorting.plan import prepare as prepare

NAME = "sort"


@overload
def sort(
    x: NDArray[Element], axis: int = -1, *, descending: bool = False, nan: Nan = "last", out: Array | None = None
) -> NDArray[Element]: ...
@overload
def sort(
    x: ArrayLike, axis: int = -1, *, descending: bool = False, nan: Nan = "last", out: Array | None = None
) -> Array: ...
def sort(
    x: "ArrayLike",
    axis: int = -1,
    *,
    descending: bool = False,
    nan: "Nan" = "last",
    out: "Array | None" = None,
    **others: "Never",
) -> "Array":
    """Sort each sequence along an axis.

    The order is that of `sort_with_indices`: total and stable, in both directions. So zeros of both signs, and NaNs of
    different bits, keep their order.

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
    out : ndarray, optional
        Where to write: of x's shape and type; any strides. It may be `x` itself, but not a part of it.

    Returns
    -------
    ndarray
        The elements in order, of x's shape and type; `out` if given.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    DirectML has no such operator. In ascending order the result is that of ``numpy.sort(x, axis, stable=True)``.

    Examples
    --------
    >>> import dmlcpu
    >>> dmlcpu.sort([3.0, float("nan"), 1.0, 2.0])
    array([ 1.,  2.,  3., nan])
    >>> dmlcpu.sort([[3, 1], [2, 4]], axis=0, descending=True)
    array([[3, 4],
           [2, 1]])
    """
    if others:
        call.refuse_others(NAME, others)
    key, arrays = request(x, axis, descending, nan, out)
    prepared: Prepared = plan_for_now(prepare, key)
    result = allocate(prepared, arrays, out)
    prepared.run(*arrays, result)
    return result


def request(x: Any, axis: Any, descending: Any, nan: Any, out: Any = None) -> Request:
    """Return the key of a prepared call, without the budget, and the array that it reads."""
    x, form, options = call.request(NAME, x, axis, descending, nan, None)
    return (NAME, (form, fitting(strides_of(out), x.shape)), options), (x,)


def allocate(prepared: Prepared, arrays: tuple[Array, ...], out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    (x,), (of_values,) = arrays, prepared.results
    if out is None:
        return prepared.new[0]() if of_values.dtype is x.dtype else empty_result(of_values.shape, x.dtype)
    result = check_output(NAME, "out", out, *of_values)
    if not same_memory(x, result):
        check_apart(NAME, "out", result, {"x (it may be x itself, but not a part of it)": x})
    return result
