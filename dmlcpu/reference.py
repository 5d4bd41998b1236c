"""The operators in plain NumPy: slow, obvious, and the oracle of every test.

The functions have the signatures and results of their namesakes in `dmlcpu`, which call these when compilation is
switched off (NUMBA_DISABLE_JIT). The code shares nothing with the kernels, and assumes valid arguments.
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
    k: int | ArrayLike,
    *,
    axis: int = -1,
    mode: str | None = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: str = "greatest",
    fill_value: Any = None,
    index_dtype: DTypeLike = np.int64,
    out: tuple[Array, Array] | None = None,
) -> TopK:
    """Rank every element and sort all ranks stably, also with ``sorted=False``. See `dmlcpu.top_k`.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.top_k([1, 2, 2, 3], 3)
    TopK(values=array([3, 2, 2]), indices=array([3, 1, 2]))
    """
    x = np.asarray(x)
    smallest = mode == "smallest" or (largest is not None and not largest)
    with np.errstate(invalid="ignore"):  # NumPy reports a signalling NaN
        exact = x if x.dtype.kind in "biu" else x.astype(np.float64)  # every floating type widens without loss
    # Equal elements, both zeros and all NaNs share a rank; NaN has the last.
    ranks = np.unique(exact, return_inverse=True)[1].reshape(x.shape)
    ranks = ranks if smallest else -ranks
    if nan == "last":
        ranks = np.where(_is_nan(exact), x.size + 1, ranks)
    order = np.argsort(ranks, axis=axis, kind="stable")
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
    if out is None:
        return TopK(values, indices)
    np.copyto(out[0], values)
    np.copyto(out[1], indices)
    return TopK(*out)


def _last(dtype: np.dtype[Any], smallest: bool) -> Any:
    """Return the number that comes last when the largest, or the smallest, come first."""
    if dtype.kind == "b":
        return smallest
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if smallest else np.iinfo(dtype).min
    return np.inf if smallest else -np.inf


def scatter_nd(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    reduction: str = "none",
    mode: str = "raise",
    out: Array | None = None,
) -> Array:
    """Apply one update after the other in a Python loop. See `dmlcpu.scatter_nd`.

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
        mine = result[place]  # the ellipsis makes it a view, even of one element
        mine[...] = _combined(mine, updates[(*where, ...)], reduction)
    if out is None:
        return result
    np.copyto(out, result)
    return out


def _combined(mine: Array, update: Array, reduction: str) -> Array:
    """Return elements combined with an update."""
    if reduction == "none":
        return update
    if reduction in ("min", "max"):
        if mine.dtype == bool:
            return mine & update if reduction == "min" else mine | update
        with np.errstate(invalid="ignore"):
            better = update < mine if reduction == "min" else update > mine
        return np.where(~_is_nan(mine) & (better | _is_nan(update)), update, mine)
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
        part[_is_nan(part)] = np.nan  # one quiet NaN, whatever the operands' payloads
    return result


def _is_nan(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # NumPy reports a signalling NaN
        result: Array = np.not_equal(x, x)
        return result


def quantized_matmul(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None,
    *,
    out_dtype: DTypeLike | None = None,
    out: Array | None = None,
) -> Array:
    """Multiply in int64 and requantize, one formula a line. See `dmlcpu.quantized_matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> a, b = np.array([[3]], np.uint8), np.array([[5]], np.int8)
    >>> reference.quantized_matmul(a, 0.5, None, b, 1.0, None, 1.0, None)
    array([[8]], dtype=uint8)
    """
    a, b = np.asarray(a), np.asarray(b)
    if out_dtype is None:
        zero_type = np.asarray(y_zero_point).dtype
        out_dtype = zero_type if zero_type in (np.int8, np.uint8) else a.dtype
    acc = _sums(a, a_zero_point, b, b_zero_point)
    with np.errstate(all="ignore"):
        mul = _of_rows(a_scale, np.float32) * _of_columns(b_scale, np.float32) / _of_rows(y_scale, np.float32)
        product = np.where(acc == 0, np.float32(0), acc.astype(np.float32) * mul)
    limits = np.iinfo(out_dtype)
    # An int64 could not hold every rounded number; 1e6 is beyond every zero point and limit.
    rounded = np.rint(np.clip(product, -1e6, 1e6)).astype(np.int64)
    y = np.clip(rounded + _of_rows(y_zero_point, np.int64), limits.min, limits.max).astype(out_dtype)
    return _finished(y, a, b, out)


def matmul_integer(
    a: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike,
    b_zero_point: ArrayLike | None,
    *,
    out_dtype: DTypeLike = np.int32,
    out: Array | None = None,
) -> Array:
    """Multiply in int64 and convert, which wraps. See `dmlcpu.matmul_integer`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> a, b = np.array([[3]], np.uint8), np.array([[5]], np.int8)
    >>> reference.matmul_integer(a, 1, b, None)
    array([[10]], dtype=int32)
    """
    a, b = np.asarray(a), np.asarray(b)
    return _finished(_sums(a, a_zero_point, b, b_zero_point).astype(out_dtype), a, b, out)


def _sums(a: Array, a_zero_point: ArrayLike | None, b: Array, b_zero_point: ArrayLike | None) -> Array:
    """Return the exact product of two operands less their zero points, as matrices."""
    matrix_a = a[None, :] if a.ndim == 1 else a
    matrix_b = b[:, None] if b.ndim == 1 else b
    result: Array = (matrix_a.astype(np.int64) - _of_rows(a_zero_point, np.int64)) @ (
        matrix_b.astype(np.int64) - _of_columns(b_zero_point, np.int64)
    )
    return result


def _finished(y: Array, a: Array, b: Array, out: Array | None) -> Array:
    """Drop the dimensions that 1-D operands do not have, and write to `out` if there is one."""
    drop = tuple(axis for axis, operand in ((-2, a), (-1, b)) if operand.ndim == 1)
    result: Array = np.squeeze(y, axis=drop)
    if out is None:
        return result
    np.copyto(out, result)
    return out


def _of_rows(parameter: ArrayLike | None, dtype: DTypeLike) -> Array:
    """Return a scale or zero point that broadcasts along the rows of a matrix; None is zero."""
    array = np.asarray(0 if parameter is None else parameter).astype(dtype)
    return array[:, None] if array.ndim == 1 else array


def _of_columns(parameter: ArrayLike | None, dtype: DTypeLike) -> Array:
    """Return a scale or zero point that broadcasts along the columns of a matrix; None is zero."""
    return np.asarray(0 if parameter is None else parameter).astype(dtype)
