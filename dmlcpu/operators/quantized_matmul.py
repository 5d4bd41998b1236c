"""QUANTIZED_LINEAR_MATRIX_MULTIPLY: dequantize A and B, multiply, quantize; exact to the bit."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dmlcpu.kernels import registry
from dmlcpu.kernels.brief import Brief
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.work import (
    HEAD,
    Numbers,
    direct_cells,
    groups_of,
    left_cells,
    make_brief,
    panels_of,
    share_cells,
)
from dmlcpu.kernels.grid import make_grid
from dmlcpu.kernels.registry import Entry
from dmlcpu.operators.arguments import Array, check_apart, check_output
from dmlcpu.operators.packing import PackedMatrix, broadcast_strides, flip_to_signed, flip_to_unsigned, unpack
from dmlcpu.operators.quantization import check_matrix, common_batch, output_type, scale, zero_point
from dmlcpu.reference import quantized_matmul as reference_quantized_matmul
from dmlcpu.runtime.compilation import can_compile, in_python
from dmlcpu.runtime.memory import Workspace, first_word, second_level_cache, words
from dmlcpu.runtime.threads import Budget, budget

_log = logging.getLogger("dmlcpu")

_BYTE = np.dtype(np.uint8)
_ZERO, _NO_BYTES, _NO_CELLS = np.zeros(1, _BYTE), np.empty(0, _BYTE), np.empty(0, np.int64)
# Panels that are worked on together at most: more gain nothing, and what is kept of each column takes space.
_LARGEST_BLOCK = 32
# Bytes of a's rows that are kept packed from one block of columns to the next; more of them are packed every time.
_KEPT_LEFT = 4 << 20
# Bytes of the sums that a few rows are multiplied into: they stay near while B passes (16 KiB are slower, 256 alike).
_SUMS_OF_A_BLOCK = 64 << 10
# Into how many units the work of a thread is cut, so that a fast core can take what a slow one does not get to.
_UNITS = 4


class Layout(NamedTuple):
    """What a plan has to know of an array of bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


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
    brief: Brief  # what it is told
    workspace: Workspace


@functools.lru_cache(maxsize=1024)
def plan(
    a: Layout,
    b: Layout,
    out: Layout,
    parameters: tuple[tuple[int, ...] | None, ...],
    packed: bool,
    limits: Budget,
    kernel: str | None,
) -> Plan:
    """Choose the kernel and cut the work. parameters: the shapes of scales and zero points."""
    *batch, rows, columns = out.shape
    depth = a.shape[-1]
    strides = [broadcast_strides(shape or (), len(out.shape)) for shape in parameters]
    entry = _kernel_for(rows, columns, depth, b.strides[-1], packed, kernel)
    assert entry.product is not None
    cut_work = _cut_direct if entry.product.is_skinny else _cut
    batches = math.prod(batch)
    work = cut_work(entry, batches, rows, columns, depth, packed, limits)
    limits_of_y = np.iinfo(out.dtype)
    steps = [own[-2] or own[-1] for own in strides]
    numbers = Numbers(
        rows=rows,
        columns=columns,
        depth=depth,
        batches=batches,
        row_parts=work.row_parts,
        column_parts=work.column_parts,
        block=work.block,
        share=work.share,
        kept=work.kept,
        a_start=first_word(a.shape, a.strides),
        a_row=a.strides[-2],
        a_depth=a.strides[-1],
        a_flip=flip_to_unsigned(a.dtype),
        b_start=first_word(b.shape, b.strides),
        b_depth=b.strides[-2],
        b_column=b.strides[-1],
        b_flip=flip_to_signed(b.dtype),
        b_packed=packed,
        a_scale_step=steps[0],
        a_zero_step=steps[1],
        b_scale_step=steps[2],
        b_zero_step=steps[3],
        y_scale_step=steps[4],
        y_zero_step=steps[5],
        lowest=int(limits_of_y.min),
        highest=int(limits_of_y.max),
        y_start=first_word(out.shape, out.strides),
        y_row=out.strides[-2],
        y_column=out.strides[-1],
    )
    grid = make_grid(
        batch,
        _batch_strides(a, len(batch)),
        broadcast_strides(b.shape[:-2], len(batch)) if packed else _batch_strides(b, len(batch)),
        *[own[:-2] for own in strides],
        out.strides[:-2],
    )
    _log.debug("quantized_matmul: %s by %s: %s, %d parts", a.shape, b.shape, entry.name, work.threads)
    parts = work.threads
    return Plan(entry.kernel.for_parts(parts), parts, make_brief(numbers, grid), Workspace(HEAD + parts * work.share))


def _kernel_for(rows: int, columns: int, depth: int, column_step: int, packed: bool, name: str | None) -> Entry:
    """Return the kernel that suits a product best, or the one of that name if it can do it."""
    able = [
        entry
        for entry in registry.available("quantized_matmul", "dot")
        if name in (None, entry.name)
        and (entry.supports is None or (not packed and entry.supports(rows, columns, depth, column_step)))
    ]
    if not able:
        raise LookupError(f"no kernel {name} for this product on this machine")
    # Those for certain products come first.
    return max(able, key=lambda entry: (entry.supports is not None, entry.isa.rank))


class Cut(NamedTuple):
    """How the work is cut; see Numbers."""

    threads: int
    row_parts: int
    column_parts: int
    block: int
    kept: int
    share: int


