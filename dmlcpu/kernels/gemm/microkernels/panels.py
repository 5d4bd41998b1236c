"""Vector operations on rows of panels: what happens to the operands of a product before, and to its sums after it.

They are written out because LLVM unrolls loops as short as a row into single elements. A row has NR columns; LLVM
cuts it into the vectors the target has. Arrays are flat, and an index into one says where a row begins.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.kernels.gemm.microkernels.dot import NR, load
from dmlcpu.runtime.intrinsics import address, emit_prefetch, splat

_BYTE, _WORD = ir.IntType(8), ir.IntType(32)
STEP = 16  # words of a left row at a time

# How many bytes ahead of its use a row of b is asked for: rows lie far apart, and processors do not foresee such jumps.
# Measured on 4096 x 4096, ms: none 4.0, 32 bytes 3.9, 64 bytes 2.8, 128 bytes 3.3.
AHEAD = 64

# Adding 1.5 * 2**23 to a float32 of at most 2**22 rounds it to an integer, ties to even, in any vector unit; the lowest
# byte of the sum is that of the integer.
ROUND = 12582912.0
# Scales whose product overflows would make a multiplier infinite, and then zero times it NaN; the greatest float32
# makes zero of zero, and of everything else what is clipped anyway.
GREATEST = float.fromhex("0x1.fffffep+127")


def _load(builder: Any, place: Any, lanes: int) -> Any:
    """Emit the load of elements that need no alignment."""
    return load(builder, place, lanes, 1)


def _store(builder: Any, value: Any, place: Any) -> None:
    builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=1)


def _numbers(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)


@intrinsic
def start_row(_context, cells, row, factor, first):
    """Write factor * cells[first : first + NR] to the row that begins at cells[row]; all are int32, and wrap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, row, factor, first = arguments
        others = _load(builder, address(context, builder, signature, arguments, 0, first), NR)
        product = builder.mul(splat(builder, factor, NR), others)
        _store(builder, product, address(context, builder, signature, arguments, 0, row))
        return context.get_dummy_value()

    return types.void(cells, types.intp, types.int32, types.intp), generate


@intrinsic
def add_row(_context, cells, row, first):
    """Add cells[first : first + NR] to the row that begins at cells[row]; all are int32, and wrap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, others = (address(context, builder, signature, arguments, 0, index) for index in arguments[1:])
        _store(builder, builder.add(_load(builder, place, NR), _load(builder, others, NR)), place)
        return context.get_dummy_value()

    return types.void(cells, types.intp, types.intp), generate


@intrinsic
def subtract_product(_context, tile, row, factor, numbers, first):
    """Subtract factor * numbers[first : first + NR] from a row of a tile; all are int32, and wrap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, row, factor, _, first = arguments
        place = address(context, builder, signature, arguments, 0, row)
        others = _load(builder, address(context, builder, signature, arguments, 3, first), NR)
        product = builder.mul(splat(builder, factor, NR), others)
        _store(builder, builder.sub(_load(builder, place, NR), product), place)
        return context.get_dummy_value()

    return types.void(tile, types.intp, types.int32, numbers, types.intp), generate


@intrinsic
def scale_row(_context, scales, first, a_scale, y_scale, multipliers, place):
    """Write a_scale * scale / y_scale, at most GREATEST, of the scales from `first` on to multipliers[place:].

    All are float32. The two arrays may be one. A product in float64 takes a third of a division's time, and rounds to
    what that gives: two numbers of 24 bits have no quotient within 2**-49 of the middle between two others, and it is
    wrong by 2**-52. (Below 2**-126 the middle may be met, but there no sum is large enough to show it.)
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, first, a_scale, y_scale, _, place = arguments
        scale = _load(builder, address(context, builder, signature, arguments, 0, first), NR)
        value = builder.fmul(splat(builder, a_scale, NR), scale)
        double = ir.DoubleType()
        reciprocal = builder.fdiv(double(1.0), builder.fpext(y_scale, double))
        value = builder.fmul(builder.fpext(value, ir.VectorType(double, NR)), splat(builder, reciprocal, NR))
        value = builder.fptrunc(value, scale.type)
        greatest = _numbers(value.type, GREATEST)
        value = builder.select(builder.fcmp_ordered("<", greatest, value), greatest, value)
        _store(builder, value, address(context, builder, signature, arguments, 4, place))
        return context.get_dummy_value()

    number = types.float32
    return types.void(scales, types.intp, number, number, multipliers, types.intp), generate


@intrinsic
def requantize(_context, sums, rows, multipliers, first, step, least, most, zeros, y, place, y_step):
    """Write the bytes of rows of sums to y[place:], y_step apart: round(clip(float32(sum) * multiplier)) + zero.

    sums: int32 or float64, rows NR apart; multipliers: float32, from `first` on, rows `step` apart; of each row:
    least, most: float32, the limits; zeros: uint8. Limits are integers, so clipping before rounding is clipping after.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def load(array: int, index: Any) -> Any:
            return _load(builder, address(context, builder, signature, arguments, array, index), NR)

        def copies(array: int, index: Any) -> Any:
            return splat(builder, builder.load(address(context, builder, signature, arguments, array, index)), NR)

        _, rows, _, first, step, _, _, _, _, place, y_step = arguments
        kind, number = ir.VectorType(ir.FloatType(), NR), rows.type
        floating = isinstance(signature.args[0].dtype, types.Float)
        with cgutils.for_range(builder, rows, intp=number) as loop:
            row = loop.index
            exact = load(0, builder.mul(row, number(NR)))
            value = builder.fptrunc(exact, kind) if floating else builder.sitofp(exact, kind)
            value = builder.fmul(value, load(2, builder.add(first, builder.mul(row, step))))
            for array, is_beyond in ((5, ">"), (6, "<")):
                limit = copies(array, row)
                value = builder.select(builder.fcmp_ordered(is_beyond, limit, value), limit, value)
            rounded = builder.bitcast(builder.fadd(value, _numbers(kind, ROUND)), ir.VectorType(_WORD, NR))
            low_bytes = builder.trunc(rounded, ir.VectorType(_BYTE, NR))
            target = address(context, builder, signature, arguments, 8, builder.add(place, builder.mul(row, y_step)))
            _store(builder, builder.add(low_bytes, copies(7, row)), target)
        return context.get_dummy_value()

    index = types.intp
    return types.void(sums, index, multipliers, index, index, least, most, zeros, y, index, index), generate


