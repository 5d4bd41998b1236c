"""The three operators in plain NumPy: slow, obvious, and the oracle of every test.

Same signatures and results as the functions of the same names in `dmlcpu`. The code shares nothing with the kernels,
and takes its arguments to be valid.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Array = NDArray[Any]


class TopK(NamedTuple):
    """Values and indices, as `dmlcpu.top_k` returns them."""

    values: Array
    indices: Array


def top_k(
    x: ArrayLike,
    k: int,
    *,
    axis: int = -1,
    largest: bool = True,
    index_dtype: DTypeLike = np.int64,
    out: tuple[Array, Array] | None = None,
) -> TopK:
    """Select by ranking every element and sorting all ranks stably. See `dmlcpu.top_k`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.top_k([1, 2, 2, 3], 3)
    TopK(values=array([3, 2, 2]), indices=array([3, 1, 2]))
    """
    x = np.asarray(x)
    with np.errstate(invalid="ignore"):  # NumPy reports a signalling NaN
        exact = x if x.dtype.kind in "biu" else x.astype(np.float64)  # every floating type widens without loss
    # Equal elements, both zeros and all NaNs share a rank; NaN has the last.
    ranks = np.unique(exact, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-ranks if largest else ranks, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis=axis)
    result = TopK(np.take_along_axis(x, order, axis=axis), order.astype(index_dtype))
    if out is None:
        return result
    np.copyto(out[0], result.values)
    np.copyto(out[1], result.indices)
    return TopK(*out)
