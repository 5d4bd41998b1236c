"""Vector operations that pack bytes into words of four, and sum them.

They are written as vectors because LLVM unrolls a loop as short as a row of a panel into single elements. LLVM cuts
vectors to the target's size. Arrays are flat, and need no alignment.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.microkernel import NR, ROW_STEP
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, WORD, call, constant, interleave, shuffle, vector
from dmlcpu.runtime.intrinsics import emit_prefetch, emitted, short_loop, splat

STEP = 16  # words of a row of the left-hand side at a time

# Prefetch distance in bytes of a row of b: rows are far apart, and processors do not foresee such jumps.
# Measured with prefetches into the first cache, 4096 x 4096, ms: on a Xeon with VNNI, none 4.0, 32 bytes 3.9, 64 bytes
# 2.8, 128 bytes 3.3; with AVX2 on a busy Zen 4, none 8.8, 32 bytes 7.0, 64 bytes 5.0, 128 bytes 4.6.
# They go into the second cache, because a Zen 4 loads only few lines into the first at a time: packing and multiplying
# 32 x 2048 x 11008 takes one thread 4.7 ms, with prefetches into the first cache 6.9.
PREFETCH = 64


@emitted
def load_word(builder, array, index) -> types.uint32:
    """Return the four bytes from array[index] on as one uint32, the first as its lowest; they need no alignment."""
    return builder.load(builder.bitcast(array.at(index), WORD.as_pointer()), align=1)


@emitted
def pack_groups(builder, b, sign_flip, words, first, sums, column):
    """Pack Strided rows of NR bytes, whole groups of four, and sum their columns.

    Each word of words[first:] gets the bytes of four rows; each group of four rows gives a row of words. Exclusive or
    with sign_flip makes the bytes signed. Their sums are added to sums[column:], int64. Up to 2**20 groups.
    """
    number, row = first.type, vector(WORD, NR)
    count = builder.udiv(b.count, number(4))
    # Here bytes are unsigned, 128 above their value; one operation at the end subtracts the 128.
    to_unsigned = splat(builder, builder.xor(builder.trunc(sign_flip, BYTE), BYTE(0x80)), NR)
    totals = cgutils.alloca_once_value(builder, constant(row, 0))
    with cgutils.for_range(builder, count, intp=number) as loop:
        group = builder.add(b.first, builder.mul(loop.index, builder.mul(b.step, number(4))))
        word, total = constant(row, 0x80808080), builder.load(totals)
        for i in range(4):
            source = builder.add(group, builder.mul(b.step, number(i)))
            emit_prefetch(builder, builder.gep(b.array.at(source), [number(PREFETCH)]), 2)
            wide = builder.zext(builder.xor(b.array.load(source, NR), to_unsigned), row)
            total = builder.add(total, wide)
            word = builder.xor(word, builder.shl(wide, constant(row, 8 * i)))
        builder.store(total, totals)
        words.store(word, builder.add(first, builder.mul(loop.index, number(NR))))
    above = splat(builder, builder.mul(count, number(4 * 128)), NR)
    added = builder.sub(builder.zext(builder.load(totals), vector(ir.IntType(64), NR)), above)
    sums.store(builder.add(sums.load(column, NR), added), column)


@emitted
def pack_lines(builder, b, count, sign_flip, words, first, sums, column):
    """Pack STEP * count groups of STEP columns, Strided, whose bytes are contiguous; sum them.

    Words and sums are written like those of `pack_groups`; the columns are half of a panel. Up to 2**16 groups.
    """
    number, row = first.type, vector(WORD, STEP)
    flips = splat(builder, builder.trunc(sign_flip, BYTE), 4 * STEP)
    totals = cgutils.alloca_once_value(builder, constant(row, 0))
    places = [b.place(builder, number(j)) for j in range(STEP)]
    # The next panel, into the second cache. 8 rows by 100,000 columns of 384 bytes take 1.9 ms, with prefetches into
    # the first cache 2.7 (Zen 4).
    ahead = builder.mul(b.step, number(NR))
    with cgutils.for_range(builder, count, intp=number) as loop:
        place = builder.mul(loop.index, number(4 * STEP))
        lines = []
        for j in range(STEP):
            here = builder.add(places[j], place)
            emit_prefetch(builder, builder.gep(b.array.at(here), [ahead]), 2)
            line = b.array.load(here, 4 * STEP)
            lines.append(builder.bitcast(builder.xor(line, flips), row))
        at = builder.add(first, builder.mul(loop.index, number(STEP * NR)))
        pairs = constant(row, 0)  # sums of unsigned bytes, 16 bits each
        for group, line in enumerate(_transposed(builder, lines)):
            words.store(line, builder.add(at, number(group * NR)))
            pairs = builder.add(pairs, _pair_sums(builder, builder.xor(line, constant(row, 0x80808080))))
        total = builder.add(builder.and_(pairs, constant(row, 0xFFFF)), builder.lshr(pairs, constant(row, 16)))
        builder.store(builder.add(builder.load(totals), total), totals)
    above = splat(builder, builder.mul(count, number(STEP * 4 * 128)), STEP)
    added = builder.sub(builder.zext(builder.load(totals), vector(ir.IntType(64), STEP)), above)
    sums.store(builder.add(sums.load(column, STEP), added), column)


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of 16 vectors of 16 words: first transpose within 16 bytes, then move whole 16 bytes."""
    quads = []  # four vectors for each four rows: vector i has words i, i + 4, i + 8, i + 12 of the rows
    for first in range(0, STEP, 4):
        a, b, c, d = rows[first : first + 4]
        (low, high), (low_2, high_2) = interleave(builder, a, b), interleave(builder, c, d)
        quads.append([*_interleave_pairs(builder, low, low_2), *_interleave_pairs(builder, high, high_2)])
    columns: list[list[Any]] = [[], [], [], []]
    for a, b, c, d in zip(*quads, strict=True):
        near, far = [
            [_take(builder, one, other, [odd, 4 + odd, 2 + odd, 6 + odd]) for odd in (0, 1)]
            for one, other in ((a, b), (c, d))
        ]
        for lane, column in enumerate(columns):
            half = lane // 2 * 2
            column.append(_take(builder, near[lane % 2], far[lane % 2], [half, half + 1, 4 + half, 5 + half]))
    return [column for lane in columns for column in lane]


