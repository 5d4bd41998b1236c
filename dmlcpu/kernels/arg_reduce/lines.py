"""The winner of each lane in some lines of elements, and the winner among these.

Keys are compared as signed integers, with inverted sign bits, because AVX2 compares 64-bit words only as signed ones.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import emitted, splat
from dmlcpu.runtime.jit import inlined

LINES = 256  # at most, so that their numbers fit 8 bits


@inlined
def winners(lines, key_map, keys, numbers):
    """Write the greatest key of each lane of a `Strided` of lines, and the number of the first line that has it."""
    if key_map.infinity == key_map.mask:
        winners_of_words(lines, key_map, keys, numbers)
    else:
        winners_of_floats(lines, key_map, keys, numbers)


@emitted
def winners_of_words(builder, lines, key_map, keys, numbers):
    """Write the winners of lines of integers."""
    array = lines.array
    flip = splat(builder, builder.xor(key_map.flip, _sign(array)), array.lanes)
    _winners(builder, lines, lambda word: builder.xor(word, flip), keys, numbers)


@emitted
def winners_of_floats(builder, lines, key_map, keys, numbers):
    """Write the winners of lines of floats."""
    array = lines.array
    mask, infinity = (splat(builder, bits, array.lanes) for bits in (key_map.mask, key_map.infinity))
    flip, nan = (splat(builder, builder.xor(bits, _sign(array)), array.lanes) for bits in (key_map.flip, key_map.nan))
    last_bit = splat(builder, array.element(8 * array.nbytes - 1), array.lanes)

    def key_of(word: Any) -> Any:
        magnitude, sign = builder.and_(word, mask), builder.ashr(word, last_bit)
        value = builder.sub(builder.xor(magnitude, sign), sign)
        is_nan = builder.icmp_signed(">", magnitude, infinity)
        return builder.select(is_nan, nan, builder.xor(value, flip))

    _winners(builder, lines, key_of, keys, numbers)


def _winners(builder: Any, lines: Any, key_of: Callable[[Any], Any], keys: Any, numbers: Any) -> None:
    """Emit the loop. key_of(words) emits keys with their sign bits inverted."""
    array = lines.array
    first = key_of(array.load(lines.first, array.lanes))
    best = cgutils.alloca_once_value(builder, first)
    place = cgutils.alloca_once_value(builder, first.type(None))
    with cgutils.for_range(builder, lines.count, intp=lines.count.type) as loop:
        key = key_of(array.load(lines.place(builder, loop.index), array.lanes))
        number = loop.index if array.nbytes == 8 else builder.trunc(loop.index, array.element)
        before, at = builder.load(best), builder.load(place)
        wins = builder.icmp_signed(">", key, before)
        builder.store(builder.select(wins, key, before), best)
        builder.store(builder.select(wins, splat(builder, number, array.lanes), at), place)
    keys.store(builder.xor(builder.load(best), splat(builder, _sign(array), array.lanes)), ir.IntType(64)(0))
    numbers.store(builder.load(place), ir.IntType(64)(0))


@emitted
def winner(builder, keys, numbers, takes_last) -> types.intp:
    """Write the greatest of a line of keys to keys[0], and the least number that occurs with it to numbers[0].

    Return the lane of the first key that has both or, if asked for, the last.
    """
    start = ir.IntType(64)(0)
    line, at = keys.load(start, keys.lanes), numbers.load(start, keys.lanes)
    greatest = _fold(builder, line, ">")
    is_greatest = builder.icmp_unsigned("==", line, splat(builder, greatest, keys.lanes))
    least = _fold(builder, builder.select(is_greatest, at, at.type([-1] * keys.lanes)), "<")
    is_winner = builder.and_(is_greatest, builder.icmp_unsigned("==", at, splat(builder, least, keys.lanes)))
    bits = builder.bitcast(is_winner, ir.IntType(keys.lanes))
    bits = bits if keys.lanes == 64 else builder.zext(bits, ir.IntType(64))
    builder.store(greatest, keys.at(start))
    builder.store(least, numbers.at(start))
    first, last = builder.cttz(bits, ir.IntType(1)(1)), builder.ctlz(bits, ir.IntType(1)(1))
    return builder.select(builder.icmp_signed("!=", takes_last, start), builder.sub(ir.IntType(64)(63), last), first)


def _fold(builder: Any, vector: Any, comparison: str) -> Any:
    """Emit the extreme of a vector of words: its halves are compared, until one word is left."""
    count = vector.type.count
    while count > 1:
        count //= 2
        halves = []
        for begin in (0, count):
            numbers = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(begin, begin + count)))
            halves.append(builder.shuffle_vector(vector, vector, numbers))
        vector = builder.select(builder.icmp_unsigned(comparison, *halves), *halves)
    return builder.extract_element(vector, ir.IntType(32)(0))


def _sign(array: Any) -> Any:
    return array.element(1 << 8 * array.nbytes - 1)
