"""Vector operations on index tuples and their offsets. A line of offsets is a vector.

Indices are uint32 words, the lower half of a wide one first, so that one compiled kernel serves all types.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import address, emit_prefetch, splat

LANES = 8  # offsets in a line
# Prefetch distance in words of indices: a block of wide indices, whose updates are applied in between.
# Measured on a Xeon with VNNI, 4,000,000 pairs of int64 into 4096 x 4096, two threads, ms of the check: none 8.6, 256
# and 512 words 6.0, 1,024 words 6.5, 2,048 words 8.8.
PREFETCH = 512
_WORD, _LONG = ir.IntType(32), ir.IntType(64)
_LINE = ir.VectorType(_LONG, LANES)


def _extend(builder: Any, words: Any, signed: Any, kind: Any) -> Any:
    """Emit 64 bits of each word, by its sign if it has one."""
    is_signed = cgutils.is_not_null(builder, signed)
    return builder.select(is_signed, builder.sext(words, kind), builder.zext(words, kind))


@intrinsic
def load_index(_context, words, index, wide, signed):
    """Return the int64 of words[index] and, if `wide`, words[index + 1]; signed: a narrow index has a sign."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, index, wide, signed = arguments
        place = address(context, builder, signature, arguments, 0, index)
        result = cgutils.alloca_once(builder, _LONG)
        with builder.if_else(cgutils.is_not_null(builder, wide)) as (then, otherwise):
            with then:
                builder.store(builder.load(builder.bitcast(place, _LONG.as_pointer()), align=4), result)
            with otherwise:
                builder.store(_extend(builder, builder.load(place), signed, _LONG), result)
        return builder.load(result)

    return types.int64(words, types.intp, types.intp, types.intp), generate


class _Counting:
    """Makes negative indices count from the start of a dimension, and notes indices out of range."""

    def __init__(self, builder: Any, size: Any, signed: Any) -> None:
        self.builder = builder
        self.from_end = splat(builder, builder.select(cgutils.is_not_null(builder, signed), size, _LONG(0)), LANES)
        self.greatest = splat(builder, builder.sub(size, _LONG(1)), LANES)

    def from_start(self, raw: Any, signed: Any, bad: Any) -> Any:
        """Emit 64 bits of each index; a negative lane of `bad` says that an index was out of range."""
        builder = self.builder
        raw = raw if raw.type.element is _LONG else _extend(builder, raw, signed, _LINE)
        negative = builder.ashr(raw, ir.Constant(_LINE, [63] * LANES))
        counted = builder.add(raw, builder.and_(self.from_end, negative))
        wrong = builder.or_(counted, builder.sub(self.greatest, counted))
        builder.store(builder.or_(builder.load(bad), wrong), bad)
        return counted

    def is_any(self, bad: Any) -> Any:
        """Emit whether any index was out of range."""
        signs = self.builder.icmp_signed("<", self.builder.load(bad), ir.Constant(_LINE, [0] * LANES))
        return cgutils.is_not_null(self.builder, self.builder.bitcast(signs, ir.IntType(LANES)))


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


def _either(builder: Any, flag: Any, emit_one: Callable[[], None], emit_other: Callable[[], None]) -> None:
    """Emit a branch."""
    with builder.if_else(flag) as (then, otherwise):
        with then:
            emit_one()
        with otherwise:
            emit_other()


@intrinsic
def add_lines(_context, words, begin, stride, wide, signed, size, step, offsets, count):
    """Add step * index to offsets[:count], a multiple of LANES, for the indices from words[begin] on, `stride` apart.

    An index below 0, if they are `signed`, counts from `size`. Return whether any is out of range, 0 or 1.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, begin, stride, wide, signed, size, step, _, count = arguments

        def walk(kind: Any, stride: Any) -> None:
            words_each = stride if stride else _LONG(kind.width // _WORD.width)
            with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(LANES), inc=True) as (index, _):
                first = builder.add(begin, builder.mul(index, words_each))
                place = address(context, builder, signature, arguments, 0, first)
                emit_prefetch(builder, builder.gep(place, [_LONG(PREFETCH)]))
                counted = counting.from_start(_load_line(builder, place, kind, stride), signed, bad)
                place = address(context, builder, signature, arguments, 7, index)
                place = builder.bitcast(place, _LINE.as_pointer())
                added = builder.add(builder.load(place, align=8), builder.mul(counted, steps))
                builder.store(added, place, align=8)

        def walk_by_stride(kind: Any) -> None:
            is_packed = builder.icmp_signed("==", stride, _LONG(kind.width // _WORD.width))
            _either(builder, is_packed, lambda: walk(kind, None), lambda: walk(kind, stride))

        counting, steps = _Counting(builder, size, signed), splat(builder, step, LANES)
        bad = cgutils.alloca_once_value(builder, ir.Constant(_LINE, [0] * LANES))
        is_wide = cgutils.is_not_null(builder, wide)
        _either(builder, is_wide, lambda: walk_by_stride(_LONG), lambda: walk_by_stride(_WORD))
        return builder.zext(counting.is_any(bad), _LONG)

    number = types.intp
    return number(words, *[number] * 6, offsets, number), generate


def _compress(builder: Any, vector: Any, flags: Any) -> Any:
    """Emit the flagged elements of a vector, moved to its front; the other lanes are undefined."""
    kind = vector.type
    if kind.element in (ir.IntType(8), ir.IntType(16)):  # few processors do this with elements as small
        wide = ir.VectorType(_WORD, LANES)
        return builder.trunc(_compress(builder, builder.zext(vector, wide), flags), kind)
    name = f"llvm.experimental.vector.compress.v{LANES}{kind.element.intrinsic_name}"
    compress = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, flags.type, kind]), name)
    return builder.call(compress, [vector, flags, ir.Constant(kind, ir.Undefined)])


class _Lines:
    """Loads and stores of lines of the array arguments of an intrinsic."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder, self.parts = builder, (context, builder, signature, arguments)
        self.sizes = [
            context.get_abi_sizeof(context.get_data_type(kind.dtype)) if isinstance(kind, types.Array) else 0
            for kind in signature.args
        ]

    def _address(self, array: int, index: Any) -> Any:
        place = address(*self.parts, array, index)
        return self.builder.bitcast(place, ir.VectorType(place.type.pointee, LANES).as_pointer())

    def load(self, array: int, index: Any) -> Any:
        return self.builder.load(self._address(array, index), align=self.sizes[array])

    def store(self, line: Any, array: int, index: Any) -> None:
        self.builder.store(line, self._address(array, index), align=self.sizes[array])

    def is_between(self, here: Any, first: Any, last: Any) -> Any:
        """Emit a flag for each offset: whether it is in a range."""
        firsts, sizes = (splat(self.builder, n, LANES) for n in (first, self.builder.sub(last, first)))
        return self.builder.icmp_unsigned("<", self.builder.sub(here, firsts), sizes)

    def select(self, flags: Any, lines: tuple[tuple[int, Any], ...], found: Any) -> None:
        """Emit stores of the flagged elements of lines behind the `found` ones of their arrays."""
        builder = self.builder
        at = builder.load(found)
        for array, line in lines:
            self.store(_compress(builder, line, flags), array, at)
        bits = builder.zext(builder.bitcast(flags, ir.IntType(LANES)), _LONG)
        builder.store(builder.add(at, builder.ctpop(bits)), found)


