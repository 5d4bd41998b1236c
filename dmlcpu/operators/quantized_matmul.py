"""QUANTIZED_LINEAR_MATRIX_MULTIPLY: dequantize A and B, multiply, quantize; exact to the bit."""

import functools
import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.kernels import registry
from dmlcpu.kernels.grid import Grid, flatten, make_grid
from dmlcpu.operators.arguments import Array, check_apart, check_output
from dmlcpu.operators.packing import PackedMatrix, broadcast_strides, pack, packed_shape
from dmlcpu.operators.quantization import (
    check_matrix,
    common_batch,
    output_type,
    scale,
    zero_point,
)
from dmlcpu.runtime.memory import C_CONTIGUOUS, WRITEABLE, borrow, first_word, give_back, words
from dmlcpu.runtime.threads import Budget, budget

_log = logging.getLogger("dmlcpu")

_Piece = tuple[int, int, np.dtype[Any], tuple[int, ...]]  # of scratch: the first cell, the end, type and shape

_BYTE = np.dtype(np.uint8)
_SCALE, _ZERO_POINT = np.dtype(np.float32), np.dtype(np.int32)
_PARAMETER_TYPES = (_SCALE, _ZERO_POINT) * 3
_ZERO = np.zeros(1, _ZERO_POINT)
_FLAT = C_CONTIGUOUS | WRITEABLE


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
    """How one set of shapes and layouts is worked on."""

    run: Callable[..., Any]  # the kernel, to be called with (0, parts, ...)
    parts: int
    sizes: tuple[Grid, int, int, int, int]  # the product's batches with the strides of everything, how many, M, N, K
    steps: tuple[int, ...]  # of the parameters, along rows or columns
    y: tuple[int, ...]  # the lowest number and the highest, where y starts, its strides
    pieces: tuple[_Piece, ...]  # of the scratch: packed a and its sums, b and its sums if it is to be packed, products
    scratch: int  # cells


@functools.lru_cache(maxsize=1024)
def plan(
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    out_strides: tuple[int, ...],
    dtype: np.dtype[Any],
    parameters: tuple[tuple[int, ...] | None, ...],
    packs_b: bool,
    limits: Budget,
    kernel: str | None,
) -> Plan:
    """Choose the kernel and cut the work. parameters: the shapes of scales and zero points."""
    entry = registry.find("quantized_matmul", "dot", kernel)
    tile_m, tile_n, block_m, block_n = entry.block
    *batch, rows, columns = out_shape
    depth = a_shape[-1]
    a_packed = packed_shape(a_shape, tile_m)
    b_packed = packed_shape((*b_shape[:-2], columns, depth), tile_n)
    batches = math.prod(batch)
    blocks = batches * -(-rows // block_m) * -(-columns // block_n)
    parts = limits.parts(work=batches * rows * columns * depth // 16, most=blocks)
    strides = [broadcast_strides(shape or (), len(out_shape)) for shape in parameters]
    shapes = [(a_packed, np.int16), (a_packed[:2], np.int64)]
    shapes += [(b_packed, np.int16), (b_packed[:2], np.int64)] if packs_b else []
    pieces, cells = _pieces(*shapes, ((parts, block_m, block_n), np.int64))
    limits_of_y = np.iinfo(dtype)
    grid = make_grid(
        batch,
        broadcast_strides(a_shape[:-2], len(batch)),
        broadcast_strides(b_shape[:-2], len(batch)),
        *[own[:-2] for own in strides],
        out_strides[:-2],
    )
    _log.debug("quantized_matmul: %s by %s: %s, %d parts", a_shape, b_shape, entry.name, parts)
    return Plan(
        run=entry.kernel.for_parts(parts),
        parts=parts,
        sizes=(flatten(grid), batches, rows, columns, depth),
        steps=tuple(own[-2] or own[-1] for own in strides),
        y=(int(limits_of_y.min), int(limits_of_y.max), first_word(out_shape, out_strides), *out_strides[-2:]),
        pieces=pieces,
        scratch=cells,
    )


def _pieces(*requests: tuple[tuple[int, ...], Any]) -> tuple[tuple[_Piece, ...], int]:
    """Cut scratch into pieces of these shapes and types, each on a 64-byte boundary; return them and the cells."""
    pieces = []
    start = 0
    for shape, dtype in requests:
        length = math.prod(shape) * np.dtype(dtype).itemsize // 8  # packed rows are whole cells
        pieces.append((start, start + length, np.dtype(dtype), shape))
        start += -(-length // 8) * 8
    return tuple(pieces), start


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
    packed_b = b if isinstance(b, PackedMatrix) else None
    parameters = (a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point)
    shapes = tuple([None if parameter is None else parameter.shape for parameter in parameters])
    if packed_b is not None:
        kernel = packed_b.layout
    chosen = plan(a.shape, b.shape, out.shape, out.strides, out.dtype, shapes, packed_b is None, budget(), kernel)
    scratch = borrow(chosen.scratch)
    try:
        a_rows, a_sums, *packed, sums = [
            scratch[start:end].view(dtype).reshape(shape) for start, end, dtype, shape in chosen.pieces
        ]
        pack(a, a_rows, a_sums)
        if packed_b is not None:
            packed = [packed_b.columns, packed_b.sums]
        else:
            pack(b.swapaxes(-1, -2), *packed)  # type: ignore[union-attr]
        numbers = [_flat(parameter, dtype) for parameter, dtype in zip(parameters, _PARAMETER_TYPES, strict=True)]
        lowest, highest, *y_places = chosen.y
        # fmt: off
        chosen.run(
            0, chosen.parts, a_rows, a_sums, *packed, *chosen.sizes,
            *itertools.chain.from_iterable(zip(numbers, chosen.steps, strict=True)),
            lowest, highest, words(out, _BYTE), *y_places, sums,
        )
        # fmt: on
    finally:
        give_back(scratch)


def _flat(parameter: Array | None, dtype: np.dtype[Any]) -> Array:
    """Return a parameter's numbers as the kernel reads them; None is zero."""
    if parameter is None:
        return _ZERO
    if parameter.dtype is dtype and parameter.flags.num & _FLAT == _FLAT:
        return parameter.ravel()
    return parameter.astype(dtype, order="C").ravel()