def _cut(entry: Entry, batches: int, rows: int, columns: int, depth: int, packed: bool, limits: Budget) -> Cut:
    """Cut a product of packed operands."""
    assert entry.product is not None
    mr = entry.product.mr
    groups, tiles, panels = in_python(groups_of)(depth), -(-rows // mr), in_python(panels_of)(columns)
    reading = columns * depth // (48 if packed else 8)  # and packing, if it is not
    work = batches * (rows * columns * depth // entry.product.rate + reading + rows * depth // 8)
    threads = limits.parts(work, most=batches * tiles * panels)
    row_parts, column_parts = cut(batches, tiles, panels, threads, not packed)
    while threads > 1 and batches * row_parts * column_parts < _UNITS * threads and 2 * column_parts <= panels:
        column_parts *= 2
    column_block = second_level_cache() // 2 // max(1, 4 * groups * NR)
    block = max(1, min(column_block, _LARGEST_BLOCK, -(-panels // column_parts)))
    kept = -(-tiles // row_parts)
    if 8 * kept * in_python(left_cells)(groups, mr) > _KEPT_LEFT:
        kept = 1
    share = share_cells(depth, block, mr, kept, not packed)
    return Cut(min(threads, batches * row_parts * column_parts), row_parts, column_parts, block, kept, share)


def _cut_direct(_entry: Entry, batches: int, rows: int, columns: int, depth: int, _packed: bool, limits: Budget) -> Cut:
    """Cut a product of few rows by columns, and these into blocks whose sums stay in the nearest caches."""
    pairs = -(-columns // (2 * NR))
    threads = limits.parts(batches * columns * depth * (4 + rows) // 64, most=batches * pairs)
    column_parts = 1
    while threads > 1 and batches * column_parts < _UNITS * threads and 2 * column_parts <= pairs:
        column_parts *= 2
    most = _SUMS_OF_A_BLOCK // ((rows + 1) * 4 * 2 * NR)
    block = 2 * max(1, min(most, -(-pairs // column_parts)))
    return Cut(min(threads, batches * column_parts), 1, column_parts, block, 1, direct_cells(depth, block, rows))


def cut(batches: int, tiles: int, panels: int, threads: int, packs: bool) -> tuple[int, int]:
    """Return into how many parts to cut the rows and the columns of each product, so that all threads finish early.

    Parts of the rows each pack all columns of B again, if it is not packed.
    """

    def time(parts: tuple[int, int]) -> tuple[int, int]:
        units = batches * parts[0] * parts[1]
        rows, columns = -(-tiles // parts[0]), -(-panels // parts[1])
        return -(-units // threads) * columns * (rows + packs), units

    counts = [1]
    while counts[-1] < threads:
        counts.append(min(2 * counts[-1], threads))
    return min(
        ((rows, columns) for rows in counts for columns in counts if rows <= tiles and columns <= panels), key=time
    )


def _batch_strides(layout: Layout, ndim: int) -> tuple[int, ...]:
    """Return the strides of the batch dimensions when they are broadcast to so many."""
    own = layout.strides[:-2]
    pairs = zip(layout.shape, own, strict=False)
    return (0,) * (ndim - len(own)) + tuple(stride if size > 1 else 0 for size, stride in pairs)


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
    if not can_compile():
        plain = unpack(b) if isinstance(b, PackedMatrix) else b
        reference_quantized_matmul(
            a, a_scale, a_zero_point, plain, b_scale, b_zero_point, y_scale, y_zero_point, out_dtype=out.dtype, out=out
        )
        return
    parameters = (a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point)
    shapes = tuple([None if parameter is None else parameter.shape for parameter in parameters])
    a_layout, out_layout = Layout(a.shape, a.strides, a.dtype), Layout(out.shape, out.strides, out.dtype)
    packed = isinstance(b, PackedMatrix)
    b_layout = Layout(b.shape, (0,) * b.ndim if isinstance(b, PackedMatrix) else b.strides, b.dtype)
    chosen = plan(a_layout, b_layout, out_layout, shapes, packed, budget(), kernel)
    run(chosen, _bytes(a), *right(b), *[flat(parameter) for parameter in parameters], words(out, _BYTE))


def run(chosen: Plan, *arrays: Array) -> None:
    """Run a plan on what the kernel reads and writes, all of it flat; see the kernel for their order."""
    with chosen.workspace as scratch:
        scratch[0] = 0  # no unit of the work has been taken
        chosen.run(0, chosen.parts, *arrays, chosen.brief, scratch)


def _bytes(matrix: Array) -> Array:
    return words(matrix, _BYTE) if matrix.size else _NO_BYTES


def right(b: Array | PackedMatrix) -> tuple[Array, Array, Array]:
    """Return what the kernel reads of a right operand: its bytes, or its panels and the sums of its columns."""
    return (_NO_BYTES, b.panels, b.sums) if isinstance(b, PackedMatrix) else (_bytes(b), _NO_CELLS, _NO_CELLS)


def flat(parameter: Array | None) -> Array:
    """Return an operand's numbers behind one another: of scales float32, of others bytes; None is zero."""
    if parameter is None:
        return _ZERO
    numbers = np.ascontiguousarray(parameter).ravel()
    if not numbers.flags.writeable:
        numbers = numbers.copy()  # kernels are compiled for arrays that can be written to
    return numbers if numbers.dtype == np.float32 else numbers.view(_BYTE)
