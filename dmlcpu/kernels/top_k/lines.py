"""Vector operations on lines of keys, each `line_of` elements long, and on the bits that tell of one line."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import address, lanes_of, splat


def _line(context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: Any) -> tuple[Any, int]:
    """Emit the address of the line at the element `index` of an argument, as long as those of the first argument."""
    word = context.get_data_type(signature.args[array].dtype)
    line = ir.VectorType(word, lanes_of(context, signature.args[0].dtype))
    place = address(context, builder, signature, arguments, array, index)
    return builder.bitcast(place, line.as_pointer()), context.get_abi_sizeof(word)


def _load(context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: Any) -> Any:
    place, align = _line(context, builder, signature, arguments, array, index)
    return builder.load(place, align=align)


def _as_bits(builder: Any, flags: Any) -> Any:
    """Emit a vector of flags as an integer of 64 bits, the first flag as its lowest."""
    bits = builder.bitcast(flags, ir.IntType(flags.type.count))
    return bits if flags.type.count == 64 else builder.zext(bits, ir.IntType(64))


@intrinsic
def reach(_context, array, index, least):
    """Return a bit for each element of the line at array[index]: whether it is at least `least`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        elements = _load(context, builder, signature, arguments, 0, arguments[1])
        bound = splat(builder, arguments[2], elements.type.count)
        return _as_bits(builder, builder.icmp_unsigned(">=", elements, bound))

    return types.uint64(array, types.intp, array.dtype), generate


@intrinsic
def exceed(_context, array, index, other, place):
    """Return a bit for each element of the line at array[index]: whether it exceeds its opposite at other[place]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        elements = _load(context, builder, signature, arguments, 0, arguments[1])
        others = _load(context, builder, signature, arguments, 2, arguments[3])
        return _as_bits(builder, builder.icmp_unsigned(">", elements, others))

    return types.uint64(array, types.intp, other, types.intp), generate


@intrinsic
def greatest_line(_context, array, first, step, end, target, place):
    """Write the greatest of the lines at array[first], array[first + step], ... to the line at target[place].

    The last line begins before array[end]; the first is always read.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, first, step, end, _, place = arguments
        greatest = cgutils.alloca_once_value(builder, _load(context, builder, signature, arguments, 0, first))
        with cgutils.for_range_slice(builder, builder.add(first, step), end, step, inc=True) as (index, _):
            line, before = _load(context, builder, signature, arguments, 0, index), builder.load(greatest)
            builder.store(builder.select(builder.icmp_unsigned(">", line, before), line, before), greatest)
        there, align = _line(context, builder, signature, arguments, 4, place)
        builder.store(builder.load(greatest), there, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, types.intp, target, types.intp), generate


def _make_insert(comparison: str) -> Any:
    @intrinsic
    def insert(_context, keys, new, position, best, positions, first, step, count):
        """Insert each key of the line at keys[new], all of one position, into a sorted list of `count` keys of its own.

        The lists are the columns of the lines at best[first], best[first + step], ..., with each key's position in
        `positions`. A key takes the place of the first that it reaches (`insert`) or exceeds (`insert_after_equals`),
        and that one the next place, to the end. Displaced keys stay in registers.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            newcomer = _load(context, builder, signature, arguments, 0, arguments[1])
            moving = cgutils.alloca_once_value(builder, newcomer)
            place = context.cast(builder, arguments[2], types.intp, signature.args[4].dtype)
            moving_at = cgutils.alloca_once_value(builder, splat(builder, place, newcomer.type.count))
            with cgutils.for_range(builder, arguments[7], intp=arguments[7].type) as loop:
                index = builder.add(arguments[5], builder.mul(loop.index, arguments[6]))
                there, align = _line(context, builder, signature, arguments, 3, index)
                there_at, align_at = _line(context, builder, signature, arguments, 4, index)
                new, new_at = builder.load(moving), builder.load(moving_at)
                held, held_at = builder.load(there, align=align), builder.load(there_at, align=align_at)
                wins = builder.icmp_unsigned(comparison, newcomer, held)  # then also against all that follow
                builder.store(builder.select(wins, new, held), there, align=align)
                builder.store(builder.select(wins, new_at, held_at), there_at, align=align_at)
                builder.store(builder.select(wins, held, new), moving)
                builder.store(builder.select(wins, held_at, new_at), moving_at)
            return context.get_dummy_value()

        arguments = (keys, types.intp, types.intp, best, positions, types.intp, types.intp, types.intp)
        return types.void(*arguments), generate

    return insert


insert, insert_after_equals = _make_insert(">="), _make_insert(">")


@intrinsic
def lowest_bit(_context, bits):
    """Return the number of the lowest bit that is set; at least one must be."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), generate


@intrinsic
def count_bits(_context, bits):
    """Return how many bits are set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.intp(types.uint64), generate
