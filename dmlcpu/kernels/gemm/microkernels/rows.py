"""Vector operations on rows of tiles: they start accumulators, and write the results.

They are written as vectors because LLVM unrolls a loop as short as a row into single elements. A row has NR columns;
LLVM cuts it to the target's vectors. Arrays have one or two dimensions. A row begins at an index, which counts
elements; no row needs alignment.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, HALF, WORD, constant, vector
from dmlcpu.runtime.intrinsics import emitted, short_loop, splat

# Adding 1.5 * 2**23 to a float32 of at most 2**22 rounds it to an integer, ties to even, in any vector unit. The lowest
# byte of the sum is the lowest byte of the integer.
ROUND = 12582912.0
# If the product of scales overflows, the greatest float32 replaces the infinite multiplier: a sum of 0 then gives 0,
# not NaN. Other sums are clipped either way.
GREATEST = float.fromhex("0x1.fffffep+127")
QUIET_NAN = 0x7FC00000  # as float32, without sign and payload


@emitted
def add_product(builder, acc, at, factor: types.int32, source, first):
    """Add factor * source[first : first + NR] to acc[at : at + NR]; all are int32, and wrap."""
    product = builder.mul(splat(builder, factor, NR), source.load(first, NR))
    acc.store(builder.add(acc.load(at, NR), product), at)


@emitted
def load_scales(builder, source, target):
    """Write the elements of a `Strided` to target[:count]."""
    with short_loop(builder, source.count) as i:
        builder.store(builder.load(source.at(builder, i)), target.at(i))


@emitted
def scale_row(builder, scales, first, a_scale: types.float32, y_scale: types.float32, multipliers, at):
    """Write a_scale * scale / y_scale, at most GREATEST, of the scales from `first` on to multipliers[at:].

    All are float32. Both arrays may be the same. A product in float64 takes a third of a division's time, and rounds to
    the same float32: no quotient of two numbers of 24 bits is within 2**-49 of the middle between two such numbers, and
    the product's error is 2**-52. (Below 2**-126 a quotient may be the middle, but no sum is large enough to show it.)
    """
    scale, double = scales.load(first, NR), ir.DoubleType()
    value = builder.fmul(splat(builder, a_scale, NR), scale)
    reciprocal = builder.fdiv(double(1.0), builder.fpext(y_scale, double))
    value = builder.fmul(builder.fpext(value, vector(double, NR)), splat(builder, reciprocal, NR))
    value = builder.fptrunc(value, scale.type)
    greatest = constant(value.type, GREATEST)
    multipliers.store(builder.select(builder.fcmp_ordered("<", greatest, value), greatest, value), at)


@emitted
def requantize(builder, acc, multipliers, least, most, zeros, y):
    """Write round(clip(float32(acc) * multiplier)) + zero of rows of accumulators to rows of y, as bytes.

    acc: int32 or float64, rows NR apart; multipliers, y: Strided, float32 and bytes; for each row: least, most:
    float32, the limits; zeros: uint8. Limits are integers, so clipping before rounding equals clipping after.
    """
    kind = vector(ir.FloatType(), NR)
    with short_loop(builder, y.count) as row:
        lowest, highest, zero = (splat(builder, builder.load(each.at(row)), NR) for each in (least, most, zeros))
        exact = acc.load(builder.mul(row, row.type(NR)), NR)
        value = builder.sitofp(exact, kind) if acc.element == WORD else builder.fptrunc(exact, kind)
        value = builder.fmul(value, multipliers.array.load(multipliers.place(builder, row), NR))
        value = builder.select(builder.fcmp_ordered(">", lowest, value), lowest, value)
        value = builder.select(builder.fcmp_ordered("<", highest, value), highest, value)
        rounded = builder.bitcast(builder.fadd(value, constant(kind, ROUND)), vector(WORD, NR))
        y_bytes = builder.add(builder.trunc(rounded, vector(BYTE, NR)), zero)
        y.array.store(y_bytes, y.place(builder, row))


@emitted
def copy_bytes(builder, source, first, y, at, count):
    """Copy source[first : first + count] to y[at:]; both are bytes. Numba's loop would copy one at a time."""
    cgutils.raw_memcpy(builder, y.at(at), source.at(first), count, 1)


