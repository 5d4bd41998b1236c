"""scatter_nd and scatter_elements in plain NumPy."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, OutOfRange, Reduction
from dmlcpu.reference.sorts import is_nan, written


def scatter_nd(
    x: "ArrayLike",
    indices: "ArrayLike",
    updates: "ArrayLike",
    *,
    reduction: "Reduction" = "none",
    mode: "OutOfRange" = "raise",
    out: "Array | None" = None,
) -> "Array":
    """Apply updates one by one in a Python loop. See `dmlcpu.scatter_nd`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.scatter_nd([1, 2, 3, 4], [[3], [-4]], [9, 8])
    array([8, 2, 3, 9])
    """
    x, indices = np.asarray(x), np.asarray(indices)
    updates = np.asarray(updates, x.dtype)
    result = np.array(x, order="C")  # a copy
    sizes = x.shape[: indices.shape[-1]]
    for where in np.ndindex(indices.shape[:-1]):
        target = [int(index) for index in indices[where]]
        target = [index + size if index < 0 else index for index, size in zip(target, sizes, strict=True)]
        if mode == "clip":
            target = [min(max(index, 0), size - 1) for index, size in zip(target, sizes, strict=True)]
        elif not all(0 <= index < size for index, size in zip(target, sizes, strict=True)):
            if mode == "raise":
                raise IndexError(f"indices{list(where)} is out of range")
            continue
        place: tuple[Any, ...] = (*target, ...)
        mine = result[place]  # a view, even of one element, due to the ellipsis
        mine[...] = _combined(mine, updates[(*where, ...)], reduction)
    return written(result, out)


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
    """Apply the updates of each line one by one in a Python loop. See `dmlcpu.scatter_elements`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.scatter_elements([1, 2, 3, 4], [3, -4], [9, 8], axis=0)
    array([8, 2, 3, 9])
    """
    x, indices = np.asarray(x), np.asarray(indices)
    updates = np.asarray(updates, x.dtype)
    result = np.array(x, order="C")  # a copy
    lines, all_places, all_updates = (axis_first(array, axis) for array in (result, indices, updates))
    for places, update in zip(all_places, all_updates, strict=True):
        at = [in_range(int(place), x.shape[axis], mode) for place in places.ravel()]
        used = np.array([place is not None for place in at], bool).reshape(places.shape)
        others = np.nonzero(used)
        where = (np.array([place for place in at if place is not None], int), *others)
        lines[where] = _combined(lines[where], update[others], reduction)
    return written(result, out)


def axis_first(array: Array, axis: int) -> Array:
    """Return a view with the axis first, and at least one more dimension."""
    return np.moveaxis(array, axis, 0) if array.ndim > 1 else array[:, None]


def in_range(index: int, size: int, mode: str) -> int | None:
    """Return an index counted from the first element, within the size; None if it is dropped."""
    index = index + size if index < 0 else index
    if mode == "clip":
        return min(max(index, 0), size - 1)
    if 0 <= index < size:
        return index
    if mode == "raise":
        raise IndexError("an index is out of range")
    return None


def _combined(mine: Array, update: Array, reduction: str) -> Array:
    """Return elements combined with an update."""
    if reduction == "none":
        return update
    if reduction in ("min", "max"):
        if mine.dtype == bool:
            return mine & update if reduction == "min" else mine | update
        with np.errstate(invalid="ignore"):
            better = update < mine if reduction == "min" else update > mine
        return np.where(~is_nan(mine) & (better | is_nan(update)), update, mine)
    if mine.dtype == bool:
        return mine | update if reduction == "add" else mine & update
    with np.errstate(all="ignore"):
        if mine.dtype.itemsize == 2 and mine.dtype.kind not in "iu":  # float16, bfloat16
            a, b = mine.astype(np.float32), update.astype(np.float32)
            result = np.asarray(a + b if reduction == "add" else a * b).astype(mine.dtype)
        elif mine.dtype.kind == "c" and reduction == "mul":
            result = np.empty_like(mine)
            result.real = mine.real * update.real - mine.imag * update.imag
            result.imag = mine.real * update.imag + mine.imag * update.real
        else:
            result = np.asarray(mine + update if reduction == "add" else mine * update)
    if result.dtype.kind in "iu":
        return result
    for part in [result.real, result.imag] if result.dtype.kind == "c" else [result]:
        part[is_nan(part)] = np.nan  # one quiet NaN for all payloads of the operands
    return result
