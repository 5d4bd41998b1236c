"""quantized_matmul in compiled code: two matrices, one thread; small matrices are packed on the stack."""

import functools
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload, register_jitable
from numba.np.numpy_support import as_dtype

from dmlcpu.common.arguments import check_type
from dmlcpu.common.data_types import BYTE_TYPES, DATA_TYPES
from dmlcpu.interop.numba.calls import PART, PARTS, caller_of, stack_of, tuple_of, write_record
from dmlcpu.interop.numba.refusals import (
    STACK,
    RefusalError,
    array_type,
    constant,
    is_given,
    output_type,
    refusal,
    share_memory,
    typed,
)
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.cut import SKINNY_SUMS, cut_skinny, cut_tiles, fits_few_rows, fixed_cells
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR
from dmlcpu.kernels.gemm.work import COUNTER, NARROW, SHARES, WORK, WORK_CELLS, groups_of, panels_of
from dmlcpu.operators.quantized_matmul.function import quantized_matmul
from dmlcpu.products.arguments import PARAMETERS, type_of_bytes
from dmlcpu.products.packing import lhs_sign_flip, rhs_sign_flip
from dmlcpu.runtime.intrinsics import address_of, as_words, either
from dmlcpu.runtime.jit import OWN_OPTIONS, device
from dmlcpu.runtime.memory import second_level_cache
from dmlcpu.runtime.records import CACHE_LINE, CELL
from dmlcpu.runtime.variants import variant

