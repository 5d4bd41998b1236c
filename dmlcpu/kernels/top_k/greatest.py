"""The greatest keys of some lines of elements, lane by lane: the step of block-max pruning that reads every element.

Keys are compared as signed integers, with inverted sign bits, because AVX2 compares 64-bit words only as signed ones.
The lines are read in the order of memory: a tile read lane by lane took 2 to 2.5 times as long (Zen 4, 64-bit types).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import emit_prefetch_line, emitted, splat
from dmlcpu.runtime.jit import inlined

_FLOATS = {4: ir.FloatType(), 8: ir.DoubleType()}  # that processors compare, by their bytes


class LineRange(NamedTuple):
    """The lines at array[first], array[first + step], ...; the last begins before array[end]."""

    array: Any
    first: Any
    step: Any
    end: Any
    ahead: Any  # each step prefetches the line this many elements later


@inlined
def greatest_line(lines, key_map, needs_keys, target, place):
    """Write the greatest keys of an even number of lines to the line at target[place].

    needs_keys: floats cannot be compared as floats, see `flushes_subnormals`, or earlier lines had a NaN. Return its
    value for the next lines.
    """
    if key_map.infinity == key_map.mask:  # integers
        greatest_words(lines, key_map.flip, target, place)
    elif needs_keys or not greatest_floats(lines, key_map, target, place):
        greatest_keys(lines, key_map, target, place)
        needs_keys = True
    return needs_keys


@emitted
def flushes_subnormals(builder, array, flip: Any) -> types.boolean:
    """Return whether comparisons treat subnormal floats as zeros: a mode of the thread that some libraries set."""
    kind = _FLOATS.get(array.nbytes)
    if kind is None:
        return ir.Constant(ir.IntType(1), 0)
    # The highest two bits of a float's `flip` are 01 or 10. LLVM does not know them, so it cannot compute the product
    # itself, in its own mode. The subnormal itself is not compared with 0: LLVM would compare its bits.
    subnormal = builder.bitcast(builder.lshr(flip, array.element(8 * array.nbytes - 2)), kind)
    scaled = builder.bitcast(builder.fmul(subnormal, kind(2.0**100)), array.element)
    return builder.icmp_unsigned("==", scaled, array.element(0))


@emitted
def greatest_words(builder, lines, flip: Any, target, place):
    """Write the greatest keys of lines of words; a key is a word whose bits `flip` are inverted."""
    array = lines.array
    bits = splat(builder, builder.xor(flip, _sign(array)), array.lanes)

    def key_at(index: Any) -> Any:
        return builder.xor(array.load(index, array.lanes), bits)

    target.store(_greatest(builder, lines, key_at), place)


@emitted
def greatest_keys(builder, lines, key_map, target, place):
    """Write the greatest keys of lines of floats."""
    array = lines.array
    mask, infinity = (splat(builder, bits, array.lanes) for bits in (key_map.mask, key_map.infinity))
    signed_flip, signed_nan = (
        splat(builder, builder.xor(bits, _sign(array)), array.lanes) for bits in (key_map.flip, key_map.nan)
    )

    def key_at(index: Any) -> Any:
        word = array.load(index, array.lanes)
        key = builder.xor(_value(builder, array, word, mask), signed_flip)
        return builder.select(builder.icmp_signed(">", builder.and_(word, mask), infinity), signed_nan, key)

    target.store(_greatest(builder, lines, key_at), place)


@emitted
def greatest_floats(builder, lines, key_map, target, place) -> types.boolean:
    """Write the greatest keys of lines of floats as `greatest_keys` does, in a third of its instructions.

    Return whether the keys are valid: no float is NaN, and processors compare floats of this width.
    """
    array, flip = lines.array, key_map.flip
    kind = _FLOATS.get(array.nbytes)
    if kind is None:
        return ir.Constant(ir.IntType(1), 0)
    words, floats = (ir.VectorType(element, array.lanes) for element in (array.element, kind))
    # Bit 0 of `flip` is set if the smallest floats have the greatest keys.
    sign = splat(builder, builder.shl(flip, array.element(8 * array.nbytes - 1)), array.lanes)

    def load(index: Any) -> Any:
        _prefetch(builder, lines, index)
        return builder.bitcast(builder.xor(array.load(index, array.lanes), sign), floats)

    greatest, is_nan = (cgutils.alloca_once_value(builder, each) for each in (load(lines.first), words(None)))
    two = builder.add(lines.step, lines.step)
    with cgutils.for_range_slice(builder, lines.first, lines.end, two, inc=True) as (index, _):
        pair = load(index), load(builder.add(index, lines.step))
        for line in pair:
            before = builder.load(greatest)
            builder.store(builder.select(builder.fcmp_ordered(">", line, before), line, before), greatest)
        # In words: LLVM would pack a vector of flags to bytes in each round.
        unordered = builder.sext(builder.fcmp_unordered("uno", *pair), words)
        builder.store(builder.or_(builder.load(is_nan), unordered), is_nan)
    word = builder.xor(builder.bitcast(builder.load(greatest), words), sign)
    value = _value(builder, array, word, splat(builder, key_map.mask, array.lanes))
    target.store(builder.xor(value, splat(builder, flip, array.lanes)), place)
    flags = builder.icmp_signed("!=", builder.load(is_nan), words(None))
    return builder.icmp_signed("==", builder.bitcast(flags, ir.IntType(array.lanes)), ir.IntType(array.lanes)(0))


def _greatest(builder: Any, lines: LineRange, key_at: Callable[[Any], Any]) -> Any:
    """Emit the greatest keys of lines. key_at(index) emits those of one line, with their sign bits inverted."""
    greatest = cgutils.alloca_once_value(builder, key_at(lines.first))
    with cgutils.for_range_slice(builder, lines.first, lines.end, lines.step, inc=True) as (index, _):
        _prefetch(builder, lines, index)
        key, before = key_at(index), builder.load(greatest)
        builder.store(builder.select(builder.icmp_signed(">", key, before), key, before), greatest)
    return builder.xor(builder.load(greatest), splat(builder, _sign(lines.array), lines.array.lanes))


def _value(builder: Any, array: Any, word: Any, mask: Any) -> Any:
    """Emit the magnitudes of floats, negated where the sign is set."""
    sign = builder.ashr(word, splat(builder, array.element(8 * array.nbytes - 1), array.lanes))
    return builder.sub(builder.xor(builder.and_(word, mask), sign), sign)


def _sign(array: Any) -> Any:
    return array.element(1 << 8 * array.nbytes - 1)


def _prefetch(builder: Any, lines: LineRange, index: Any) -> None:
    emit_prefetch_line(builder, lines.array, builder.add(index, lines.ahead))
