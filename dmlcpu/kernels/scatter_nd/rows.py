"""Vector operations on runs of elements, and copies of long ranges, by way of the caches or past them.

A run is processed in whole cache lines, then in halves, quarters, ... of one, without scalar loops.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import emit_barrier, emitted
from dmlcpu.runtime.records import CACHE_LINE

_LONG = ir.IntType(64)


def _emit_run(builder: Any, out: Any, o: Any, updates: Any, u: Any, count: Any, combine: Any = None) -> None:
    """Emit the overwriting of a run, or the update of its elements by combine(builder, mine, update)."""

    def emit(index: Any, width: int) -> None:
        at, new = builder.add(o, index), updates.load(builder.add(u, index), width)
        if combine:
            new = combine(builder, out.load(at, width), new)
        out.store(new, at)

    lanes = CACHE_LINE // out.nbytes
    rest = builder.and_(count, _LONG(lanes - 1))
    with cgutils.for_range_slice(builder, _LONG(0), builder.sub(count, rest), _LONG(lanes), inc=True) as (index, _):
        emit(index, lanes)
    width = lanes // 2
    while width:
        # All wider pieces come before this one.
        before = builder.and_(count, _LONG(-2 * width))
        with builder.if_then(cgutils.is_not_null(builder, builder.and_(count, _LONG(width)))):
            emit(before, width)
        width //= 2


def _add(builder: Any, mine: Any, update: Any) -> Any:
    """Emit sums: integers wrap, and every NaN is the same quiet one (see reduction.py)."""
    kind = mine.type
    if isinstance(kind.element, ir.IntType):
        return builder.add(mine, update)
    total = builder.fadd(mine, update)
    nan = ir.Constant(kind, [float("nan")] * kind.count)
    return builder.select(builder.fcmp_unordered("uno", total, total), nan, total)


@emitted
def copy_run(builder, out, o, updates, u, count):
    """Copy updates[u : u + count] to out[o:]; both are of one type and share no memory."""
    _emit_run(builder, out, o, updates, u, count)


@emitted
def add_run(builder, out, o, updates, u, count):
    """Add updates[u : u + count] to out[o:]; both are of one type and share no memory."""
    _emit_run(builder, out, o, updates, u, count, _add)


def _extreme(sign: str, is_signed: bool) -> Any:
    """Return a function that emits minima or maxima; sign: compares an update with the element, whose NaN wins."""

    def emit(builder: Any, mine: Any, update: Any) -> Any:
        emit_barrier(builder)
        if isinstance(mine.type.element, ir.IntType):
            compare = builder.icmp_signed if is_signed else builder.icmp_unsigned
            return builder.select(compare(sign, update, mine), update, mine)
        wins = builder.or_(
            builder.fcmp_ordered(sign, update, mine),
            builder.and_(builder.fcmp_unordered("uno", update, update), builder.fcmp_ordered("ord", mine, mine)),
        )
        return builder.select(wins, update, mine)

    return emit


def _extreme_run(sign: str, is_signed: bool = False) -> Any:
    """Return an intrinsic that replaces out[o:] by the extremes of itself and updates[u : u + count]."""

    @emitted
    def run(builder, out, o, updates, u, count):
        if not (is_signed and out.is_float):  # these have no such reduction
            _emit_run(builder, out, o, updates, u, count, _extreme(sign, is_signed))

    return run


minimum_run, maximum_run = _extreme_run("<"), _extreme_run(">")
signed_minimum_run, signed_maximum_run = _extreme_run("<", is_signed=True), _extreme_run(">", is_signed=True)


@emitted
def is_less(builder, a: Any, b: Any, is_signed: types.boolean) -> types.boolean:
    """Return whether a < b, both of one type; is_signed: integers have a sign."""
    if not isinstance(a.type, ir.IntType):
        return builder.fcmp_ordered("<", a, b)
    return builder.select(is_signed, builder.icmp_signed("<", a, b), builder.icmp_unsigned("<", a, b))


@emitted
def copy_range(builder, source, target, first, last):
    """Copy source[first:last] to the same place in another array of its type that shares no memory with it.

    This is the system's memcpy. It writes long copies past the caches, but decides only by the length of this copy; see
    `stream`.
    """
    here, there = source.at(first), target.at(first)
    nbytes = builder.mul(builder.sub(last, first), first.type(source.nbytes))
    cgutils.raw_memcpy(builder, there, here, nbytes, 1)


@emitted
def stream(builder, source, first, target, place, count):
    """Copy `count` elements from source[first:] to target[place:], both of one type, past the caches.

    They must fill whole cache lines of target. Other threads may see later writes of this thread before these, unless a
    `fence` comes between.
    """
    lanes = CACHE_LINE // source.nbytes
    once = builder.module.add_metadata([ir.IntType(32)(1)])
    with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(lanes), inc=True) as (index, _):
        line = source.load(builder.add(first, index), lanes)
        stored = target.store(line, builder.add(place, index), align=CACHE_LINE)
        stored.set_metadata("nontemporal", once)


@emitted
def fence(builder):
    """Make the earlier writes of this thread visible to others before its later ones."""
    builder.fence("seq_cst")
