"""Vector operations on rows of tiles: they start accumulators, and write the results.

They are written as vectors because LLVM unrolls loops as short as a row into single elements. A row has NR columns;
LLVM cuts it to the target's vectors. Arrays have one dimension or two. An index counts elements, and is where a row
begins; no row needs alignment.
"""

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, WORD, constant, load, store, vector
from dmlcpu.runtime.intrinsics import address, splat

# Adding 1.5 * 2**23 to a float32 of at most 2**22 rounds it to an integer, ties to even, in any vector unit. The lowest
# byte of the sum is the lowest byte of the integer.
ROUND = 12582912.0
# The greatest float32 replaces an infinite multiplier, of scales whose product overflows: infinity times a sum of 0
# would be NaN, and this gives 0. Other sums are clipped either way.
GREATEST = float.fromhex("0x1.fffffep+127")


@intrinsic
def scale_int_row(_context, acc, at, factor, source, first):
    """Write factor * source[first : first + NR] to acc[at : at + NR]; all are int32, and wrap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, at, factor, _, first = arguments
        product = builder.mul(splat(builder, factor, NR), load(builder, place(3, first), NR))
        store(builder, product, place(0, at))
        return context.get_dummy_value()

    return types.void(acc, types.intp, types.int32, source, types.intp), generate


@intrinsic
def add_row(_context, acc, at, source, first):
    """Add source[first : first + NR] to acc[at : at + NR]; all are int32, and wrap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, at, _, first = arguments
        target = place(0, at)
        store(builder, builder.add(load(builder, target, NR), load(builder, place(2, first), NR)), target)
        return context.get_dummy_value()

    return types.void(acc, types.intp, source, types.intp), generate


@intrinsic
def subtract_product(_context, acc, at, factor, source, first):
    """Subtract factor * source[first : first + NR] from acc[at : at + NR]; all are int32, and wrap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, at, factor, _, first = arguments
        target = place(0, at)
        product = builder.mul(splat(builder, factor, NR), load(builder, place(3, first), NR))
        store(builder, builder.sub(load(builder, target, NR), product), target)
        return context.get_dummy_value()

    return types.void(acc, types.intp, types.int32, source, types.intp), generate


@intrinsic
def scale_row(_context, scales, first, a_scale, y_scale, multipliers, at):
    """Write a_scale * scale / y_scale, at most GREATEST, of the scales from `first` on to multipliers[at:].

    All are float32. The two arrays may be one. A product in float64 takes a third of a division's time, and rounds to
    the same float32: no quotient of two numbers of 24 bits is within 2**-49 of the middle between two others, and the
    product's error is 2**-52. (Below 2**-126 a quotient may be the middle, but no sum is large enough to show it.)
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, first, a_scale, y_scale, _, at = arguments
        scale = load(builder, place(0, first), NR)
        value = builder.fmul(splat(builder, a_scale, NR), scale)
        double = ir.DoubleType()
        reciprocal = builder.fdiv(double(1.0), builder.fpext(y_scale, double))
        value = builder.fmul(builder.fpext(value, vector(double, NR)), splat(builder, reciprocal, NR))
        value = builder.fptrunc(value, scale.type)
        greatest = constant(value.type, GREATEST)
        value = builder.select(builder.fcmp_ordered("<", greatest, value), greatest, value)
        store(builder, value, place(4, at))
        return context.get_dummy_value()

    number = types.float32
    return types.void(scales, types.intp, number, number, multipliers, types.intp), generate


@intrinsic
def requantize(_context, acc, rows, multipliers, first, step, least, most, zeros, y, at, y_step):
    """Write the bytes of rows of accumulators to y[at:], y_step apart: round(clip(float32(acc) * multiplier)) + zero.

    acc: int32 or float64, rows NR apart; multipliers: float32, from `first` on, rows `step` apart; for each row:
    least, most: float32, the limits; zeros: uint8. Limits are integers, so clipping before rounding equals clipping
    after.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, rows, _, first, step, _, _, _, _, at, y_step = arguments
        kind, number = vector(ir.FloatType(), NR), rows.type
        is_float = isinstance(signature.args[0].dtype, types.Float)
        with cgutils.for_range(builder, rows, intp=number) as loop:
            row = loop.index
            least, most, zero = (splat(builder, builder.load(place(array, row)), NR) for array in (5, 6, 7))
            exact = load(builder, place(0, builder.mul(row, number(NR))), NR)
            value = builder.fptrunc(exact, kind) if is_float else builder.sitofp(exact, kind)
            multiplier = load(builder, place(2, builder.add(first, builder.mul(row, step))), NR)
            value = builder.fmul(value, multiplier)
            value = builder.select(builder.fcmp_ordered(">", least, value), least, value)
            value = builder.select(builder.fcmp_ordered("<", most, value), most, value)
            rounded = builder.bitcast(builder.fadd(value, constant(kind, ROUND)), vector(WORD, NR))
            y_bytes = builder.add(builder.trunc(rounded, vector(BYTE, NR)), zero)
            store(builder, y_bytes, place(8, builder.add(at, builder.mul(row, y_step))))
        return context.get_dummy_value()

    index = types.intp
    return types.void(acc, index, multipliers, index, index, least, most, zeros, y, index, index), generate


@intrinsic
def store_row(_context, acc, at, y, first):
    """Write the NR sums from acc[at] on to y[first:]; acc: int32, or whole numbers as float64; y: int32, int64."""
    is_float = isinstance(acc.dtype, types.Float)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        sums, target = load(builder, place(0, arguments[1]), NR), place(2, arguments[3])
        wide = vector(ir.IntType(64), NR)
        sums = builder.fptosi(sums, wide) if is_float else builder.sext(sums, wide)
        store(builder, builder.trunc(sums, vector(target.type.pointee, NR)), target)
        return context.get_dummy_value()

    return types.void(acc, types.intp, y, types.intp), generate
