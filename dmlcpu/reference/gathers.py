"""gather_elements in plain NumPy."""

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Clipping
from dmlcpu.reference.scatters import axis_first, in_range
from dmlcpu.reference.sorts import written


def gather_elements(
    x: "ArrayLike", indices: "ArrayLike", *, axis: int, mode: "Clipping" = "raise", out: "Array | None" = None
) -> "Array":
    """Copy the elements of each line one by one in a Python loop. See `dmlcpu.gather_elements`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.gather_elements([1, 2, 3, 4], [3, -4], axis=0)
    array([4, 1])
    """
    x, indices = np.asarray(x), np.asarray(indices)
    result = np.empty(indices.shape, x.dtype)
    lines, all_places, found = (axis_first(array, axis) for array in (x, indices, result))
    for places, target in zip(all_places, found, strict=True):
        at = [in_range(int(place), x.shape[axis], mode) for place in places.ravel()]
        where = np.reshape(np.array(at, int), places.shape)
        target[...] = lines[(where, *np.indices(places.shape))]
    return written(result, out)
