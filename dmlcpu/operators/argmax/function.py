"""ARGMAX: the place of the greatest element of each set."""

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.annotations import Array
from dmlcpu.reductions.call import allocate, request as request_of
from dmlcpu.reductions.plan import prepare
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "argmax", "prepare", "request"]  # the parts that `bind` uses


def argmax(
    x: "ArrayLike",
    *,
    axis: "int | tuple[int, ...] | None" = None,
    select_last: bool = False,
    keepdims: bool = False,
    index_dtype: "DTypeLike" = np.int64,
    out: "Array | None" = None,
) -> "Array":
    """Return the position of the greatest element of each set: of all elements, or of those along some axes.

    Among equal elements, the first wins, or the last with `select_last`. NaN is greater than +inf. All NaNs are equal,
    and so are -0.0 and +0.0.

    Parameters
    ----------
    x : array_like
        float16, float32, float64, bfloat16 (of ``ml_dtypes``), bool, or any integer type of 8 to 64 bits; any shape and
        memory layout.
    axis : int or tuple of int, optional
        The axes along which the elements of a set lie, by default all. A negative axis counts from the last. A list is
        also accepted.
    select_last : bool, default False
        Whether the last of equal elements wins, instead of the first.
    keepdims : bool, default False
        Whether the result keeps the axes, with size 1.
    index_dtype : dtype, default int64
        int64, int32, uint64 or uint32.
    out : ndarray, optional
        Where to write the positions: of the result's shape and of type `index_dtype`; any strides, no memory shared
        with `x`.

    Returns
    -------
    ndarray
        The positions, in x's shape without the axes, or with size 1 along each; `out` if given. Along one axis, a
        position is an index along that axis. Along several, a position counts the elements of its set in C order, for
        any order of `axis`; along all, it is an index of ``x.ravel()``.

    Raises
    ------
    DmlError
        If an argument is not valid, a set has no elements, or an axis is named twice; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of DirectML's ``DML_ARGMAX_OPERATOR_DESC`` and, along one axis, of ONNX ArgMax 13. Neither
    specifies NaN.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> x = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
    >>> dmlcpu.argmax(x, axis=0)
    array([1, 2, 1])
    >>> dmlcpu.argmax(x, axis=1, keepdims=True)
    array([[2],
           [2],
           [1]])
    >>> int(dmlcpu.argmax(x))
    7
    >>> int(dmlcpu.argmax([3, 2, 1, 2, 3], select_last=True))
    4
    """
    key, arrays = request(x, axis, select_last, keepdims, index_dtype, out)
    prepared = plan_for_now(prepare, key)
    result: Array = prepared.new[0]() if out is None else allocate(prepared, arrays, out)
    prepared.run(*arrays, result)
    return result


request = partial(request_of, "argmax")
