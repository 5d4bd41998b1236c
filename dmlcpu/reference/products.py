"""Products of bytes in plain NumPy."""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.annotations import Array, Mode, Nan, Numbers, Pair
from dmlcpu.reference.quantizers import dynamic_quantize_linear
from dmlcpu.reference.sorts import top_k, written


def quantized_matmul(
    a: "ArrayLike",
    a_scale: "ArrayLike",
    a_zero_point: "ArrayLike | None",
    b: "ArrayLike",
    b_scale: "ArrayLike",
    b_zero_point: "ArrayLike | None",
    y_scale: "ArrayLike",
    y_zero_point: "ArrayLike | None",
    *,
    out_dtype: "DTypeLike | None" = None,
    out: "Array | None" = None,
) -> "Array":
    """Multiply in int64 and requantize, one formula in each line. See `dmlcpu.quantized_matmul`.

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
    # An int64 cannot hold every rounded number; 1e6 is beyond every zero point and limit.
    rounded = np.rint(np.clip(product, -1e6, 1e6)).astype(np.int64)
    y = np.clip(rounded + _of_rows(y_zero_point, np.int64), limits.min, limits.max).astype(out_dtype)
    return _finished(y, a, b, out)


def matmul_integer(
    a: "ArrayLike",
    a_zero_point: "ArrayLike | None",
    b: "ArrayLike",
    b_zero_point: "ArrayLike | None",
    *,
    out_dtype: "DTypeLike" = np.int32,
    out: "Array | None" = None,
) -> "Array":
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


def matmul_integer_to_float(
    a: "ArrayLike",
    a_scale: "ArrayLike",
    a_zero_point: "ArrayLike | None",
    b: "ArrayLike",
    b_scale: "ArrayLike",
    b_zero_point: "ArrayLike | None",
    bias: "ArrayLike | None" = None,
    *,
    out_dtype: "DTypeLike | None" = None,
    out: "Array | None" = None,
) -> "Array":
    """Multiply in integers and scale, one rounding in each line. See `dmlcpu.matmul_integer_to_float`.

    Operands may also have 16 or 32 bits: their sums are Python integers.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> a, b = np.array([[3]], np.uint8), np.array([[5]], np.int8)
    >>> reference.matmul_integer_to_float(a, 0.5, None, b, 1.0, None, 2)
    array([[9.5]], dtype=float32)
    """
    a, b = np.asarray(a), np.asarray(b)
    if out_dtype is None:
        are_halves = [hasattr(s, "dtype") and np.asarray(s).dtype.str[1:] == "f2" for s in (a_scale, b_scale)]
        out_dtype = np.float16 if all(are_halves) else np.float32
    with np.errstate(all="ignore"):
        mul = _of_rows(a_scale, np.float32) * _of_columns(b_scale, np.float32)
        if a.itemsize == b.itemsize == 1:
            acc = _sums(a, a_zero_point, b, b_zero_point).astype(np.float32)
        else:
            acc = _rounded(_sums(a, a_zero_point, b, b_zero_point, object))
        y = _finished(acc * mul, a, b, None)
        y = y if bias is None else y + np.asarray(bias).astype(np.float32)
        y = np.where(y == y, y, np.float32(np.nan)).astype(out_dtype)
    return written(y, out)


def dynamic_quantize_matmul(
    x: "ArrayLike",
    b: "ArrayLike",
    b_scale: "ArrayLike",
    b_zero_point: "ArrayLike | None" = None,
    bias: "ArrayLike | None" = None,
    *,
    per_row: bool = False,
    out_dtype: "DTypeLike" = np.float32,
    out: "Array | None" = None,
) -> "Array":
    """Quantize x, then multiply. See `dmlcpu.dynamic_quantize_matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> reference.dynamic_quantize_matmul(np.array([[255.0, 3]], np.float32), np.array([[1], [2]], np.int8), 0.5)
    array([[130.5]], dtype=float32)
    """
    a, a_scale, a_zero = dynamic_quantize_linear(x, axis=-1 if per_row else None)
    return matmul_integer_to_float(a, a_scale, a_zero, b, b_scale, b_zero_point, bias, out_dtype=out_dtype, out=out)


class MatmulTopK(NamedTuple):
    """Values and indices, as `dmlcpu.matmul_top_k` returns them."""

    values: Array
    indices: Array


def matmul_top_k(
    a: "ArrayLike",
    b: "ArrayLike",
    k: int,
    *,
    a_scale: "Numbers" = None,
    a_zero_point: "Numbers" = None,
    b_scale: "Numbers" = None,
    b_zero_point: "Numbers" = None,
    bias: "Numbers" = None,
    mode: "Mode" = "largest",
    nan: "Nan" = "greatest",
    mask: "ArrayLike | None" = None,
    exclude: Any = None,
    out: "Pair | None" = None,
) -> "MatmulTopK":
    """Compute all scores, then rank those of the allowed columns in each row. See `dmlcpu.matmul_top_k`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> a, b = np.array([[3]], np.uint8), np.array([[5, 7, 7]], np.int8)
    >>> reference.matmul_top_k(a, b, 2)
    MatmulTopK(values=array([[21, 21]], dtype=int32), indices=array([[1, 2]]))
    """
    if a_scale is None and b_scale is None:
        sums = matmul_integer(a, a_zero_point, b, b_zero_point, out_dtype=np.int64)
        scores = (sums + _of_last(bias, sums, np.int64)).astype(np.int32)
    else:
        a_scale, b_scale = (np.float32(1) if scale is None else scale for scale in (a_scale, b_scale))
        scores = matmul_integer_to_float(a, a_scale, a_zero_point, b, b_scale, b_zero_point, out_dtype=np.float32)
        if bias is not None:
            with np.errstate(all="ignore"):
                scores = scores + _of_last(bias, scores, np.float32)
            scores = np.where(scores == scores, scores, np.float32(np.nan))
    if mask is None and exclude is None:
        return MatmulTopK(*top_k(scores, k, mode=mode, nan=nan, out=out))
    rows = scores.reshape(math.prod(scores.shape[:-1]), scores.shape[-1])
    allowed = np.broadcast_to(True if mask is None else np.asarray(mask, bool), rows.shape) & ~_excluded(exclude, rows)
    limits = (-np.inf, np.inf) if scores.dtype == np.float32 else (np.iinfo(np.int32).min, np.iinfo(np.int32).max)
    values = np.full((*scores.shape[:-1], k), limits[mode == "smallest"], scores.dtype)
    indices = np.full(values.shape, -1, np.int64)
    for row in range(len(rows)):
        columns = np.flatnonzero(allowed[row])
        best = top_k(rows[row, columns], min(k, columns.size), mode=mode, nan=nan)
        values.reshape(len(rows), k)[row, : best.values.size] = best.values
        indices.reshape(len(rows), k)[row, : best.values.size] = columns[best.indices]
    out_values, out_indices = (None, None) if out is None else out
    return MatmulTopK(written(values, out_values), written(indices, out_indices))


def _excluded(exclude: Any, rows: Array) -> Array:
    """Return the excluded columns, a bool for each score."""
    excluded = np.zeros(rows.shape, bool)
    if hasattr(exclude, "toarray"):
        return np.asarray(exclude.toarray() != 0)
    if exclude is None or getattr(exclude, "dtype", None) == np.bool_:
        return excluded if exclude is None else np.asarray(exclude)
    if isinstance(exclude, tuple) and len(exclude) == 2 and all(getattr(each, "ndim", 0) == 1 for each in exclude):
        starts, numbers = exclude
        exclude = np.split(numbers, starts[1:-1])
    elif len(rows) == 1 and all(np.ndim(each) == 0 for each in exclude):
        exclude = [exclude]
    for row, columns in enumerate(exclude):
        excluded[row, [column for column in columns if column < rows.shape[1]]] = True
    return excluded


def _of_last(bias: ArrayLike | None, scores: Array, dtype: DTypeLike) -> Array:
    """Return a column bias, (N,) or (..., 1, N), that broadcasts to scores, which lack rows if an operand is 1-D."""
    array = np.asarray(0 if bias is None else bias).astype(dtype)
    return array if array.ndim <= scores.ndim else np.squeeze(array, axis=-2)


def _rounded(integers: Array) -> Array:
    """Return Python integers as float32, rounded half to even to multiples of a unit that leaves 24 bits."""
    units = [1 << max(0, n.bit_length() - 24) for n in integers.flat]
    numbers = [float(round(Fraction(n, unit)) * unit) for n, unit in zip(integers.flat, units, strict=True)]
    return np.array(numbers, np.float32).reshape(integers.shape)


def _sums(
    a: Array, a_zero_point: ArrayLike | None, b: Array, b_zero_point: ArrayLike | None, dtype: DTypeLike = np.int64
) -> Array:
    """Return the exact product of two operands less their zero points, as matrices; dtype object: any integers."""
    matrix_a = a[None, :] if a.ndim == 1 else a
    matrix_b = b[:, None] if b.ndim == 1 else b
    result: Array = (matrix_a.astype(dtype) - _of_rows(a_zero_point, dtype)) @ (
        matrix_b.astype(dtype) - _of_columns(b_zero_point, dtype)
    )
    return result


def _finished(y: Array, a: Array, b: Array, out: Array | None) -> Array:
    """Drop the dimensions that 1-D operands lack, and write to `out` if given."""
    drop = tuple(axis for axis, operand in ((-2, a), (-1, b)) if operand.ndim == 1)
    return written(np.squeeze(y, axis=drop), out)


def _of_rows(parameter: ArrayLike | None, dtype: DTypeLike) -> Array:
    """Return a scale or zero point that broadcasts along the rows of a matrix; None is zero."""
    array = np.asarray(0 if parameter is None else parameter).astype(dtype)
    return array[:, None] if array.ndim == 1 else array


def _of_columns(parameter: ArrayLike | None, dtype: DTypeLike) -> Array:
    """Return a scale or zero point that broadcasts along the columns of a matrix; None is zero."""
    return np.asarray(0 if parameter is None else parameter).astype(dtype)