@emitted
def copy_elements(builder, source, y):
    """Copy the elements of a `Strided` to another."""
    with short_loop(builder, source.count) as i:
        builder.store(builder.load(source.at(builder, i)), y.at(builder, i))


@emitted
def multiply_row(builder, source, first, factor: Any, products, at):
    """Write factor * source[first : first + NR] to products[at:]; all are float32, or all int32. Arrays may be one."""
    multiply = builder.mul if source.element == WORD else builder.fmul
    products.store(multiply(splat(builder, factor, NR), source.load(first, NR)), at)


@emitted
def store_floats(builder, acc, multipliers, bias, y):
    """Write float32(acc) * multiplier + bias of rows of accumulators to y: float32, or the bits of float16 as uint16.

    acc: int32 or float64, rows NR apart; multipliers, bias, y: rows, Strided; the first two are float32; each operation
    rounds. NaN is written as QUIET_NAN.
    """
    kind = vector(ir.FloatType(), NR)
    with short_loop(builder, y.count) as row:
        exact = acc.load(builder.mul(row, row.type(NR)), NR)
        value = builder.sitofp(exact, kind) if acc.element == WORD else builder.fptrunc(exact, kind)
        value = builder.fmul(value, multipliers.array.load(multipliers.place(builder, row), NR))
        value = builder.fadd(value, bias.array.load(bias.place(builder, row), NR))
        bits = builder.bitcast(value, vector(WORD, NR))
        bits = builder.select(builder.fcmp_unordered("uno", value, value), constant(bits.type, QUIET_NAN), bits)
        result = _half_bits(builder, bits) if y.array.element == HALF else builder.bitcast(bits, kind)
        y.array.store(result, y.place(builder, row))


def _half_bits(builder: Any, bits: Any) -> Any:
    """Return the bits of the float16 for a float32's bits, rounded half to even. NaN is QUIET_NAN.

    It uses integers, because not every processor has an instruction for this.
    """
    words = bits.type

    def number(value: int) -> Any:
        return constant(words, value)

    sign = builder.and_(bits, number(0x80000000))
    size = builder.xor(bits, sign)
    # The exponent counts from 15 instead of 127. Adding just less than half of the cut-off unit rounds; if the last bit
    # that stays is odd, exactly half is added.
    odd = builder.and_(builder.lshr(size, number(13)), number(1))
    half = builder.add(builder.add(size, number(0xFFF - (112 << 23))), odd)
    half = builder.lshr(half, number(13))
    # Below 2**-14 float16 counts in units of 2**-24, as float32 does from 0.5 on.
    tiny = builder.fadd(builder.bitcast(size, vector(ir.FloatType(), NR)), constant(vector(ir.FloatType(), NR), 0.5))
    tiny = builder.sub(builder.bitcast(tiny, words), number(0x3F000000))
    half = builder.select(builder.icmp_signed("<", size, number(113 << 23)), tiny, half)
    half = builder.select(builder.icmp_signed(">=", size, number(143 << 23)), number(0x7C00), half)
    half = builder.select(builder.icmp_signed(">", size, number(255 << 23)), number(0x7E00), half)
    return builder.trunc(builder.or_(half, builder.lshr(sign, number(16))), vector(HALF, NR))


@emitted
def store_rows(builder, acc, y):
    """Write rows of NR sums to the rows of y; acc: int32, or whole numbers as float64; y: Strided, int32 or int64."""
    wide = vector(ir.IntType(64), NR)
    with short_loop(builder, y.count) as row:
        sums = acc.load(builder.mul(row, row.type(NR)), NR)
        sums = builder.sext(sums, wide) if acc.element == WORD else builder.fptosi(sums, wide)
        y.array.store(builder.trunc(sums, vector(y.array.element, NR)), y.place(builder, row))


@emitted
def store_elements(builder, acc, at, y):
    """Write the sums from acc[at] on as `store_rows` does, to the elements of y."""
    with short_loop(builder, y.count) as i:
        value, wide = builder.load(acc.at(builder.add(at, i))), ir.IntType(64)
        value = builder.sext(value, wide) if acc.element == WORD else builder.fptosi(value, wide)
        element = y.array.element
        builder.store(value if element == wide else builder.trunc(value, element), y.at(builder, i))
