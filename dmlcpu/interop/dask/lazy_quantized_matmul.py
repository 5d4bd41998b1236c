"""quantized_matmul on Dask's arrays: exact sums of chunks, requantized once."""

import itertools
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dmlcpu.interop.dask import tasks
from dmlcpu.interop.dask.arguments import as_dask, at_a_time, da, dask, meta_of, refuse_output, stand_in, without_empty
from dmlcpu.kernels.gemm.work import NARROW
from dmlcpu.products.packing import PackedMatrix, unpack
from dmlcpu.products.quantization import check_matrix, common_batch, output_type, scale, zero_point


def quantized_matmul(
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    *,
    out_dtype: DTypeLike | None = None,
    split_every: int | None = None,
    out: None = None,
) -> da.Array:
    """Multiply two quantized matrices and quantize the product; M, K, N and the batch may all be cut into chunks.

    Where K is cut, chunks give exact integer sums, which are added in a tree and requantized once.

    Parameters
    ----------
    a, b : dask.array.Array or array_like of int8 or uint8, shapes (..., M, K) and (..., K, N)
        Of one dimension or more. A `PackedMatrix` is unpacked.
    a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point
        As for `dmlcpu.quantized_matmul`; lazy arrays, too.
    out_dtype : dtype, optional
        As for `dmlcpu.quantized_matmul`.
    split_every : int, optional
        How many chunks' sums are added at a time, at least 2; by default Dask's setting, or else 4.
    out : None
        Nothing else is allowed, as Dask's arrays are immutable.

    Returns
    -------
    dask.array.Array, shape (..., M, N)
        A lazy array, with chunks as a and b have them.

    Raises
    ------
    DmlError
        If an argument does not fit, or sizes of chunks are unknown. A lazy scale that is not a positive finite number
        is refused when it is computed.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    The semantics are those of `dmlcpu.quantized_matmul`: sums are exact, and the three float32 operations are the same.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from dmlcpu.interop.dask import quantized_matmul
    >>> a = da.from_array(np.array([[10, 20], [30, 40]], np.uint8), chunks=1)
    >>> b = np.array([[1, -1], [2, -2]], np.int8)
    >>> quantized_matmul(a, 0.5, None, b, [0.5, 0.25], None, 1.0, 100).compute()
    array([[112,  94],
           [128,  86]], dtype=uint8)
    """
    operator = "quantized_matmul"
    refuse_output(operator, out)
    every = at_a_time(operator, split_every)
    a = without_empty(as_dask(operator, "a", a))
    b = without_empty(as_dask(operator, "b", unpack(b) if isinstance(b, PackedMatrix) else b))
    for name, matrix in (("a", a), ("b", b)):
        check_matrix(operator, name, stand_in(matrix), at_least=1)
    matrix_a, matrix_b = a if a.ndim > 1 else a[None, :], b if b.ndim > 1 else b[:, None]
    batch = common_batch(operator, ("a", a.shape), ("b", b.shape), matrix_a.shape, matrix_b.shape)
    rows, columns = matrix_a.shape[-2], matrix_b.shape[-1]
    zero = as_dask(operator, "y_zero_point", y_zero_point) if dask.is_dask_collection(y_zero_point) else y_zero_point
    dtype = output_type(operator, out_dtype, stand_in(zero) if zero is not y_zero_point else zero, a.dtype)

    # Dimensions by their numbers: batch, rows, columns of y; then K.
    m, n, depth = len(batch), len(batch) + 1, len(batch) + 2
    of_y = tuple(range(len(batch)))
    of_a, of_b = of_y[len(batch) + 2 - matrix_a.ndim :], of_y[len(batch) + 2 - matrix_b.ndim :]
    row_shape, column_shape, y_shape = (*matrix_a.shape[:-1], 1), (*matrix_b.shape[:-2], 1, columns), (*batch, rows, 1)
    parameters = [
        _parameter("a_scale", a_scale, None, row_shape, of_y, m),
        _parameter("a_zero_point", a_zero_point, a.dtype, row_shape, of_y, m),
        _parameter("b_scale", b_scale, None, column_shape, of_y, n),
        _parameter("b_zero_point", b_zero_point, b.dtype, column_shape, of_y, n),
        _parameter("y_scale", y_scale, None, y_shape, of_y, m),
        _parameter("y_zero_point", y_zero_point, dtype, y_shape, of_y, m),
    ]
    a_scales, a_zeros, b_scales, b_zeros, y_scales, y_zeros = parameters
    left, right, target = (matrix_a, (*of_a, m, depth)), (matrix_b, (*of_b, depth, n)), (*of_y, m, n)
    if 0 in (*batch, rows, columns):
        y = da.empty((*batch, rows, columns), dtype=dtype)
    elif matrix_a.numblocks[-1] == matrix_b.numblocks[-2] == 1:
        pairs = (left, a_scales, a_zeros, right, b_scales, b_zeros, y_scales, y_zeros)
        y = _blockwise(tasks.product, target, *pairs, dtype=dtype)
    else:
        sum_type = np.dtype(np.int32 if matrix_a.shape[-1] <= NARROW else np.int64)
        sums = _blockwise(
            tasks.partial_sums, (*of_y, depth, m, n), left, a_zeros, right, b_zeros, dtype=sum_type, sizes={depth: 1}
        ).sum(axis=-3, dtype=sum_type, split_every=every)
        y = _blockwise(tasks.requantize, target, (sums, target), a_scales, b_scales, y_scales, y_zeros, dtype=dtype)
    y = y if b.ndim > 1 else y[..., 0]
    return y if a.ndim > 1 else y[(..., 0, slice(None)) if b.ndim > 1 else (..., 0)]