def _interleave_pairs(builder: Any, one: Any, other: Any) -> list[Any]:
    """Interleave vectors of words, two words at a time, within each 16 bytes."""
    pairs = vector(ir.IntType(64), STEP // 2)
    both = interleave(builder, builder.bitcast(one, pairs), builder.bitcast(other, pairs))
    return [builder.bitcast(each, one.type) for each in both]


def _take(builder: Any, one: Any, other: Any, quarters: list[int]) -> Any:
    """Return the given 16-byte parts of two vectors; those of the second are numbered from 4 on."""
    return shuffle(builder, one, other, [4 * quarter + i for quarter in quarters for i in range(4)])


def _pair_sums(builder: Any, words: Any) -> Any:
    """Return the sums of bytes 0 and 1, and of 2 and 3, of words of unsigned bytes, 16 bits each."""
    low_bytes = constant(words.type, 0x00FF00FF)
    shifted = builder.lshr(words, constant(words.type, 8))
    return builder.add(builder.and_(words, low_bytes), builder.and_(shifted, low_bytes))


@emitted
def pack_words(builder, a, count, sign_flip, words, first):
    """Copy `count` words of each of some rows of bytes, Strided, with sign_flip applied by exclusive or.

    The copies are ROW_STEP words apart from words[first] on.
    """
    number, flip = first.type, builder.trunc(sign_flip, BYTE)
    lines = builder.udiv(count, number(STEP))
    rest = builder.sub(count, builder.mul(lines, number(STEP)))
    with short_loop(builder, a.count) as row:
        source = a.place(builder, row)
        target = builder.add(first, builder.mul(row, number(ROW_STEP)))

        def move(word, lanes):
            place = builder.add(source, builder.mul(word, number(4)))
            moved = builder.xor(a.array.load(place, 4 * lanes), splat(builder, flip, 4 * lanes))
            words.store(builder.bitcast(moved, vector(WORD, lanes)), builder.add(target, word))

        with short_loop(builder, lines) as line:
            move(builder.mul(line, number(STEP)), STEP)
        with short_loop(builder, rest) as word:
            move(builder.add(builder.mul(lines, number(STEP)), word), 1)


@emitted
def sum_of_words(builder, words, first, count) -> types.intp:
    """Return the sum of the unsigned bytes of words[first : first + count], up to 2**20; STEP more are readable."""
    number, line = first.type, vector(WORD, STEP)
    totals = cgutils.alloca_once_value(builder, constant(line, 0))
    low_half, sixteen = constant(line, 0xFFFF), constant(line, 16)
    lanes = ir.Constant(line, [WORD(lane) for lane in range(STEP)])
    lines = builder.udiv(builder.add(count, number(STEP - 1)), number(STEP))
    with short_loop(builder, lines) as loop:
        done = builder.mul(loop, number(STEP))
        left = splat(builder, builder.trunc(builder.sub(count, done), WORD), STEP)
        there = builder.icmp_signed("<", lanes, left)
        word = builder.select(there, words.load(builder.add(first, done), STEP), constant(line, 0))
        pairs = _pair_sums(builder, word)
        total = builder.add(builder.and_(pairs, low_half), builder.lshr(pairs, sixteen))
        builder.store(builder.add(builder.load(totals), total), totals)
    return builder.zext(call(builder, f"llvm.vector.reduce.add.v{STEP}i32", WORD, [builder.load(totals)]), number)
