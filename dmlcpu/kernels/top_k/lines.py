"""Vector operations on lines of keys, and on integers with a bit for each key of a line.

A line has `line_of` elements, of the first array of the operation.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import emit_barrier, emitted, splat


def _as_bits(builder: Any, flags: Any) -> Any:
    """Emit a vector of flags as an integer of 64 bits, the first flag as its lowest."""
    bits = builder.bitcast(flags, ir.IntType(flags.type.count))
    return bits if flags.type.count == 64 else builder.zext(bits, ir.IntType(64))


@emitted
def reach(builder, array, index, least: Any) -> types.uint64:
    """Return a bit for each element of the line at array[index]: whether it is at least `least`, which has its type."""
    bound = splat(builder, least, array.lanes)
    return _as_bits(builder, builder.icmp_unsigned(">=", array.load(index, array.lanes), bound))


@emitted
def exceed(builder, array, index, other, place) -> types.uint64:
    """Return a bit for each element of the line at array[index]: whether it exceeds its opposite at other[place]."""
    line, opposites = array.load(index, array.lanes), other.load(place, array.lanes)
    return _as_bits(builder, builder.icmp_unsigned(">", line, opposites))


def _make_insert(comparison: str) -> Any:
    @emitted
    def insert(builder, keys, new, position, best, first, step, count):
        """Insert each key of the line at keys[new], all of one position, into its own sorted list of `count` keys.

        best: Candidates; the lists are the columns of the lines from `first` on, `step` apart. A key takes the place of
        the first that it reaches (`insert`) or exceeds (`insert_after_equals`), and that one the next place, to the
        end. Displaced keys stay in registers.
        """
        newcomer = keys.load(new, keys.lanes)
        moving = cgutils.alloca_once_value(builder, newcomer)
        position = builder.trunc(position, best.positions.element)
        moving_at = cgutils.alloca_once_value(builder, splat(builder, position, keys.lanes))
        with cgutils.for_range(builder, count, intp=count.type) as loop:
            index = builder.add(first, builder.mul(loop.index, step))
            held, held_at = (each.load(index, keys.lanes) for each in best)
            new, new_at = builder.load(moving), builder.load(moving_at)
            emit_barrier(builder)
            wins = builder.icmp_unsigned(comparison, newcomer, held)  # and then against all keys that follow
            best.keys.store(builder.select(wins, new, held), index)
            best.positions.store(builder.select(wins, new_at, held_at), index)
            builder.store(builder.select(wins, held, new), moving)
            builder.store(builder.select(wins, held_at, new_at), moving_at)

    return insert


insert, insert_after_equals = _make_insert(">="), _make_insert(">")


@emitted
def count_bits(builder, bits: types.uint64) -> types.intp:
    """Return how many bits are set."""
    return builder.ctpop(bits)
