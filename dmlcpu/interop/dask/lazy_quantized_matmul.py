"""quantized_matmul on Dask arrays: exact sums of chunks, requantized once."""

import itertools
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import DTypeLike

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form
from dmlcpu.common.parameters import check_scale
from dmlcpu.interop.dask import tasks
from dmlcpu.interop.dask.chunks import as_dask, at_a_time, meta_of, stand_in, without_empty
from dmlcpu.kernels.gemm.work import NARROW
from dmlcpu.operators.quantized_matmul.function import request
from dmlcpu.products.arguments import FLOAT, PARAMETERS, SCALES, Call, check
from dmlcpu.products.packing import PackedMatrix, unpack


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
    out_dtype: "DTypeLike | None" = None,
    split_every: int | None = None,
    out: None = None,
) -> "da.Array":
    """Multiply two quantized matrices and quantize the product; M, K, N and the batch may all be chunked.

    If K is chunked, chunks produce exact integer sums, which are added in a tree and requantized once.

    Parameters
    ----------
    a, b : dask.array.Array or array_like of int8 or uint8, shapes (..., M, K) and (..., K, N)
        Of one dimension or more. A `PackedMatrix` is unpacked.
    a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point
        As for `dmlcpu.quantized_matmul`; they may be lazy arrays.
    out_dtype : dtype, optional
        As for `dmlcpu.quantized_matmul`.
    split_every : int, optional
        How many chunks' sums are added at a time, at least 2; by default Dask's setting, or 4.
    out : None
        Must be None, as Dask arrays are immutable.

    Returns
    -------
    dask.array.Array, shape (..., M, N)
        A lazy array, with chunks as a and b have them.

    Raises
    ------
    DmlError
        If an argument is not valid, or chunk sizes are unknown. A lazy scale that is not a positive finite number is
        refused when it is computed.
    TypeError
        If an argument has the wrong Python type.

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
    every = at_a_time("quantized_matmul", split_every, out)
    a = without_empty(as_dask("quantized_matmul", "a", a))
    b = without_empty(as_dask("quantized_matmul", "b", unpack(b) if isinstance(b, PackedMatrix) else b))
    given = dict(zip(PARAMETERS, (a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point), strict=True))
    lazy = {
        name: as_dask("quantized_matmul", name, value)
        for name, value in given.items()
        if dask.is_dask_collection(value)
    }
    # Types and shapes of lazy parameters are checked here, values in tasks. Stand-ins are 1, which is always valid.
    stand_ins = [stand_in(lazy[name], 1) if name in lazy else value for name, value in given.items()]
    left, right = (Form(each.shape, each.dtype.newbyteorder("=")) for each in (a, b))
    key, arrays = request(left, *stand_ins[:2], right, *stand_ins[2:], out_dtype, None)
    operator, a_form, b_form, shapes, _, _, dtype = key
    call = check(operator, a_form, b_form, shapes, None, dtype)
    for place in SCALES:
        check_scale(operator, PARAMETERS[place], arrays[2][place], stand_ins[place])
    matrix_a, matrix_b = a if a.ndim > 1 else a[None, :], b if b.ndim > 1 else b[:, None]

    # Number the dimensions: batch, rows and columns of y, then K.
    of_y = tuple(range(len(call.matrix) - 2))
    m, n, depth = range(len(of_y), len(of_y) + 3)
    of_a, of_b = of_y[len(of_y) + 2 - matrix_a.ndim :], of_y[len(of_y) + 2 - matrix_b.ndim :]
    lhs, rhs, target = (matrix_a, (*of_a, m, depth)), (matrix_b, (*of_b, depth, n)), (*of_y, m, n)
    a_scales, a_zeros, b_scales, b_zeros, y_scales, y_zeros = parameters = [
        (None, None) if given[name] is None else _parameter(call, place, number, lazy.get(name), target)
        for place, (name, number) in enumerate(zip(PARAMETERS, arrays[2], strict=True))
    ]
    if 0 in call.matrix:
        y = da.empty(call.matrix, dtype=call.dtype)
    elif matrix_a.numblocks[-1] == matrix_b.numblocks[-2] == 1:
        y = _blockwise(tasks.product, target, lhs, rhs, *parameters, dtype=call.dtype)
    else:
        sum_type = np.dtype(np.int32 if matrix_a.shape[-1] <= NARROW else np.int64)
        sums = _blockwise(
            tasks.partial_sums, (*of_y, depth, m, n), lhs, rhs, a_zeros, b_zeros, dtype=sum_type, sizes={depth: 1}
        ).sum(axis=-3, dtype=sum_type, split_every=every)
        scales = (a_scales, b_scales, y_scales)
        y = _blockwise(tasks.requantize, target, (sums, target), *scales, y_zeros, dtype=call.dtype)
    return y[..., slice(None) if a.ndim > 1 else 0, slice(None) if b.ndim > 1 else 0]


def _parameter(
    call: Call, place: int, number: Array, lazy: da.Array | None, target: tuple[int, ...]
) -> tuple[da.Array, tuple[int, ...]]:
    """Return a scale or zero point with the dimensions of matrices, and their numbers in y.

    number: the parameter, flat, or the stand-in of a lazy one.
    """
    kind = FLOAT if place in SCALES else (call.a.dtype, call.b.dtype, call.dtype)[place // 2]
    shaped = number.view(kind).reshape(call.parameters[place] or (1, 1))
    if lazy is None:
        array = da.from_array(shaped, chunks=-1)
    else:
        checked = partial(tasks.checked_parameter, place=place, dtype=shaped.dtype)
        array = without_empty(lazy.map_blocks(checked, meta=meta_of(lazy.ndim, shaped.dtype))).reshape(shaped.shape)
    return array, target[-array.ndim :]


def _blockwise(
    function: Any, target: tuple[int, ...], *pairs: Any, dtype: np.dtype[Any], sizes: dict[int, int] | None = None
) -> da.Array:
    """Apply a function to chunks. pairs: arrays, each with its dimensions, numbered as in `target`.

    sizes: the result's chunk sizes, where they differ from the arguments'.
    """
    # da.blockwise would warn about the growing number of chunks, which is usual for products.
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
