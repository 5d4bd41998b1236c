"""Microkernels that read B in its order in memory: rows of bytes, which are interleaved in registers.

Two rounds of interleaving within 16 bytes, which every vector unit supports, turn four rows of bytes into vectors of
words. This permutes the columns; at the end `unfold` restores their order.
"""

from collections.abc import Callable
from typing import Any

from numba.core import cgutils

from dmlcpu.kernels.gemm.microkernels.microkernel import ROW_STEP, Microkernel, emit_column_sum, emit_correction
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, HALF, WORD, interleave, load, shuffle, store, vector
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import Strided, emit_prefetch, emitted, splat

BLOCK = 64  # columns at a time
DEPTH = 16  # rows of B at a time
_VECTORS = 4  # vectors of words that four rows of bytes make


def make_add_products(microkernel: Microkernel) -> Any:
    """Return an intrinsic that adds the products of some rows of A and up to DEPTH rows of B to accumulators.

    add(b, blocks, sign_flip, a, first, acc):

    - b: Strided rows of BLOCK * blocks bytes; exclusive or with sign_flip makes them signed
    - a: uint32, as many rows as acc's, ROW_STEP apart, DEPTH / 4 words from a[first] on, zero where b has no more rows;
      the bytes of the last row are 1
    - acc: Strided rows of int32, folded accumulators
    """
    if microkernel.emit_pairs:
        return _make_add_pairs(microkernel, microkernel.emit_pairs)

    @emitted
    def add(builder, b, blocks, sign_flip, a, first, acc):
        isa.require(microkernel.unit.isa)
        number = blocks.type
        flips = splat(builder, builder.trunc(sign_flip, BYTE), microkernel.unit.width)
        b_rows = _rows_of_b(builder, b, number(0), DEPTH)
        words = a.at(first)
        # The next rows, into the second cache, because up to 128 KiB of others are read before. Prefetches into the
        # first took 1.1 times as long (Zen 4).
        prefetch = builder.mul(number(DEPTH), b.step)
        with cgutils.for_range(builder, blocks, intp=number) as loop:
            column = builder.mul(loop.index, number(BLOCK))
            for row in b_rows:
                emit_prefetch(builder, builder.gep(row, [builder.add(column, prefetch)]), 2)
            for inner in range(0, BLOCK, _VECTORS * microkernel.unit.lanes):
                _emit_columns(builder, microkernel, b_rows, flips, words, acc, builder.add(column, number(inner)))

    return add


