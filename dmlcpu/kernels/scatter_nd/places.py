"""Loops in LLVM's instructions that update single elements one after the other: all of a call, or those of a share.

For each update a loop only loads the index and the value, checks the index, and updates the element. So a processor has
the loads of many updates under way at once. Two threads that each read all indices and apply their own updates were
slower, because they mispredict branches (Zen 3 and Zen 4, 900 to 1,000,000 elements).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import Strided, emit_prefetch, emitted
from dmlcpu.runtime.jit import device

# Updates in an iteration of a loop. Nanoseconds for an update when 4,000,000 float32 are added to 1,000 (Zen 4): 0.83
# with 1 update, 0.66 with 2. With 4 the addresses do not fit the registers: if 250,000 updates overwrite 10,000
# elements, an update takes 0.83 ns, and with 2 only 0.55.
_TURN = 2
_PACKED_TURN = 8  # the same, if elements are read from one line
_LONG = ir.IntType(64)
# Weights of a branch. They keep LLVM from making it a select, which would lengthen a hot element's chain of updates.
_USUAL = 100_000, 1


class Bounds(NamedTuple):
    """Which places are valid."""

    limit: Any  # `from_end` is added, modulo 2**64, to places that are not below it
    size: Any  # then those from 0 to size - 1 are valid
    from_end: Any


@device
def bounds_within(size, is_wide, is_signed):
    """Return the bounds of a dimension's indices that are read in place; narrow ones are read as uint32."""
    size = np.int64(size)
    if is_signed == 0:
        return Bounds(size, size, np.int64(0))
    if is_wide != 0:
        return Bounds(size, size, size)
    return Bounds(np.int64(min(size, np.int64(1 << 31))), size, np.int64(size - np.int64(1 << 32)))


class Table(NamedTuple):
    """Where in an array the places of lines are: place p of number n is at first + n * step + p * scale."""

    array: Any
    first: Any
    step: Any
    scale: Any


class _Loop(NamedTuple):
    """The arguments of all loops, as LLVM values and `Elements`."""

    builder: Any
    places: Strided
    bounds: Bounds
    values: Strided
    first: Any
    out: Any
    at: Callable[[Any, Any], Any]  # emits, of a number and its place, where in `out` the place is
    refused: Any  # the variable for the number of the first update out of range
    done: Any


def _arithmetic(name: str) -> Callable[[_Loop, Any, Any], Any]:
    """Return a function that emits the operation of an LLVM name; any NaN of floats becomes the quiet one."""

    def emit(loop: _Loop, mine: Any, update: Any) -> Any:
        if isinstance(mine.type, ir.IntType):
            return getattr(loop.builder, name)(mine, update)
        value = getattr(loop.builder, f"f{name}")(mine, update)
        is_nan = _is_nan(loop.builder, value)
        return _unless(loop.builder, is_nan, value, lambda: ir.Constant(value.type, float("nan")))

    return emit


def _extreme(sign: str, is_signed: bool = False) -> Callable[[_Loop, Any, Any], Any]:
    """Return a function that emits the minimum or maximum of reduction.py; sign: compares the update with mine."""

    def emit(loop: _Loop, mine: Any, update: Any) -> Any:
        builder = loop.builder
        if isinstance(mine.type, ir.IntType):
            compare = builder.icmp_signed if is_signed else builder.icmp_unsigned
            return builder.select(compare(sign, update, mine), update, mine)
        chosen = builder.select(builder.fcmp_ordered(sign, update, mine), update, mine)
        # A NaN among the updates wins, unless the element is one already.
        is_nan = _is_nan(builder, update)
        return _unless(builder, is_nan, chosen, lambda: builder.select(_is_nan(builder, mine), mine, update))

    return emit


def _is_nan(builder: Any, value: Any) -> Any:
    return builder.fcmp_unordered("uno", value, value)


def _unless(builder: Any, is_rare: Any, usual: Any, emit: Callable[[], Any]) -> Any:
    """Emit a value, or the result of `emit` in a rare case."""
    before, rare, after = builder.block, builder.append_basic_block("rare"), builder.append_basic_block("after")
    builder.cbranch(is_rare, rare, after).set_weights(_USUAL[::-1])
    builder.position_at_end(rare)
    other = emit()
    end = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    result = builder.phi(usual.type)
    result.add_incoming(usual, before)
    result.add_incoming(other, end)
    return result


# The numbers of reduction.py: overwrite, add, multiply, minimum, maximum, then minimum and maximum of signed integers.
_FETCH = "fetch"  # instead of these: values are read from the table, not written to it
_COMBINED = (None, _arithmetic("add"), _arithmetic("mul"), _extreme("<"), _extreme(">"))
_SIGNED = (_extreme("<", is_signed=True), _extreme(">", is_signed=True))


