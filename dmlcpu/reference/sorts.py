"""top_k and the sorts in plain NumPy."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.annotations import Array, Mode, Nan


class TopK(NamedTuple):
    """Values and indices, as `dmlcpu.top_k` returns them."""

    values: Array
    indices: Array


def top_k(
    x: "ArrayLike",
    k: "int | ArrayLike",
    *,
    axis: int = -1,
    mode: "Mode | None" = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: "Nan" = "greatest",
    fill_value: Any = None,
    index_dtype: "DTypeLike" = np.int64,
    out: "tuple[Array, Array] | None" = None,
) -> "TopK":
    """Rank all elements and sort the ranks stably, also with ``sorted=False``. See `dmlcpu.top_k`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.top_k([1, 2, 2, 3], 3)
    TopK(values=array([3, 2, 2]), indices=array([3, 1, 2]))
    """
    x = np.asarray(x)
    smallest = mode == "smallest" or (largest is not None and not largest)
    order = _order(x, axis, smallest, nan)
    counts = np.asarray(k)
    order = np.take(order, np.arange(counts.max(initial=0)), axis=axis)
    values, indices = np.take_along_axis(x, order, axis=axis), order.astype(index_dtype)
    if counts.ndim:
        values, indices = np.moveaxis(values, axis, -1), np.moveaxis(indices, axis, -1)
        fill = _last(x.dtype, smallest) if fill_value is None else fill_value
        for where in np.ndindex(values.shape[:-1]):
            count = np.broadcast_to(counts, values.shape[:-1])[where]
            values[where][count:] = fill
            indices[where][count:] = np.array(-1).astype(index_dtype)
        values, indices = np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)
    return TopK(*map(written, (values, indices), out or (None, None)))


class Sorted(NamedTuple):
    """Values and indices, as `dmlcpu.sort_with_indices` returns them."""

    values: Array
    indices: Array


def sort_with_indices(
    x: "ArrayLike",
    axis: int = -1,
    *,
    descending: bool = False,
    nan: "Nan" = "last",
    index_dtype: "DTypeLike" = np.int64,
    out: "tuple[Array, Array] | None" = None,
) -> "Sorted":
    """Rank every element and sort the ranks stably. See `dmlcpu.sort_with_indices`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.sort_with_indices([3, 1, 1])
    Sorted(values=array([1, 1, 3]), indices=array([1, 2, 0]))
    """
    x = np.asarray(x)
    order = _order(x, axis, not descending, nan)
    values, indices = np.take_along_axis(x, order, axis=axis), order.astype(index_dtype)
    return Sorted(*map(written, (values, indices), out or (None, None)))


def sort(
    x: "ArrayLike", axis: int = -1, *, descending: bool = False, nan: "Nan" = "last", out: "Array | None" = None
) -> "Array":
    """Return the values of `sort_with_indices`. See `dmlcpu.sort`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.sort([3, 1, 2], descending=True)
    array([3, 2, 1])
    """
    return written(sort_with_indices(x, axis, descending=descending, nan=nan).values, out)


def argsort(
    x: "ArrayLike",
    axis: int = -1,
    *,
    descending: bool = False,
    nan: "Nan" = "last",
    index_dtype: "DTypeLike" = np.int64,
    out: "Array | None" = None,
) -> "Array":
    """Return the indices of `sort_with_indices`. See `dmlcpu.argsort`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.argsort([3, 1, 2])
    array([1, 2, 0])
    """
    found = sort_with_indices(x, axis, descending=descending, nan=nan, index_dtype=index_dtype)
    return written(found.indices, out)


def _order(x: Array, axis: int, ascending: bool, nan: "Nan") -> Array:
    """Return the positions of the elements of each sequence in order."""
    with np.errstate(invalid="ignore"):  # NumPy reports a signaling NaN
        exact = x if x.dtype.kind in "biu" else x.astype(np.float64)  # every floating type widens without loss
    # Equal elements, both zeros and all NaNs share a rank; NaN has the last one.
    ranks = np.unique(exact, return_inverse=True)[1].reshape(x.shape)
    ranks = ranks if ascending else -ranks
    if nan == "last":
        ranks = np.where(is_nan(exact), x.size + 1, ranks)
    order: Array = np.argsort(ranks, axis=axis, kind="stable")
    return order


def _last(dtype: np.dtype[Any], smallest: bool) -> Any:
    """Return the number that comes last if the largest, or the smallest, come first."""
    if dtype.kind == "b":
        return smallest
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if smallest else np.iinfo(dtype).min
    return np.inf if smallest else -np.inf


def written(y: Array, out: Array | None) -> Array:
    """Return a result, in `out` if given."""
    if out is None:
        return y
    np.copyto(out, y)
    return out


def is_nan(x: Array) -> Array:
    """Return where x is NaN."""
    with np.errstate(invalid="ignore"):  # NumPy reports a signaling NaN
        result: Array = np.not_equal(x, x)
        return result
