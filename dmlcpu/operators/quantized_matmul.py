"""QUANTIZED_LINEAR_MATRIX_MULTIPLY: dequantize A and B, multiply, quantize; exact to the bit."""

import functools
import logging
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.kernels import registry
from dmlcpu.kernels.grid import Grid, make_grid
from dmlcpu.operators.arguments import Array, check_apart, check_output
from dmlcpu.operators.packing import PackedMatrix, batch_strides, pack, packed_shape
from dmlcpu.operators.quantization import (
    check_matrix,
    common_batch,
    output_type,
    scale,
    zero_point,
)
from dmlcpu.runtime.memory import scratch, word_strides, words
from dmlcpu.runtime.threads import Budget, budget

_log = logging.getLogger("dmlcpu")

# A parameter as the kernel reads it: its numbers, their strides along the batch dimensions, and along rows or columns.
_Parameter = tuple[Array, tuple[int, ...], int]


def quantized_matmul(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike | PackedMatrix,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None,
    *,
    out_dtype: DTypeLike | None = None,
    out: Array | None = None,
) -> Array:
    """Multiply two quantized matrices and quantize the product.

    The result is defined bit for bit, on every machine and with any number of threads::

        acc[m, n] = sum over k of (a[m, k] - a_zero_point[m]) * (b[k, n] - b_zero_point[n])    exact, never wraps
        mul[m, n] = float32(float32(a_scale[m] * b_scale[n]) / y_scale[m])
        y[m, n]   = clip(round_half_even(float32(acc) * mul) + y_zero_point[m], lowest, highest)

    where lowest and highest are those of y's type, and an acc of 0 gives the zero point even where mul overflows.

    Parameters
    ----------
    a : array_like of int8 or uint8, shape (..., M, K) or (K,)
    a_scale : array_like of floats
        One positive number, or one a row: shape (M,) or (..., M, 1), broadcast against a's batch. Used as float32.
    a_zero_point : array_like of a's type, or None
        One number, or one a row, independently of the scale; None is 0. Python integers are converted.
    b : array_like of int8 or uint8, shape (..., K, N) or (K,), or PackedMatrix
        Constant weights are best packed once, by `pack_b`.
    b_scale, b_zero_point : array_like
        As for `a`, but one a column: shape (N,) or (..., 1, N).
    y_scale, y_zero_point : array_like
        As for `a`: one number, or one a row of the product.
    out_dtype : dtype, optional
        int8 or uint8; by default the type of `y_zero_point` if that is one of them, else that of `a`.
    out : ndarray, optional
        Where to write the result: of its shape and type, any strides, no memory shared with `a` or `b`.

    Returns
    -------
    ndarray, shape (..., M, N)
        Batch dimensions are broadcast; a 1-D operand's dimension of length 1 is dropped, as `numpy.matmul` does.

    Raises
    ------
    DmlError
        If an argument does not fit, or a scale is not a positive finite float32; nothing has been written then.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    The semantics are those of DirectML's ``DML_QUANTIZED_LINEAR_MATRIX_MULTIPLY_OPERATOR_DESC`` and ONNX QLinearMatMul
    21; the order of roundings is ONNX Runtime's on x86, without its 32-bit accumulator.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> a = np.array([[10, 20], [30, 40]], np.uint8)
    >>> b = np.array([[1, -1], [2, -2]], np.int8)
    >>> dmlcpu.quantized_matmul(a, 0.5, None, b, [0.5, 0.25], None, 1.0, 100)
    array([[112,  94],
           [128,  86]], dtype=uint8)
    """
    a = check_matrix("quantized_matmul", "a", a, at_least=1)
    if not isinstance(b, PackedMatrix):
        b = check_matrix("quantized_matmul", "b", b, at_least=1)
    matrix_a = a if a.ndim > 1 else a[None, :]
    matrix_b = b if b.ndim > 1 else b[:, None]  # type: ignore[index]  # packed matrices have two dimensions and more
    batch = common_batch("quantized_matmul", ("a", a.shape), ("b", b.shape), matrix_a.shape, matrix_b.shape)
    rows, columns = matrix_a.shape[-2], matrix_b.shape[-1]
    dtype = output_type("quantized_matmul", out_dtype, y_zero_point, a.dtype)
    row_shape, column_shape = (*matrix_a.shape[:-1], 1), (*matrix_b.shape[:-2], 1, columns)
    parameters = (
        scale("quantized_matmul", "a_scale", a_scale, row_shape, rows=True),
        zero_point("quantized_matmul", "a_zero_point", a_zero_point, a.dtype, row_shape, rows=True),
        matrix_b,
        scale("quantized_matmul", "b_scale", b_scale, column_shape, rows=False),
        zero_point("quantized_matmul", "b_zero_point", b_zero_point, b.dtype, column_shape, rows=False),
        scale("quantized_matmul", "y_scale", y_scale, (*batch, rows, 1), rows=True),
        zero_point("quantized_matmul", "y_zero_point", y_zero_point, dtype, (*batch, rows, 1), rows=True),
    )
    shape = (*batch, *([rows] if a.ndim > 1 else []), *([columns] if b.ndim > 1 else []))
    if out is None:
        out = np.empty(shape, dtype)
    else:
        out = check_output("quantized_matmul", "out", out, shape, dtype)
        operands = {"a": a} if isinstance(b, PackedMatrix) else {"a": a, "b": b}
        check_apart("quantized_matmul", "out", out, operands)
    result = out if b.ndim > 1 else out[..., None]
    result = result if a.ndim > 1 else result[..., None, :]
    execute(matrix_a, *parameters, result)
    return out