def _update(loop: _Loop, index: Any, ahead: int, combine: Any) -> None:
    """Emit update number index + ahead. If its place is out of range, the number is stored and the loop ends."""
    builder = loop.builder

    def at(x: Strided) -> Any:
        # Only the first update of an iteration needs a product: the distances to the others are constants of the loop.
        return x.array.at(builder.add(x.place(builder, index), builder.mul(x.step, _LONG(ahead))))

    raw = builder.load(at(loop.places), align=4)
    raw = raw if raw.type == _LONG else builder.zext(raw, _LONG)
    start = builder.block
    other, known, bad = (builder.append_basic_block(name) for name in ("other", "known", "bad"))
    builder.cbranch(builder.icmp_unsigned("<", raw, loop.bounds.limit), known, other).set_weights(_USUAL)
    builder.position_at_end(other)
    counted = builder.add(raw, loop.bounds.from_end)
    builder.cbranch(builder.icmp_unsigned("<", counted, loop.bounds.size), known, bad)
    builder.position_at_end(bad)
    builder.store(builder.add(index, _LONG(ahead)), loop.refused)
    builder.branch(loop.done)
    builder.position_at_end(known)
    place = builder.phi(_LONG)
    place.add_incoming(raw, start)
    place.add_incoming(counted, other)
    target = loop.out.at(loop.at(builder.add(index, _LONG(ahead)), place))
    if combine is _FETCH:
        builder.store(builder.load(target), at(loop.values))
        return
    new = builder.load(at(loop.values))
    if combine is None:
        # Stores wait for their cache lines in order, prefetches do not. Milliseconds without and with prefetch (Zen 4),
        # 1,000,000 float32 into 100,000: 1.4 and 1.0, into 500,000: 1.7 and 1.4, into 1,000: 0.62 either way.
        emit_prefetch(builder, target)
    builder.store(combine(loop, builder.load(target), new) if combine else new, target)


def _update_all(loop: _Loop, combine: Any, turn: int = _TURN) -> None:
    """Emit the updates from the first on: several in an iteration, then the rest one by one."""
    builder, end = loop.builder, loop.places.count
    turns = builder.sub(end, builder.srem(builder.sub(end, loop.first), _LONG(turn)))
    for first, last, count in ((loop.first, turns, turn), (turns, end, 1)):
        with cgutils.for_range_slice(builder, first, last, _LONG(count), inc=True) as (index, _):
            for ahead in range(count):
                _update(loop, index, ahead, combine)


@emitted
def update_places(builder, places, bounds, values, first, out, reduction) -> types.intp:
    """Update out[place] for the places from number `first` on, each with the value of its number.

    places, values: Strided; places are int64 or uint32. Return the number of the first invalid place, where the updates
    end, or the number of places.
    """
    return _emit_all(builder, (places, bounds, values, first), out, lambda number, place: place, reduction)


@emitted
def update_lines(builder, places, bounds, values, first, table, reduction) -> types.intp:
    """Do the same in a `Table`, in which each position has its own line, or all share one."""
    return _emit_all(builder, (places, bounds, values, first), table.array, _places_of(builder, table), reduction)


@emitted
def fetch_lines(builder, places, bounds, values, first, table) -> types.intp:
    """Read elements of a `Table`, and write them to the places of values.

    Packed places and values with one packed line take half as many instructions, so a processor has twice as many loads
    under way: 64 elements of each of 4,096 lines of 50,000 take 3.5 ms instead of 5.2 (Zen 3, one thread).
    """
    loop, one = _loop(builder, (places, bounds, values, first), table.array, _places_of(builder, table)), _LONG(1)
    steps = (places.step, one), (values.step, one), (table.scale, one), (table.step, _LONG(0))
    are_packed = functools.reduce(builder.and_, [builder.icmp_signed("==", *each) for each in steps])
    with builder.if_else(are_packed) as (packed, other):
        with packed:
            sides = {"places": places._replace(step=one), "values": values._replace(step=one)}
            one_line = loop._replace(at=lambda _, place: builder.add(table.first, place), **sides)
            _update_all(one_line, _FETCH, _PACKED_TURN)
        with other:
            _update_all(loop, _FETCH)
    builder.branch(loop.done)
    builder.position_at_end(loop.done)
    return builder.load(loop.refused)


def _places_of(builder: Any, table: Table) -> Callable[[Any, Any], Any]:
    """Return a function that emits where in a table a place is."""

    def at(number: Any, place: Any) -> Any:
        line = builder.add(table.first, builder.mul(number, table.step))
        return builder.add(line, builder.mul(place, table.scale))

    return at


def _loop(builder: Any, given: Any, out: Any, at: Callable[[Any, Any], Any]) -> _Loop:
    """Return a loop that has refused nothing yet; given: its places, bounds, values and first number."""
    places, bounds, values, first = given
    refused, done = cgutils.alloca_once_value(builder, places.count), builder.append_basic_block("done")
    return _Loop(builder, places, bounds, values, first, out, at, refused, done)


def _emit_all(builder: Any, given: Any, out: Any, at: Callable[[Any, Any], Any], reduction: Any) -> Any:
    """Emit the updates of a reduction, and return the number of the first invalid one, or of all."""
    loop = _loop(builder, given, out, at)
    done = loop.done
    combined = _COMBINED if out.is_float else (*_COMBINED, *_SIGNED)
    ways = [builder.append_basic_block("way") for _ in combined]
    switch = builder.switch(reduction, done)
    for number, (way, combine) in enumerate(zip(ways, combined, strict=True)):
        switch.add_case(_LONG(number), way)
        builder.position_at_end(way)
        _update_all(loop, combine)
        builder.branch(done)
    builder.position_at_end(done)
    return builder.load(loop.refused)