_record_on_stack, _numbers_on_stack = stack_of(WORK_CELLS), stack_of(CACHE_LINE // CELL)
_scratch_on_stack = stack_of(STACK)
_LINE_CELLS, Work = CACHE_LINE // CELL, tuple_of(WORK)
_CACHE, _HIGHEST = second_level_cache(), np.uint64(np.iinfo(np.int64).max)


_product: Any = None  # `compiled_multiply` replaces these names
_skinny: Any = None
_has_forms = False


@device
def cut(rows, depth, columns):
    """Return whether to take the skinny kernel, and the cut of the work, which fits the stack if possible."""
    if fits_few_rows(rows, columns, depth, 1):
        room = CELL * (STACK - SHARES - fixed_cells(rows, depth)) - (rows + 1) * 4 * NR
        return True, cut_skinny(rows, columns, depth, 1, min(SKINNY_SUMS, room))
    return False, cut_tiles(rows, columns, depth, MR, 1, 1, False, _has_forms, _CACHE)


@device
def fill(works, sizes, counts, options, own):
    """Write the work record of contiguous matrices."""
    rows, depth, columns = sizes
    a_sign_flip, b_sign_flip, lowest, highest = options
    a_scale, a_zero, b_scale, b_zero, y_scale, y_zero = counts
    same_a_zero, same_multiplier = a_zero <= 1, a_scale <= 1 and y_scale <= 1
    same_rows, same_start = same_a_zero and same_multiplier and y_zero <= 1, same_a_zero and 0 < depth <= NARROW
    matrix = (0, columns, 1, (0,))
    write_record(works, WORK, Work(  # Numba cannot compile a branch within this many keywords
        M=rows, N=columns, K=depth, groups=groups_of(depth), row_words=own.row_words, panels=panels_of(columns),
        tasks=1, run=1, row_parts=1, column_parts=1,
        NC=own.NC, slots=own.slots, keeps_rows=own.keeps_rows, share_cells=own.share_cells, is_wide=depth > NARROW,
        same_a_zero=same_a_zero, same_multiplier=same_multiplier, same_rows=same_rows, same_start=same_start,
        a_sign_flip=a_sign_flip, b_sign_flip=b_sign_flip, b_is_packed=0, is_exact=0, lowest=lowest, highest=highest,
        walk=(1, (1,)), a=(0, depth, 1, (0,)), b=matrix, y=matrix, y_bias=(0, 0, 0, (0,)),
        # The step from row to row, or column to column: 1 if there are several numbers.
        a_scale=(a_scale > 1, (0,)), b_scale=(b_scale > 1, (0,)), y_scale=(y_scale > 1, (0,)),
        a_zero=(a_zero > 1, (0,)), b_zero=(b_zero > 1, (0,)), y_zero=(y_zero > 1, (0,)),
    ))  # fmt: skip


def multiply(a, b, scales, zeros, y, sizes, numbers, counts, options, spare):
    """Multiply bytes on one thread; return 0, or the cells of the workspace that it lacks.

    scales, zeros: flat arrays of a, b and y; numbers: scales and zeros that are single numbers; counts: sizes of the
    arrays in the kernels' order, -1 for a number; options: see `fill`; spare: a workspace, empty if the stack has room.
    """
    rows, depth, columns = sizes
    if rows * columns == 0:
        return np.int64(0)
    is_skinny, own = cut(rows, depth, columns)
    cells = SHARES + own.share_cells
    if cells > STACK and cells + _LINE_CELLS > spare.size:
        return np.int64(cells + _LINE_CELLS)
    works, cells_of_numbers = _record_on_stack(), _numbers_on_stack()
    fill(works, sizes, counts, options, own)
    scratch = either(cells > STACK, spare, -address_of(spare, 0) // CELL % _LINE_CELLS, _scratch_on_stack())
    scratch[COUNTER] = 0
    floats, bytes_ = as_words(cells_of_numbers, 0, np.float32), as_words(cells_of_numbers, _LINE_CELLS // 2, np.uint8)
    floats[0], floats[1], floats[2], bytes_[0], bytes_[1], bytes_[2] = numbers
    a_scale, b_scale = either(counts[0] > 0, scales[0], 0, floats), either(counts[2] > 0, scales[1], 0, floats[1:])
    a_zero, b_zero = either(counts[1] > 0, zeros[0], 0, bytes_), either(counts[3] > 0, zeros[1], 0, bytes_[1:])
    y_scale, y_zero = either(counts[4] > 0, scales[2], 0, floats[2:]), either(counts[5] > 0, zeros[2], 0, bytes_[2:])
    none = as_words(works, 0, np.int64)  # b is not packed
    bias = floats  # not read by quantized_matmul
    if is_skinny:
        _skinny(
            PART, PARTS, a, b, none, none, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, bias, y, works, scratch
        )
    else:
        _product(
            PART, PARTS, a, b, none, none, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, bias, y, works, scratch
        )
    return np.int64(0)


def signature(bytes_):
    """Return the types of the arguments of `multiply`."""
    number, floats = types.int64, types.Array(types.float32, 1, "C")
    scales, zeros = types.UniTuple(floats, 3), types.UniTuple(bytes_, 3)
    numbers = types.Tuple((*[types.float32] * 3, *[types.uint8] * 3))
    sizes, counts, options = (types.UniTuple(number, count) for count in (3, 6, 4))
    spare = types.Array(number, 1, "C")
    return bytes_, bytes_, scales, zeros, bytes_, sizes, numbers, counts, options, spare


@functools.cache
def compiled_multiply():
    """Return `multiply` with the kernels for this processor."""
    rows = registry.available("quantized_matmul", "dot")  # the highest instruction set comes first
    tiles = next(row for row in rows if not row.is_skinny and row.mr == MR)  # not AMX, which needs too much stack
    skinny = next(row for row in rows if row.is_skinny)
    names = {"_product": tiles.kernel.share, "_skinny": skinny.kernel.share, "_has_forms": tiles.has_forms}
    return variant(multiply, "multiply", **names).share


OFFERS = {"multiply": compiled_multiply}


@register_jitable(**OWN_OPTIONS)
def check_parameters(lengths, counts, scales, factors, zeros, limits):
    """Refuse bad scales and zero points of a, b and y. lengths: of their arrays, which may also have one element."""
    for i in range(3):
        check_count(2 * i, counts[2 * i], lengths[i])
        for j in range(abs(counts[2 * i])):
            value = scales[i][j] if counts[2 * i] >= 0 else factors[i]
            if not (value > 0 and value - value == 0):
                raise RefusalError("scale", 2 * i, j, counts[2 * i], value)
        check_count(2 * i + 1, counts[2 * i + 1], lengths[i])
        if zeros[i] < limits[i][0] or zeros[i] > limits[i][1]:
            raise RefusalError("zero", 2 * i + 1, zeros[i], limits[i][0])


@register_jitable(**OWN_OPTIONS)
def check_count(parameter, count, length):
    """Refuse an array of neither 1 nor `length` elements. count: -1 for a number."""
    if count not in (-1, 1, length):
        raise RefusalError("length", parameter, count, length)


@register_jitable(**OWN_OPTIONS)
def check_output(out, shape, matrices, counts, scales, zeros):
    """Refuse an output of another shape, or that shares memory with an operand."""
    if out.shape != shape:
        raise RefusalError("shape", "quantized_matmul", "out", out.shape, shape)
    if share_memory(out, matrices[0]):
        raise RefusalError("shared", "quantized_matmul", "out", "a")
    if share_memory(out, matrices[1]):
        raise RefusalError("shared", "quantized_matmul", "out", "b")
    for i in range(3):
        if counts[2 * i] > 0 and share_memory(out, scales[i]):
            raise RefusalError("parameter", 2 * i)
        if counts[2 * i + 1] > 0 and share_memory(out, zeros[i]):
            raise RefusalError("parameter", 2 * i + 1)


def operand(value, other, word):
    """Return an array's size, its words, and 0; for a number or None -1, the words of `other`, and the number or 0."""


@overload(operand, jit_options=OWN_OPTIONS)
def _operand(value, other, word):
    is_scale = word.dtype == types.float32
    if isinstance(value, types.Array):
        zero = np.float32(0) if is_scale else np.int64(0)
        return lambda value, other, word: (value.size, as_words(value, 0, word), zero)
    if is_scale:
        return lambda value, other, word: (-1, as_words(other, 0, word), np.float32(value))
    if value == types.uint64:  # what int64 does not hold is too large in any case
        return lambda value, other, word: (-1, as_words(other, 0, word), np.int64(min(value, _HIGHEST)))
    if isinstance(value, types.Number):
        return lambda value, other, word: (-1, as_words(other, 0, word), np.int64(value))
    return lambda value, other, word: (-1, as_words(other, 0, word), np.int64(0))


def _scale_type(field, given):
    if isinstance(given, types.Number) and not isinstance(given, types.Complex):
        return
    if array_type("quantized_matmul", field, given) != np.float32 or given.ndim > 1:
        allowed = "a number, or an array of float32 of one dimension, in compiled code"
        raise refusal("quantized_matmul", field, given, allowed)


def _zero_type(field, given, dtype):
    """Refuse an argument that is not a zero point for a tensor of this type."""
    if not is_given(given):
        return
    found = as_dtype(types.unliteral(given)) if isinstance(given, types.Integer) else None
    if found is None:
        found = array_type("quantized_matmul", field, given)
        if given.ndim > 1:
            raise refusal("quantized_matmul", f"{field}.ndim", given.ndim, "0 or 1, in compiled code")
    elif found.name not in BYTE_TYPES:
        return
    if found != dtype:
        raise refusal("quantized_matmul", f"{field}.dtype", found, f"{dtype} (its tensor's type)")


def _result_type(out_dtype, y_zero_point, default):
    """Return the type of the product: `out_dtype`, else the zero point's, else the default."""
    element = types.unliteral(getattr(y_zero_point, "dtype", y_zero_point)) if is_given(y_zero_point) else None
    zeros = np.empty(0, as_dtype(element)) if element in (types.int8, types.uint8) else None
    asked = constant("quantized_matmul", "out_dtype", out_dtype)
    return typed(type_of_bytes, "quantized_matmul", asked, zeros, default)


@overload(quantized_matmul, prefer_literal=True, jit_options=OWN_OPTIONS)
def _quantized_matmul(
    a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, out_dtype=None, out=None
):
    """Return quantized_matmul for arguments of these types. Numba has no arguments that are passed by keyword only."""
    dtypes = {field: array_type("quantized_matmul", field, each) for field, each in (("a", a), ("b", b))}
    for field, each in (("a", a), ("b", b)):
        typed(check_type, "quantized_matmul", field, dtypes[field], BYTE_TYPES)
        if each.ndim != 2:
            raise refusal("quantized_matmul", f"{field}.ndim", each.ndim, "2, in compiled code")
    dtypes["y"] = _result_type(out_dtype, y_zero_point, dtypes["a"])
    given = (a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point)
    for name, each in zip(PARAMETERS, given, strict=True):
        if name.endswith("scale"):
            _scale_type(name, each)
        else:
            _zero_type(name, each, dtypes[name[0]])
    if is_given(out):
        output_type("quantized_matmul", "out", out, 2, dtypes["y"])
    return _implementation(dtypes["a"], dtypes["b"], dtypes["y"], is_given(out))


def _implementation(a_type, b_type, y_type, has_out):
    scalar, rows = y_type.type, [DATA_TYPES[dtype.name] for dtype in (a_type, b_type, y_type)]
    limits = tuple([(np.int64(row.lowest), np.int64(row.highest)) for row in rows])
    options = (np.int64(lhs_sign_flip(a_type)), np.int64(rhs_sign_flip(b_type)), *limits[2])
    multiply_bytes = caller_of("quantized_matmul", "multiply", np.dtype(np.uint8))

    def implementation(
        a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, out_dtype=None, out=None
    ):
        rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
        if b.shape[0] != depth:
            raise RefusalError("depth", a.shape, b.shape)
        a_scales, a_floats, a_factor = operand(a_scale, a, np.float32)
        a_zeros, a_bytes, a_zero = operand(a_zero_point, a, np.uint8)
        b_scales, b_floats, b_factor = operand(b_scale, a, np.float32)
        b_zeros, b_bytes, b_zero = operand(b_zero_point, a, np.uint8)
        y_scales, y_floats, y_factor = operand(y_scale, a, np.float32)
        y_zeros, y_bytes, y_zero = operand(y_zero_point, a, np.uint8)
        counts = (a_scales, a_zeros, b_scales, b_zeros, y_scales, y_zeros)
        scales, zeros = (a_floats, b_floats, y_floats), (a_bytes, b_bytes, y_bytes)
        factors, points = (a_factor, b_factor, y_factor), (a_zero, b_zero, y_zero)
        check_parameters((rows, columns, rows), counts, scales, factors, points, limits)
        matrices = (as_words(a, 0, np.uint8), as_words(b, 0, np.uint8))
        if has_out:
            check_output(out, (rows, columns), matrices, counts, scales, zeros)
        y = out if has_out else np.empty((rows, columns), scalar)
        numbers = (*factors, np.uint8(a_zero), np.uint8(b_zero), np.uint8(y_zero))
        given = (*matrices, scales, zeros, as_words(y, 0, np.uint8), (rows, depth, columns), numbers, counts, options)
        cells = multiply_bytes((*given, as_words(y, 0, np.int64)[:0]))
        if cells > 0:
            multiply_bytes((*given, np.empty(cells, np.int64)))
        return y

    return implementation
