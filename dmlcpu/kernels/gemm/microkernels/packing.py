"""Vector operations that pack bytes into words of four, and sum them.

They are written as vectors because LLVM unrolls loops as short as a row of a panel into single elements. LLVM cuts the
vectors to the target's size. Arrays are flat, and need no alignment.
"""

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, WORD, constant, load, store, vector
from dmlcpu.runtime.intrinsics import address, emit_prefetch, splat

STEP = 16  # words of a row of the left-hand side at a time

# Prefetch distance in bytes of a row of b: rows lie far apart, and processors do not foresee such jumps.
# Measured on a Xeon with VNNI, 4096 x 4096, ms: none 4.0, 32 bytes 3.9, 64 bytes 2.8, 128 bytes 3.3.
PREFETCH = 64


@intrinsic
def load_word(_context, array, index):
    """Return the four bytes from array[index] on as one uint32, the first as its lowest; they need no alignment."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = address(context, builder, signature, arguments, 0, arguments[1])
        return builder.load(builder.bitcast(place, WORD.as_pointer()), align=1)

    return types.uint32(array, types.intp), generate


@intrinsic
def pack_groups(_context, b, start, step, count, sign_flip, words, first, sums, column):
    """Pack 4 * count rows of NR bytes, `step` apart from b[start] on, and sum their columns.

    Each word of words[first:] gets the bytes of four rows; each group of four rows gives a row of words. Exclusive or
    with sign_flip makes the bytes signed. Their sums are added to sums[column:], int64. Up to 2**20 groups.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, start, step, count, sign_flip, _, first, _, column = arguments
        number, row = start.type, vector(WORD, NR)
        # Bytes are unsigned here, 128 above their value; one operation at the end subtracts the 128.
        to_unsigned = splat(builder, builder.xor(builder.trunc(sign_flip, BYTE), BYTE(0x80)), NR)
        totals = cgutils.alloca_once_value(builder, constant(row, 0))
        with cgutils.for_range(builder, count, intp=number) as loop:
            group = builder.add(start, builder.mul(loop.index, builder.mul(step, number(4))))
            word, total = constant(row, 0x80808080), builder.load(totals)
            for i in range(4):
                source = place(0, builder.add(group, builder.mul(step, number(i))))
                emit_prefetch(builder, builder.gep(source, [number(PREFETCH)]))
                wide = builder.zext(builder.xor(load(builder, source, NR), to_unsigned), row)
                total = builder.add(total, wide)
                word = builder.xor(word, builder.shl(wide, constant(row, 8 * i)))
            builder.store(total, totals)
            index = builder.add(first, builder.mul(loop.index, number(NR)))
            store(builder, word, place(5, index))
        target = place(7, column)
        wide_row = vector(ir.IntType(64), NR)
        added = builder.sub(
            builder.zext(builder.load(totals), wide_row),
            splat(builder, builder.mul(count, number(4 * 128)), NR),
        )
        store(builder, builder.add(load(builder, target, NR), added), target)
        return context.get_dummy_value()

    index = types.intp
    return types.void(b, index, index, index, index, words, index, sums, index), generate


@intrinsic
def pack_words(_context, a, start, count, sign_flip, words, first):
    """Copy STEP * count words of bytes from a[start:] to words[first:], with sign_flip applied by exclusive or."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, start, count, sign_flip, _, first = arguments
        number, nbytes = start.type, 4 * STEP
        flips = splat(builder, builder.trunc(sign_flip, BYTE), nbytes)
        with cgutils.for_range(builder, count, intp=number) as loop:
            source = builder.add(start, builder.mul(loop.index, number(nbytes)))
            there = load(builder, place(0, source), nbytes)
            line = builder.bitcast(builder.xor(there, flips), vector(WORD, STEP))
            target = builder.add(first, builder.mul(loop.index, number(STEP)))
            store(builder, line, place(4, target))
        return context.get_dummy_value()

    index = types.intp
    return types.void(a, index, index, index, words, index), generate


@intrinsic
def sum_of_words(_context, words, first, count):
    """Return the sum of the unsigned bytes of words[first : first + STEP * count], up to 2**20 of them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = functools.partial(address, context, builder, signature, arguments)
        _, first, count = arguments
        number, line = first.type, vector(WORD, STEP)
        totals = cgutils.alloca_once_value(builder, constant(line, 0))
        low_bytes, low_half, eight, sixteen = (constant(line, n) for n in (0x00FF00FF, 0xFFFF, 8, 16))
        with cgutils.for_range(builder, count, intp=number) as loop:
            index = builder.add(first, builder.mul(loop.index, number(STEP)))
            word = load(builder, place(0, index), STEP)
            pairs = builder.add(builder.and_(word, low_bytes), builder.and_(builder.lshr(word, eight), low_bytes))
            total = builder.add(builder.and_(pairs, low_half), builder.lshr(pairs, sixteen))
            builder.store(builder.add(builder.load(totals), total), totals)
        total = builder.load(totals)
        result = builder.extract_element(total, WORD(0))
        for lane in range(1, STEP):
            result = builder.add(result, builder.extract_element(total, WORD(lane)))
        return builder.zext(result, number)

    return types.intp(words, types.intp, types.intp), generate
