"""Vector operations on index tuples and their offsets. A line of offsets is a vector.

Indices are uint32 words, the lower half of a wide one first, so that one compiled kernel serves all types.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import emit_prefetch, emitted, splat

LANES = 8  # offsets in a line
# Prefetch distance in words of indices: a block of wide indices, because the updates of a block are applied in between.
# Milliseconds of the check on a Xeon with VNNI, 4,000,000 pairs of int64 into 4096 x 4096, two threads: without
# prefetch 8.6, 256 and 512 words ahead 6.0, 1,024 words 6.5, 2,048 words 8.8.
PREFETCH = 512
_WORD, _LONG = ir.IntType(32), ir.IntType(64)
_LINE = ir.VectorType(_LONG, LANES)


def _lines(builder: Any, count: Any) -> Any:
    """Emit a loop over the lines of `count` offsets, which gives (index, _) of the first offset of each."""
    return cgutils.for_range_slice(builder, _LONG(0), count, _LONG(LANES), inc=True)


def _extend(builder: Any, words: Any, signed: Any, kind: Any) -> Any:
    """Emit the extension of words to 64 bits, with their sign if they have one."""
    is_signed = cgutils.is_not_null(builder, signed)
    return builder.select(is_signed, builder.sext(words, kind), builder.zext(words, kind))


@emitted
def load_index(builder, words, index, wide, signed) -> types.int64:
    """Return the int64 of words[index] and, if `wide`, words[index + 1]; signed: a narrow index has a sign."""
    place, result = words.at(index), cgutils.alloca_once(builder, _LONG)
    with builder.if_else(cgutils.is_not_null(builder, wide)) as (then, otherwise):
        with then:
            builder.store(builder.load(builder.bitcast(place, _LONG.as_pointer()), align=4), result)
        with otherwise:
            builder.store(_extend(builder, builder.load(place), signed, _LONG), result)
    return builder.load(result)


class Indices(NamedTuple):
    """Indices along one dimension of the output."""

    words: Any
    first: Any  # the position of the first
    step: Any  # words from one to the next
    is_wide: Any
    is_signed: Any  # those below 0 count from the end
    size: Any  # of the dimension


def _count_from_start(builder: Any, indices: Indices, count: Any, use: Callable[[Any, Any], None], step: Any) -> Any:
    """Emit use(index, line) for each line of `count` indices, where negative ones count from the start of a dimension.

    step: from one index to the next, or None if they are packed. Return a flag: whether any index is out of range.
    """
    is_signed = cgutils.is_not_null(builder, indices.is_signed)
    from_end = splat(builder, builder.select(is_signed, indices.size, _LONG(0)), LANES)
    greatest = splat(builder, builder.sub(indices.size, _LONG(1)), LANES)
    zeros = ir.Constant(_LINE, [0] * LANES)
    bad = cgutils.alloca_once_value(builder, zeros)  # negative if any index is out of range

    def emit_lines(kind: Any, stride: Any = None) -> None:
        with _lines(builder, count) as (index, _):
            distance = builder.mul(index, stride or _LONG(kind.width // _WORD.width))
            place = indices.words.at(builder.add(indices.first, distance))
            emit_prefetch(builder, builder.gep(place, [_LONG(PREFETCH)]))
            raw = _load_line(builder, place, kind, stride)
            raw = raw if kind is _LONG else _extend(builder, raw, indices.is_signed, _LINE)
            negative = builder.ashr(raw, ir.Constant(_LINE, [63] * LANES))
            counted = builder.add(raw, builder.and_(from_end, negative))
            wrong = builder.or_(counted, builder.sub(greatest, counted))
            builder.store(builder.or_(builder.load(bad), wrong), bad)
            use(index, counted)

    with builder.if_else(cgutils.is_not_null(builder, indices.is_wide)) as branches:
        for branch, kind in zip(branches, (_LONG, _WORD), strict=True):
            with branch:
                if step is None:
                    emit_lines(kind)
                    continue
                is_packed = builder.icmp_signed("==", step, _LONG(kind.width // _WORD.width))
                with builder.if_else(is_packed) as (packed, strided):
                    with packed:
                        emit_lines(kind)
                    with strided:
                        emit_lines(kind, step)
    signs = builder.icmp_signed("<", builder.load(bad), zeros)
    return cgutils.is_not_null(builder, builder.bitcast(signs, ir.IntType(LANES)))


def _load_line(builder: Any, place: Any, kind: Any, stride: Any) -> Any:
    """Emit the load of LANES integers of a kind, `stride` words apart, or contiguous if that is None."""
    line = ir.VectorType(kind, LANES)
    if stride is None:
        return builder.load(builder.bitcast(place, line.as_pointer()), align=4)
    elements = ir.Constant(line, ir.Undefined)
    for lane in range(LANES):
        there = builder.gep(place, [builder.mul(stride, _LONG(lane))])
        element = builder.load(builder.bitcast(there, kind.as_pointer()), align=4)
        elements = builder.insert_element(elements, element, _WORD(lane))
    return elements


@emitted
def add_lines(builder, indices, step, offsets, count) -> types.intp:
    """Add step * index to offsets[:count], a multiple of LANES, for as many indices.

    Return whether any is out of range, 0 or 1.
    """
    steps = splat(builder, step, LANES)

    def add(index: Any, counted: Any) -> None:
        offsets.store(builder.add(offsets.load(index, LANES), builder.mul(counted, steps)), index)

    return builder.zext(_count_from_start(builder, indices, count, add, indices.step), _LONG)


@emitted
def is_any_out(builder, indices, count) -> types.intp:
    """Return whether any of `count` indices, a multiple of LANES, is out of range, 0 or 1."""
    found = _count_from_start(builder, indices, count, lambda index, counted: None, indices.step)
    return builder.zext(found, _LONG)


def _compress(builder: Any, vector: Any, flags: Any) -> Any:
    """Emit a vector with the flagged elements at its front; the other lanes are undefined."""
    kind = vector.type
    if kind.element in (ir.IntType(8), ir.IntType(16)):  # few processors do this with such small elements
        wide = ir.VectorType(_WORD, LANES)
        return builder.trunc(_compress(builder, builder.zext(vector, wide), flags), kind)
    name = f"llvm.experimental.vector.compress.v{LANES}{kind.element.intrinsic_name}"
    compress = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, flags.type, kind]), name)
    return builder.call(compress, [vector, flags, ir.Constant(kind, ir.Undefined)])


def _is_between(builder: Any, offsets: Any, first: Any, last: Any) -> Any:
    """Emit a flag for each offset of a line: whether it is in a range."""
    firsts, sizes = (splat(builder, n, LANES) for n in (first, builder.sub(last, first)))
    return builder.icmp_unsigned("<", builder.sub(offsets, firsts), sizes)


def _select(builder: Any, flags: Any, found: Any, *lines: tuple[Any, Any]) -> None:
    """Emit stores of the flagged elements of lines, each to its own array, after the `found` elements."""
    at = builder.load(found)
    for line, array in lines:
        array.store(_compress(builder, line, flags), at)
    bits = builder.zext(builder.bitcast(flags, ir.IntType(LANES)), _LONG)
    builder.store(builder.add(at, builder.ctpop(bits)), found)


@emitted
def select_range(builder, offsets, count, first, last, own, numbers) -> types.intp:
    """Write the offsets[:count] in [first, last) to own, and their positions to numbers; return how many.

    All are int64; the arrays have room for `count` rounded up to whole lines.
    """
    steps, found = ir.Constant(_LINE, list(range(LANES))), cgutils.alloca_once_value(builder, _LONG(0))
    with _lines(builder, count) as (index, _):
        here, number = offsets.load(index, LANES), builder.add(splat(builder, index, LANES), steps)
        there = builder.icmp_signed("<", number, splat(builder, count, LANES))
        flags = builder.and_(_is_between(builder, here, first, last), there)
        _select(builder, flags, found, (here, own), (number, numbers))
    return builder.load(found)


@emitted
def select_places(builder, indices, values, begin, count, owned, own, chosen) -> types.intp:
    """Write those of `count` packed indices that are in an `Owned` range to own, and their values to chosen.

    values: from values[begin] on. Return how many there are, or -1 if any is out of range. One pass does both, so that
    places and values stay in registers.
    """
    found = cgutils.alloca_once_value(builder, _LONG(0))

    def select(index: Any, here: Any) -> None:
        value = values.load(builder.add(begin, index), LANES)
        flags = _is_between(builder, here, owned.first, owned.last)
        _select(builder, flags, found, (here, own), (value, chosen))

    is_bad = _count_from_start(builder, indices, count, select, None)
    return builder.select(is_bad, _LONG(-1), builder.load(found))