@dataclass(frozen=True, slots=True)
class Plan:
    """How one set of shapes and layouts is worked on: plain integers and a kernel."""

    kernel: registry.Entry
    batches: int
    grid: Grid  # the batches of the product, with the strides of everything
    a_shape: tuple[int, int, int]  # packed: batches of a, padded M, padded K
    b_shape: tuple[int, int, int]
    parts: int


@functools.lru_cache(maxsize=1024)
def plan(
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    limits: Budget,
    kernel: str | None,
) -> Plan:
    """Choose the kernel and cut the work. strides: the parameters' and out's along the batch dimensions of out."""
    entry = registry.find("quantized_matmul", "dot", kernel)
    tile_m, tile_n, block_m, block_n = entry.block
    batch = out_shape[:-2]
    rows, depth = a_shape[-2:]
    columns = b_shape[-1]
    a_packed = packed_shape(a_shape, tile_m)
    b_packed = packed_shape((*b_shape[:-2], columns, depth), tile_n)
    batches = math.prod(batch)
    blocks = batches * -(-rows // block_m) * -(-columns // block_n)
    chosen = Plan(
        kernel=entry,
        batches=batches,
        grid=make_grid(batch, batch_strides(a_shape, batch), batch_strides(b_shape, batch), *strides),
        a_shape=a_packed,
        b_shape=b_packed,
        parts=limits.parts(work=batches * rows * columns * depth // 16, most=blocks),
    )
    _log.debug("quantized_matmul: %s by %s: %s, %d parts", a_shape, b_shape, entry.name, chosen.parts)
    return chosen


def execute(
    a: Array,
    a_scale: Array,
    a_zero_point: Array | None,
    b: Array | PackedMatrix,
    b_scale: Array,
    b_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None,
    out: Array,
    *,
    kernel: str | None = None,
) -> None:
    """Run on checked arrays of two dimensions and more; `kernel` asks for one of the registry by name.

    Scales are float32 and zero points of their tensor's type, in shapes that broadcast to (..., M, 1) for a and y, to
    (..., 1, N) for b.
    """
    if out.size == 0:
        return
    *batch, rows, columns = out.shape
    parameters = (
        _by_row(a_scale, np.float32, batch, rows),
        _by_row(a_zero_point, np.int32, batch, rows),
        _by_column(b_scale, np.float32, batch, columns),
        _by_column(b_zero_point, np.int32, batch, columns),
        _by_row(y_scale, np.float32, batch, rows),
        _by_row(y_zero_point, np.int32, batch, rows),
    )
    strides = (*(parameter[1] for parameter in parameters), out.strides[:-2])
    packed_b = b if isinstance(b, PackedMatrix) else None
    if packed_b is not None:
        kernel = packed_b.layout
    chosen = plan(a.shape, b.shape, out.shape, strides, budget(), kernel)
    block = chosen.kernel.block[2] * chosen.kernel.block[3]
    with scratch(
        (math.prod(chosen.a_shape), np.int16),
        (math.prod(chosen.a_shape[:2]), np.int64),
        (0 if packed_b else math.prod(chosen.b_shape), np.int16),
        (0 if packed_b else math.prod(chosen.b_shape[:2]), np.int64),
        (chosen.parts * block, np.int64),
    ) as (a_rows, a_sums, b_columns, b_sums, sums):
        a_rows, a_sums = a_rows.reshape(chosen.a_shape), a_sums.reshape(chosen.a_shape[:2])
        pack(a, a_rows, a_sums)
        if packed_b is not None:
            b_columns, b_sums = packed_b.columns, packed_b.sums
        else:
            b_columns, b_sums = b_columns.reshape(chosen.b_shape), b_sums.reshape(chosen.b_shape[:2])
            pack(b.swapaxes(-1, -2), b_columns, b_sums)  # type: ignore[union-attr]
        y, y_start = words(out, 1)
        limits = np.iinfo(out.dtype)
        # fmt: off
        chosen.kernel.kernel(
            chosen.parts, a_rows, a_sums, b_columns, b_sums, chosen.grid, chosen.batches, rows, columns, a.shape[-1],
            *(value for flat, _, step in parameters for value in (flat, step)),
            int(limits.min), int(limits.max), y, y_start, *out.strides[-2:],
            sums.reshape(chosen.parts, *chosen.kernel.block[2:]),
        )
        # fmt: on


def _by_row(parameter: Array | None, dtype: DTypeLike, batch: list[int], rows: int) -> _Parameter:
    """Return a parameter of shape (..., M, 1) or (..., 1, 1), as `dtype`; None is zero."""
    if parameter is None:
        parameter = np.zeros((1, 1), dtype)
    return _parameter(parameter[..., 0], dtype, batch, rows)


def _by_column(parameter: Array | None, dtype: DTypeLike, batch: list[int], columns: int) -> _Parameter:
    """Return a parameter of shape (..., 1, N) or (..., 1, 1), as `dtype`; None is zero."""
    if parameter is None:
        parameter = np.zeros((1, 1), dtype)
    return _parameter(parameter[..., 0, :], dtype, batch, columns)


def _parameter(parameter: Array, dtype: DTypeLike, batch: list[int], length: int) -> _Parameter:
    contiguous = np.ascontiguousarray(parameter, dtype)
    if not contiguous.flags.writeable:  # which would be another type to Numba, and compile everything once more
        contiguous = contiguous.copy()
    steps = word_strides(np.broadcast_to(contiguous, (*batch, length)), contiguous.itemsize)
    return contiguous.reshape(-1), steps[:-1], steps[-1]