def _make_add_pairs(microkernel: Microkernel, emit_pairs: Callable[..., None]) -> Any:
    """Return what `make_add_products` does for AVX2 alone, whose registers hold half of the rows."""
    rows_at_once, width = DEPTH // 2, microkernel.unit.width

    @emitted
    def add(builder, b, blocks, sign_flip, a, first, acc):
        isa.require(microkernel.unit.isa)
        number = blocks.type
        flips = splat(builder, builder.trunc(sign_flip, BYTE), width)
        next_rows = builder.mul(number(rows_at_once), b.step)
        count = builder.sdiv(builder.add(b.count, number(rows_at_once - 1)), number(rows_at_once))
        with cgutils.for_range(builder, count, intp=number) as outer:
            b_rows = _rows_of_b(builder, b, builder.mul(outer.index, number(rows_at_once)), rows_at_once)
            words = a.at(builder.add(first, builder.mul(outer.index, number(rows_at_once // 4))))
            with cgutils.for_range(builder, blocks, intp=number) as block:
                left = builder.mul(block.index, number(BLOCK))
                # The next rows stay in the second cache. Rows a power of two apart compete for few sets of the first.
                for row in b_rows:
                    emit_prefetch(builder, builder.gep(row, [builder.add(left, next_rows)]), 2)
                    emit_prefetch(builder, builder.gep(row, [builder.add(left, number(BLOCK))]))
                with cgutils.for_range(builder, number(BLOCK // width), intp=number) as part:
                    column = builder.add(left, builder.mul(part.index, number(width)))
                    lines = [load(builder, builder.gep(row, [column]), width) for row in b_rows]
                    signed = [builder.xor(line, flips) for line in lines]
                    groups = [_words_of(builder, signed[i : i + 4]) for i in range(0, rows_at_once, 4)]
                    emit_pairs(builder, words, groups, acc, column)

    return add


def _rows_of_b(builder: Any, b: Strided, top: Any, count: int) -> list[Any]:
    """Return the addresses of `count` rows from `top` on. The last row, multiplied by zero, replaces missing ones."""
    first, left, number = b.at(builder, top), builder.sub(b.count, top), top.type
    last = builder.sub(left, number(1))
    addresses = []
    for i in range(count):
        row = builder.select(builder.icmp_signed("<", number(i), left), number(i), last)
        addresses.append(builder.gep(first, [builder.mul(row, b.step)]))
    return addresses


def _emit_columns(
    builder: Any, microkernel: Microkernel, b_rows: list[Any], flips: Any, a: Any, acc: Strided, column: Any
) -> None:
    """Emit the products of the columns of one vector of bytes, from `column` on. b_rows, a: addresses."""
    number, lanes, width = column.type, microkernel.unit.lanes, microkernel.unit.width
    at_once = DEPTH if microkernel.unit.registers == 32 else 4  # rows of B whose words stay in registers
    for top in range(0, DEPTH, at_once):
        places = [builder.gep(row, [column]) for row in b_rows[top : top + at_once]]
        signed = [builder.xor(load(builder, place, width), flips) for place in places]
        rhs = [
            [microkernel.prepare_rhs(builder, words) for words in _words_of(builder, signed[i : i + 4])]
            for i in range(0, at_once, 4)
        ]
        corrections = _corrections(builder, microkernel, rhs)
        with cgutils.for_range(builder, acc.count, intp=number) as loop:
            line = builder.gep(acc.at(builder, loop.index), [column])
            words = builder.gep(a, [builder.mul(loop.index, number(ROW_STEP))])
            places = [builder.gep(line, [number(v * lanes)]) for v in range(_VECTORS)]
            totals = [load(builder, place, lanes, 4) for place in places]
            for i, group in enumerate(rhs, top // 4):
                word = builder.load(builder.gep(words, [number(i)]))
                lhs = microkernel.prepare_lhs(builder, splat(builder, word, lanes))
                totals = [
                    microkernel.multiply(builder, total, lhs, own) for total, own in zip(totals, group, strict=True)
                ]
            for i, correction in enumerate(corrections):
                totals[i] = builder.add(totals[i], correction)
            for place, total in zip(places, totals, strict=True):
                store(builder, total, place, 4)


def _corrections(builder: Any, microkernel: Microkernel, rhs: list[list[tuple[Any, ...]]]) -> list[Any]:
    """Return the correction of each vector of accumulators for the microkernel's `lhs_offset`, if it has one."""
    if not microkernel.lhs_offset:
        return []
    sums = [vector(WORD, microkernel.unit.lanes)(None)] * _VECTORS
    for group in rhs:
        sums = [emit_column_sum(builder, microkernel, total, own) for total, own in zip(sums, group, strict=True)]
    return [emit_correction(builder, microkernel, total) for total in sums]


def _words_of(builder: Any, rows: list[Any]) -> list[Any]:
    """Return four vectors of words; each word has one byte of each of the four rows."""
    count = rows[0].type.count
    pairs = [interleave(builder, rows[i], rows[i + 1]) for i in (0, 2)]
    words: list[Any] = []
    for first, second in zip(*pairs, strict=True):
        halves = [builder.bitcast(x, vector(HALF, count // 2)) for x in (first, second)]
        words += interleave(builder, *halves)
    return [builder.bitcast(x, vector(WORD, count // 4)) for x in words]


def make_unfold(microkernel: Microkernel) -> Any:
    """Return an intrinsic that puts BLOCK accumulators, int32 from acc[first] on, in the order of columns."""
    lanes = microkernel.unit.lanes
    # Vector v has columns 4 * v to 4 * v + 3 of each 16.
    order = [v * lanes + 4 * part + i for part in range(lanes // 4) for v in range(_VECTORS) for i in range(4)]

    @emitted
    def unfold(builder, acc, first):
        for inner in range(0, BLOCK, _VECTORS * lanes):
            index = builder.add(first, first.type(inner))
            folded = acc.load(index, _VECTORS * lanes)
            acc.store(shuffle(builder, folded, folded, order), index)

    return unfold
