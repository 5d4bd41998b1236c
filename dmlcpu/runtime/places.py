"""Vector operations on index tuples and the places they name. Lines of places are written out as vectors.

Indices are given as uint32 words, the lower half of a wide one first, so that one compiled kernel serves all types.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import request_line, splat

LANES = 8  # places in a line
# How many words ahead of their use indices are asked for: a block of wide ones, whose updates are applied in between.
# Measured on 4,000,000 pairs of int64 into 4096 x 4096, two threads, ms of the check: none 8.6, 256 and 512 words 6.0,
# 1,024 words 6.5, 2,048 words 8.8.
AHEAD = 512
_WORD, _LONG = ir.IntType(32), ir.IntType(64)
_LINE = ir.VectorType(_LONG, LANES)


def _place(context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: Any) -> Any:
    """Return the address of the element `index` of an argument."""
    return builder.gep(context.make_array(signature.args[array])(context, builder, arguments[array]).data, [index])


def _extend(builder: Any, words: Any, signed: Any, kind: Any) -> Any:
    """Emit 64 bits of each word, by its sign if it has one."""
    is_signed = cgutils.is_not_null(builder, signed)
    return builder.select(is_signed, builder.sext(words, kind), builder.zext(words, kind))


@intrinsic
def load_index(_context, words, index, wide, signed):  # type: ignore[no-untyped-def]
    """Return the int64 that words[index] and, if it is `wide`, words[index + 1] hold; a narrow one may be `signed`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, index, wide, signed = arguments
        place = _place(context, builder, signature, arguments, 0, index)
        result = cgutils.alloca_once(builder, _LONG)
        with builder.if_else(cgutils.is_not_null(builder, wide)) as (then, otherwise):
            with then:
                builder.store(builder.load(builder.bitcast(place, _LONG.as_pointer()), align=4), result)
            with otherwise:
                builder.store(_extend(builder, builder.load(place), signed, _LONG), result)
        return builder.load(result)

    return types.int64(words, types.intp, types.intp, types.intp), generate


@intrinsic
def add_lines(_context, words, begin, stride, wide, signed, size, step, places, count):  # type: ignore[no-untyped-def]
    """Add step * index to places[:count], a multiple of LANES, for the indices from words[begin] on, `stride` apart.

    An index below 0, if they are `signed`, counts from `size`. Return a negative number if any is out of range.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, begin, stride, wide, signed, size, step, _, count = arguments

        def load(index: Any, kind: Any, stride: Any) -> Any:
            """Emit the load of LANES elements, `stride` words apart, or neighbours if it is None."""
            first = builder.add(begin, builder.mul(index, stride if stride else _LONG(kind.width // _WORD.width)))
            line = ir.VectorType(kind, LANES)
            place = _place(context, builder, signature, arguments, 0, first)
            request_line(builder, builder.gep(place, [_LONG(AHEAD)]))
            if stride is None:
                return builder.load(builder.bitcast(place, line.as_pointer()), align=4)
            elements = ir.Constant(line, ir.Undefined)
            for lane in range(LANES):
                there = builder.gep(place, [builder.mul(stride, _LONG(lane))])
                element = builder.load(builder.bitcast(there, kind.as_pointer()), align=4)
                elements = builder.insert_element(elements, element, _WORD(lane))
            return elements

        def walk(kind: Any, stride: Any) -> None:
            with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(LANES), inc=True) as (index, _):
                raw = load(index, kind, stride)
                raw = raw if kind is _LONG else _extend(builder, raw, signed, _LINE)
                counted = builder.add(raw, builder.and_(from_end, builder.ashr(raw, ir.Constant(_LINE, [63] * LANES))))
                wrong = builder.or_(counted, builder.sub(greatest, counted))
                builder.store(builder.or_(builder.load(bad), wrong), bad)
                place = _place(context, builder, signature, arguments, 7, index)
                place = builder.bitcast(place, _LINE.as_pointer())
                added = builder.add(builder.load(place, align=8), builder.mul(counted, steps))
                builder.store(added, place, align=8)

        from_end = splat(builder, builder.select(cgutils.is_not_null(builder, signed), size, _LONG(0)), LANES)
        greatest, steps = splat(builder, builder.sub(size, _LONG(1)), LANES), splat(builder, step, LANES)
        bad = cgutils.alloca_once_value(builder, ir.Constant(_LINE, [0] * LANES))
        with builder.if_else(cgutils.is_not_null(builder, wide)) as branches:
            for branch, kind in zip(branches, (_LONG, _WORD), strict=True):
                with branch:
                    words_each = _LONG(kind.width // _WORD.width)
                    with builder.if_else(builder.icmp_signed("==", stride, words_each)) as (then, otherwise):
                        with then:
                            walk(kind, None)
                        with otherwise:
                            walk(kind, stride)
        wrong = builder.load(bad)
        result = builder.extract_element(wrong, _WORD(0))
        for lane in range(1, LANES):
            result = builder.or_(result, builder.extract_element(wrong, _WORD(lane)))
        return result

    number = types.intp
    return number(words, *[number] * 6, places, number), generate


@intrinsic
def select_range(_context, places, count, first, last, own, numbers):  # type: ignore[no-untyped-def]
    """Write those of places[:count] from `first` to before `last` to own, and where they stand to numbers.

    Return how many there are. All are int64; the arrays have room for `count` rounded up to whole lines.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def address(array: int, index: Any) -> Any:
            place = _place(context, builder, signature, arguments, array, index)
            return builder.bitcast(place, _LINE.as_pointer())

        _, count, first, last, _, _ = arguments
        undefined, flags = ir.Constant(_LINE, ir.Undefined), ir.VectorType(ir.IntType(1), LANES)
        compress = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(_LINE, [_LINE, flags, _LINE]),
            f"llvm.experimental.vector.compress.v{LANES}i64",
        )
        steps = ir.Constant(_LINE, list(range(LANES)))
        firsts, sizes, counts = (splat(builder, n, LANES) for n in (first, builder.sub(last, first), count))
        found = cgutils.alloca_once_value(builder, _LONG(0))
        with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(LANES), inc=True) as (index, _):
            here = builder.load(address(0, index), align=8)
            number = builder.add(splat(builder, index, LANES), steps)
            is_own = builder.icmp_unsigned("<", builder.sub(here, firsts), sizes)
            is_own = builder.and_(is_own, builder.icmp_signed("<", number, counts))
            at = builder.load(found)
            for array, value in ((4, here), (5, number)):
                builder.store(builder.call(compress, [value, is_own, undefined]), address(array, at), align=8)
            bits = builder.zext(builder.bitcast(is_own, ir.IntType(LANES)), _LONG)
            builder.store(builder.add(at, builder.ctpop(bits)), found)
        return builder.load(found)

    number = types.intp
    return number(places, number, number, number, own, numbers), generate