@intrinsic
def select_range(_context, offsets, count, first, last, own, numbers):
    """Write the offsets[:count] in [first, last) to own, and their positions to numbers; return how many.

    All are int64; the arrays have room for `count` rounded up to whole lines.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, count, first, last, _, _ = arguments
        lines, steps = _Lines(context, builder, signature, arguments), ir.Constant(_LINE, list(range(LANES)))
        found = cgutils.alloca_once_value(builder, _LONG(0))
        with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(LANES), inc=True) as (index, _):
            here, number = lines.load(0, index), builder.add(splat(builder, index, LANES), steps)
            there = builder.icmp_signed("<", number, splat(builder, count, LANES))
            lines.select(builder.and_(lines.is_between(here, first, last), there), ((4, here), (5, number)), found)
        return builder.load(found)

    number = types.intp
    return number(offsets, number, number, number, own, numbers), generate


@intrinsic
def select_values(_context, offsets, count, first, last, values, begin, own, chosen):
    """Do the same, but write the elements of values[begin:] there to chosen. count: a multiple of LANES."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, count, first, last, _, begin, _, _ = arguments
        lines, found = _Lines(context, builder, signature, arguments), cgutils.alloca_once_value(builder, _LONG(0))
        with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(LANES), inc=True) as (index, _):
            here, value = lines.load(0, index), lines.load(4, builder.add(begin, index))
            lines.select(lines.is_between(here, first, last), ((6, here), (7, value)), found)
        return builder.load(found)

    number = types.intp
    return number(offsets, number, number, number, values, number, own, chosen), generate


@intrinsic
def select_indices(_context, words, start, wide, signed, size, base, values, begin, count, first, last, own, chosen):
    """Linearize and select in one pass, for contiguous indices from words[start] on; an offset is base + index.

    Return how many are selected, or -1 if any index is out of range. See add_lines and select_values. In one pass
    offsets and values stay in registers.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, start, wide, signed, size, base, _, begin, count, first, last, _, _ = arguments
        lines, found = _Lines(context, builder, signature, arguments), cgutils.alloca_once_value(builder, _LONG(0))
        bad = cgutils.alloca_once_value(builder, ir.Constant(_LINE, [0] * LANES))
        counting = _Counting(builder, size, signed)
        with builder.if_else(cgutils.is_not_null(builder, wide)) as branches:
            for branch, kind in zip(branches, (_LONG, _WORD), strict=True):
                with branch, cgutils.for_range_slice(builder, _LONG(0), count, _LONG(LANES), inc=True) as (index, _):
                    step = builder.mul(index, _LONG(kind.width // _WORD.width))
                    place = address(context, builder, signature, arguments, 0, builder.add(start, step))
                    emit_prefetch(builder, builder.gep(place, [_LONG(PREFETCH)]))
                    raw = builder.load(builder.bitcast(place, ir.VectorType(kind, LANES).as_pointer()), align=4)
                    counted = counting.from_start(raw, signed, bad)
                    here = builder.add(counted, splat(builder, base, LANES))
                    value = lines.load(6, builder.add(begin, index))
                    lines.select(lines.is_between(here, first, last), ((11, here), (12, value)), found)
        return builder.select(counting.is_any(bad), _LONG(-1), builder.load(found))

    number = types.intp
    arguments = (words, *[number] * 5, values, *[number] * 4, own, chosen)
    return number(*arguments), generate
