"""GATHER_ELEMENTS: an element of the input for each index, which is along one axis."""

from typing import Any, overload

from numpy.typing import ArrayLike, NDArray

from dmlcpu.annotations import Array, Clipping, Element
from dmlcpu.common.arguments import as_axis, as_integer, check_apart, check_output, own_all
from dmlcpu.common.forms import formed, strides_of
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.indexing.elements import check_indices
from dmlcpu.indexing.reductions import word_bytes
from dmlcpu.operators.gather_elements.plan import NAME, prepare
from dmlcpu.runtime.results import empty_result
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "gather_elements", "prepare", "request"]  # the parts that `bind` uses


@overload
def gather_elements(
    x: NDArray[Element], indices: ArrayLike, *, axis: int, mode: Clipping = "raise", out: Array | None = None
) -> NDArray[Element]: ...
@overload
def gather_elements(
    x: ArrayLike, indices: ArrayLike, *, axis: int, mode: Clipping = "raise", out: Array | None = None
) -> Array: ...
def gather_elements(
    x: "ArrayLike", indices: "ArrayLike", *, axis: int, mode: "Clipping" = "raise", out: "Array | None" = None
) -> "Array":
    """Copy the element of x that each index selects along one axis.

    With axis 0 of three dimensions, ``y[i, j, k] = x[indices[i, j, k], j, k]``. Every bit of an element is kept.

    Parameters
    ----------
    x : array_like of any type of fixed size, at least one dimension
        The elements.
    indices : array_like of integers
        As many dimensions as x; any size along `axis`, and at most x's size along the others. Negative indices count
        from the end. Nothing is broadcast.
    axis : int
        The axis that indices refer to. A negative one counts from the last. It has no default, because the defaults of
        ONNX (0) and `numpy.take_along_axis` (-1) differ.
    mode : {"raise", "clip"}
        What to do about an index out of range: raise before anything is written, or clamp the index to the axis.
    out : ndarray, optional
        Where to write the result: of the indices' shape and x's type, any strides; no memory shared with `x` or
        `indices`.

    Returns
    -------
    ndarray
        The elements, of the indices' shape; `out` if given.

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
    The semantics are those of DirectML's ``DML_GATHER_ELEMENTS_OPERATOR_DESC`` and of ONNX GatherElements
    13. With ``mode="clip"``, `numpy.take` replaces negative indices by 0; dmlcpu counts them from the end.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    >>> dmlcpu.gather_elements(x, [[1, 2, 0], [2, 0, 0]], axis=0)
    array([[4, 8, 3],
           [7, 2, 3]])
    >>> dmlcpu.gather_elements(x, [[-1], [0], [9]], axis=1, mode="clip")
    array([[3],
           [4],
           [9]])
    """
    key, arrays = request(x, indices, axis, mode, out)
    prepared: Prepared = plan_for_now(prepare, key)
    result = allocate(prepared, arrays, out)
    while prepared.run(*arrays, result, out is None) is not None:  # repeat if another thread has written a valid index
        source, given = arrays
        axis = as_axis(NAME, "axis", axis, "x", source.ndim)
        check_indices(NAME, given, axis, source.shape[axis])
    return result


def request(x: Any, indices: Any, axis: Any, mode: Any, out: Any = None) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads."""
    x, of_x = formed(NAME, "x", x)
    indices, of_indices = formed(NAME, "indices", indices)
    axis, width = as_integer(NAME, "axis", axis), word_bytes(x.dtype, x, out)
    return ((of_x, of_indices, strides_of(out)), (axis, mode, width)), (x, indices)


def allocate(prepared: Prepared, arrays: tuple[Any, ...], out: Any) -> Array:
    """Return the output: a new array, or `out` if the result can be written to it."""
    x, indices = arrays
    if out is None:  # types that are equal may differ in their alignment and metadata
        return prepared.new[0]() if prepared.results[0].dtype is x.dtype else empty_result(indices.shape, x.dtype)
    result = check_output(NAME, "out", out, indices.shape, x.dtype)
    if not own_all(result, x, indices):
        check_apart(NAME, "out", result, {"x": x, "indices": indices})
    return result
