"""SCATTER_ND: a copy of the input in which index tuples say where updates overwrite, or reduce into, elements."""

import functools
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.annotations import Array, Element, OutOfRange, Reduction
from dmlcpu.common.arguments import same_memory
from dmlcpu.common.forms import AnyForm, formed, strides_of
from dmlcpu.common.prepared import Prepared
from dmlcpu.indexing.reductions import ANY_SIZE, word_bytes
from dmlcpu.indexing.scatters import allocate, as_updates
from dmlcpu.operators.scatter_nd.call import NAME, check_index
from dmlcpu.operators.scatter_nd.plan import prepare
from dmlcpu.runtime.memory import ALIGNED, OWNS_DATA, PLAIN
from dmlcpu.runtime.threads import plan_for_now

__all__ = ["allocate", "prepare", "request", "scatter_nd"]  # the parts that `bind` uses

Arrays = tuple[Array, Array, Array]
_OWNED = PLAIN | OWNS_DATA


@overload
def scatter_nd(
    x: NDArray[Element],
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    reduction: Reduction = "none",
    mode: OutOfRange = "raise",
    out: Array | None = None,
) -> NDArray[Element]: ...
@overload
def scatter_nd(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    reduction: Reduction = "none",
    mode: OutOfRange = "raise",
    out: Array | None = None,
) -> Array: ...
def scatter_nd(
    x: "ArrayLike",
    indices: "ArrayLike",
    updates: "ArrayLike",
    *,
    reduction: "Reduction" = "none",
    mode: "OutOfRange" = "raise",
    out: "Array | None" = None,
) -> "Array":
    """Copy x, then write updates at the positions that index tuples name.

    Updates of one element are applied in the order of `indices`, with any number of threads. Without a reduction, the
    last one wins. With a reduction, the result is that of a plain loop.

    Parameters
    ----------
    x : array_like, shape (d0, d1, ...)
        Any type of fixed size; with a reduction, any numeric type (bool, integers, float16, bfloat16, float32,
        float64; complex for "add" and "mul").
    indices : array_like of integers, shape (..., T)
        Index tuples into the first T dimensions of x, 0 <= T <= x.ndim. Negative indices count from the end. If T is 0,
        each update replaces all of x.
    updates : array_like of x's type, shape indices.shape[:-1] + x.shape[T:]
        One element or slice for each tuple. Updates are not broadcast.
    reduction : {"none", "add", "mul", "min", "max"}
        How an update is combined with the element. Integers wrap; for bool, "add" is logical or, and "mul" logical and;
        "min" and "max" propagate NaN; float16 and bfloat16 are rounded after every update. A NaN from a sum or product
        is the quiet NaN without payload.
    mode : {"raise", "drop", "clip"}
        What to do about an index out of range: raise before anything is written, skip that update, or clamp each
        coordinate to its dimension.
    out : ndarray, optional
        Where to write the result: of x's shape and type, any strides. It may be `x` itself (then nothing is copied),
        and must not share other memory with the arguments.

    Returns
    -------
    ndarray
        A new array like x, or `out`.

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
    The semantics are those of DirectML's ``DML_SCATTER_ND_OPERATOR_DESC``, with the reductions of ONNX
    ScatterND 18. DirectML does not define the result of several updates of one element; dmlcpu does. With
    ``mode="clip"``, `numpy.take` replaces negative indices by 0; dmlcpu counts them from the end.

    A new array of 32 MiB to 1 GiB may reuse the memory of an earlier result. Then it does not own its data and cannot
    be resized in place.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> dmlcpu.scatter_nd([1, 2, 3, 4, 5, 6, 7, 8], [[4], [3], [1], [7]], [9, 10, 11, 12])
    array([ 1, 11,  3, 10,  9,  6,  7, 12])
    >>> bins = np.zeros(3, np.int64)
    >>> dmlcpu.scatter_nd(bins, [[0], [2], [2]], [1, 1, 1], reduction="add", out=bins)
    array([1, 0, 2])
    """
    key, arrays = request(x, indices, updates, reduction, mode, out)
    prepared: Prepared = plan_for_now(prepare, key)
    result = allocate(prepared, arrays, out)
    while (place := prepared.run(*arrays, result)) is not None:  # repeat if another thread has written a valid index
        check_index(arrays[1], place, arrays[0].shape)
    return result


def request(
    x: Any, indices: Any, updates: Any, reduction: Any, mode: Any, out: Any = None
) -> tuple[tuple[Any, ...], Arrays]:
    """Return the key of a prepared call, without the budget, and the arrays that it reads."""
    are_usual = type(x) is type(indices) is type(updates) is np.ndarray and updates.dtype is x.dtype
    flags, width = x.flags.num & indices.flags.num & updates.flags.num if are_usual else 0, 0
    if flags & ALIGNED and _are_read(x.dtype, indices.dtype):  # `formed` would take 0.3 to 1 us more
        are_packed = flags & PLAIN == PLAIN
        of_x: AnyForm = x.shape, x.dtype, None if are_packed else strides_of(x)
        of_indices: AnyForm = indices.shape, indices.dtype, None if are_packed else strides_of(indices)
        of_updates: AnyForm = updates.shape, x.dtype, None if are_packed else strides_of(updates)
    else:
        x, of_x = formed(NAME, "x", x)
        indices, of_indices = formed(NAME, "indices", indices)
        updates, of_updates = formed(NAME, "updates", as_updates(NAME, updates, x.dtype))
        width = word_bytes(x.dtype, x, updates, out)
    strides, in_place = None, out is x
    if in_place:
        strides = of_x[2]
    elif (
        isinstance(out, np.ndarray)
        and out.flags.num & flags & _OWNED != _OWNED  # other arrays are packed, and share no memory with x
        and (out.shape, out.dtype) == (x.shape, x.dtype)  # others are refused later
    ):
        strides, in_place = strides_of(out), same_memory(x, out)
    return ((of_x, of_indices, of_updates, strides), (reduction, mode, in_place, width)), (x, indices, updates)


@functools.lru_cache(maxsize=256)
def _are_read(*dtypes: np.dtype[Any]) -> bool:
    """Return whether kernels read aligned arrays of these types directly, with any strides."""
    return all(each.isnative and not each.hasobject and each.num not in ANY_SIZE for each in dtypes)


def update(
    x: Array,
    indices: Array,
    updates: Array,
    reduction: str,
    mode: str = "raise",
    *,
    operator: str = NAME,
    most: int | None = None,
) -> None:
    """Apply updates to x in place, on at most `most` threads; an error about an index names `operator`."""
    key, arrays = request(x, indices, updates, reduction, mode, x)
    prepared: Prepared = plan_for_now(prepare, key, most)
    while (place := prepared.run(*arrays, x)) is not None:  # again, as in `scatter_nd`
        check_index(arrays[1], place, arrays[0].shape, operator)