def _parameter(
    field: str, value: Any, dtype: np.dtype[Any] | None, shape: tuple[int, ...], of_y: tuple[int, ...], last: int
) -> tuple[Any, tuple[int, ...] | None]:
    """Return a scale, or a zero point of a type, and which dimensions of y it has; `last` stands for rows or columns.

    shape: what it has to broadcast to. The dimension of size 1 is left out.
    """
    operator, is_rows = "quantized_matmul", last == len(of_y)
    check: Any = partial(scale, operator, field) if dtype is None else partial(zero_point, operator, field, dtype=dtype)
    if value is None and dtype is not None:
        return None, None
    if not dask.is_dask_collection(value):
        spread = check(value=value, shape=shape, rows=is_rows)
        array = da.from_array(spread[..., 0] if is_rows else spread[..., 0, :], chunks=-1)
    else:
        value = as_dask(operator, field, value)
        spread = check(value=stand_in(value, 1), shape=shape, rows=is_rows)  # refuses types and shapes
        array = value.map_blocks(
            tasks.checked_parameter, check=check, field=field, meta=meta_of(value.ndim, spread.dtype)
        )
        array = without_empty(array)
        if array.size == 1:
            array = array.reshape((1,))
        elif array.ndim > 1:
            array = array[..., 0] if is_rows else array[..., 0, :]
    return array, (*of_y[len(of_y) + 1 - array.ndim :], last)


def _blockwise(
    function: Any, target: tuple[int, ...], *pairs: Any, dtype: np.dtype[Any], sizes: dict[int, int] | None = None
) -> da.Array:
    """Return a function of chunks; pairs: an array, and its dimensions by the numbers of `target`.

    sizes: of the chunks of a dimension of the result, if they are others.
    """
    # Here and not by da.blockwise, which warns that there are more chunks than before: products have as many.
    chunks, arrays = da.core.unify_chunks(*itertools.chain.from_iterable(pairs), warn=False)
    return da.blockwise(
        partial(function, dtype=dtype),
        target,
        *itertools.chain.from_iterable(zip(arrays, [dimensions for _, dimensions in pairs], strict=True)),
        align_arrays=False,
        adjust_chunks={number: chunks[number] for number in target} | (sizes or {}),
        meta=meta_of(len(target), dtype),
        token=f"quantized_matmul-{function.__name__}",
    )