@intrinsic
def pack_groups(_context, b, place, step, count, flip, words, first, sums, column):
    """Pack 4 * count rows of NR bytes, `step` apart from b[place] on, and add up their columns.

    words[first:] get the bytes of four rows a word, a row of words for each group of rows; flip is what makes the bytes
    signed, by exclusive or. sums[column:]: int64, get the sums of the signed bytes added. Up to 2**20 groups.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, place, step, count, flip, _, first, _, column = arguments
        number, row = place.type, ir.VectorType(_WORD, NR)
        # Bytes are worked on 128 higher than what they stand for, without a sign; then one operation takes it away.
        to_unsigned = splat(builder, builder.xor(builder.trunc(flip, _BYTE), _BYTE(0x80)), NR)
        totals = cgutils.alloca_once_value(builder, _numbers(row, 0))
        with cgutils.for_range(builder, count, intp=number) as loop:
            group = builder.add(place, builder.mul(loop.index, builder.mul(step, number(4))))
            word, total = _numbers(row, 0x80808080), builder.load(totals)
            for i in range(4):
                source = address(
                    context, builder, signature, arguments, 0, builder.add(group, builder.mul(step, number(i)))
                )
                emit_prefetch(builder, builder.gep(source, [number(AHEAD)]))
                wide = builder.zext(builder.xor(_load(builder, source, NR), to_unsigned), row)
                total = builder.add(total, wide)
                word = builder.xor(word, builder.shl(wide, _numbers(row, 8 * i)))
            builder.store(total, totals)
            index = builder.add(first, builder.mul(loop.index, number(NR)))
            _store(builder, word, address(context, builder, signature, arguments, 5, index))
        target = address(context, builder, signature, arguments, 7, column)
        wide_row = ir.VectorType(ir.IntType(64), NR)
        added = builder.sub(
            builder.zext(builder.load(totals), wide_row),
            splat(builder, builder.mul(count, number(4 * 128)), NR),
        )
        _store(builder, builder.add(_load(builder, target, NR), added), target)
        return context.get_dummy_value()

    index = types.intp
    return types.void(b, index, index, index, index, words, index, sums, index), generate


@intrinsic
def pack_words(_context, a, place, count, flip, words, first):
    """Copy STEP * count words of bytes from a[place:] to words[first:]; flip makes them unsigned, by exclusive or."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, place, count, flip, _, first = arguments
        number, nbytes = place.type, 4 * STEP
        flips = splat(builder, builder.trunc(flip, _BYTE), nbytes)
        with cgutils.for_range(builder, count, intp=number) as loop:
            source = builder.add(place, builder.mul(loop.index, number(nbytes)))
            there = _load(builder, address(context, builder, signature, arguments, 0, source), nbytes)
            line = builder.bitcast(builder.xor(there, flips), ir.VectorType(_WORD, STEP))
            target = builder.add(first, builder.mul(loop.index, number(STEP)))
            _store(builder, line, address(context, builder, signature, arguments, 4, target))
        return context.get_dummy_value()

    index = types.intp
    return types.void(a, index, index, index, words, index), generate


@intrinsic
def sum_of_words(_context, words, first, count):
    """Return the sum of the unsigned bytes of words[first : first + STEP * count], up to 2**20 of them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, first, count = arguments
        number, line = first.type, ir.VectorType(_WORD, STEP)
        totals = cgutils.alloca_once_value(builder, _numbers(line, 0))
        low_bytes, low_half, eight, sixteen = (_numbers(line, n) for n in (0x00FF00FF, 0xFFFF, 8, 16))
        with cgutils.for_range(builder, count, intp=number) as loop:
            index = builder.add(first, builder.mul(loop.index, number(STEP)))
            word = _load(builder, address(context, builder, signature, arguments, 0, index), STEP)
            pairs = builder.add(builder.and_(word, low_bytes), builder.and_(builder.lshr(word, eight), low_bytes))
            total = builder.add(builder.and_(pairs, low_half), builder.lshr(pairs, sixteen))
            builder.store(builder.add(builder.load(totals), total), totals)
        total = builder.load(totals)
        result = builder.extract_element(total, _WORD(0))
        for lane in range(1, STEP):
            result = builder.add(result, builder.extract_element(total, _WORD(lane)))
        return builder.zext(result, number)

    return types.intp(words, types.intp, types.intp), generate
