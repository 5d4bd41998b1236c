"""argmax and argmin in plain NumPy."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.annotations import Array


def argmax(
    x: "ArrayLike",
    *,
    axis: "int | tuple[int, ...] | None" = None,
    select_last: bool = False,
    keepdims: bool = False,
    index_dtype: "DTypeLike" = np.int64,
    out: "Array | None" = None,
) -> "Array":
    """Find the greatest element of each set with NumPy's argmax. See `dmlcpu.argmax`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.argmax([1, 3, 3])
    array(1)
    """
    return _places(np.argmax, np.asarray(x), axis, select_last, keepdims, index_dtype, out)


def argmin(
    x: "ArrayLike",
    *,
    axis: "int | tuple[int, ...] | None" = None,
    select_last: bool = False,
    keepdims: bool = False,
    index_dtype: "DTypeLike" = np.int64,
    out: "Array | None" = None,
) -> "Array":
    """Find the smallest element of each set with NumPy's argmin. See `dmlcpu.argmin`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.argmin([[1, 3], [0, 3]], axis=0)
    array([1, 0])
    """
    return _places(np.argmin, np.asarray(x), axis, select_last, keepdims, index_dtype, out)


def _places(
    find: Callable[..., Any],
    x: Array,
    axis: int | tuple[int, ...] | None,
    select_last: bool,
    keepdims: bool,
    index_dtype: DTypeLike,
    out: Array | None,
) -> Array:
    """Merge the reduced dimensions, in order, into a last one; then find the positions along it."""
    given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = sorted(each % x.ndim for each in given)
    kept = [d for d in range(x.ndim) if d not in axes]
    size = math.prod(x.shape[d] for d in axes)
    sets = x.transpose(*kept, *axes).reshape(*(x.shape[d] for d in kept), size)
    with np.errstate(invalid="ignore"):  # NumPy reports a signaling NaN
        exact = sets if x.dtype.kind in "biu" else sets.astype(np.float64)  # every floating type widens without loss
    found = find(exact[..., ::-1] if select_last else exact, -1) if exact.size else np.zeros(sets.shape[:-1], int)
    places = np.asarray(size - 1 - found if select_last else found, index_dtype)
    if keepdims:
        places = places.reshape([1 if d in axes else n for d, n in enumerate(x.shape)])
    if out is None:
        return places
    np.copyto(out, places)
    return out
