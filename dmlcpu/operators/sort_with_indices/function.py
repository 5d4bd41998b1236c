"""sort_with_indices: all elements of each sequence in order, with their positions."""

from typing import Any, Generic, NamedTuple, Never, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Indices, Nan, Position, Values
from dmlcpu.common.arguments import check_apart, check_output, check_tuple
from dmlcpu.common.forms import strides_of
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import plan_for_now
from dmlcpu.sorting import call
from dmlcpu.sorting.plan import prepare as prepare

NAME = "sort_with_indices"


class Sorted(NamedTuple, Generic[Values, Indices]):
    """The result of `sort_with_indices`.

    Attributes
    ----------
    values : ndarray
        The elements in order.
    indices : ndarray
        Their positions, counted from the start of their sequence.
    """

    values: Values
    indices: Indices


@overload
def sort_with_indices(
    x: NDArray[Element],
    axis: int = -1,
    *,
    descending: bool = False,
    nan: Nan = "last",
    out: tuple[Array, Array] | None = None,
) -> Sorted[NDArray[Element], NDArray[np.int64]]: ...
@overload
def sort_with_indices(
    x: NDArray[Element],
    axis: int = -1,
    *,
    descending: bool = False,
    nan: Nan = "last",
    index_dtype: DType[Position],
    out: tuple[Array, Array] | None = None,
) -> Sorted[NDArray[Element], NDArray[Position]]: ...
@overload
def sort_with_indices(
    x: ArrayLike,
    axis: int = -1,
    *,
    descending: bool = False,
    nan: Nan = "last",
    index_dtype: DTypeLike = ...,
    out: tuple[Array, Array] | None = None,
) -> Sorted: ...
def sort_with_indices(
    x: "ArrayLike",
    axis: int = -1,
    *,
    descending: bool = False,
    nan: "Nan" = "last",
    index_dtype: "DTypeLike" = np.int64,
    out: "tuple[Array, Array] | None" = None,
    **others: "Never",
) -> "Sorted":
    """Sort each sequence along an axis, and also return the positions of the elements.

    The order is total and stable: elements with the same value keep the order of their positions, also in descending
    order. All NaNs tie, and so do -0.0 and +0.0. Elements keep every bit.

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
    out : tuple of two ndarrays, optional
        Where to write values and indices: of x's shape, x's type and `index_dtype`; any strides, no memory shared with
        `x` or with one another.

    Returns
    -------
    Sorted
        A named tuple (values, indices), each of x's shape; the arrays of `out` if given.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    DirectML has no such operator. Without NaN the result is that of ``torch.sort(x, axis, descending, stable=True)``;
    with ``nan="greatest"`` also with NaN.

    Examples
    --------
    >>> import dmlcpu
    >>> values, indices = dmlcpu.sort_with_indices([3, 1, 2, 1])
    >>> values
    array([1, 1, 2, 3])
    >>> indices
    array([1, 3, 2, 0])
    >>> dmlcpu.sort_with_indices([3, 1, 2, 1], descending=True).indices
    array([0, 2, 1, 3])
    """
    if others:
        call.refuse_others(NAME, others)
    key, arrays = request(x, axis, descending, nan, index_dtype, out)
    prepared: Prepared = plan_for_now(prepare, key)
    result = allocate(prepared, arrays, out)
    prepared.run(*arrays, *result)
    return result


def request(x: Any, axis: Any, descending: Any, nan: Any, index_dtype: Any, out: Any = None) -> Request:
    """Return the key of a prepared call, without the budget, and the array that it reads."""
    x, form, options = call.request(NAME, x, axis, descending, nan, index_dtype)
    strides: tuple[Any, ...] = (None, None)
    if isinstance(out, tuple) and len(out) == 2:
        strides = tuple([strides_of(each) if np.ndim(each) == x.ndim else None for each in out])
    return (NAME, (form, *strides), options), (x,)


def allocate(prepared: Prepared, arrays: tuple[Array, ...], out: Any) -> Sorted:
    """Return the outputs: new arrays, or those of `out` if they fit."""
    (x,), (of_values, of_indices) = arrays, prepared.results
    if out is None:
        new_values, new_indices = prepared.new
        values = new_values() if of_values.dtype is x.dtype else empty_result(of_values.shape, x.dtype)
        return Sorted(values, new_indices())
    check_tuple(NAME, out, 2, "a tuple (values, indices) of two arrays")
    values, indices = out
    values = check_output(NAME, "out[0]", values, *of_values)
    indices = check_output(NAME, "out[1]", indices, *of_indices)
    check_apart(NAME, "out[0]", values, {"x": x, "out[1]": indices})
    check_apart(NAME, "out[1]", indices, {"x": x})
    return Sorted(values, indices)
