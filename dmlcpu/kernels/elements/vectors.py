"""Gathers in instructions that load a vector of elements from as many addresses."""

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import emitted, splat
from dmlcpu.runtime.isa import target_features

_LANES = 8  # addresses in 512 bits
_WORDS = 4, 8  # bytes of the elements that such instructions load
_FEATURES = "avx512f", "avx512vl", "avx512bf16"  # no set, whose order, and so the digest, differs between processes
_BIT, _MASK, _LONG = ir.IntType(1), ir.IntType(_LANES), ir.IntType(64)


def vectors_pay(nbytes: int) -> bool:
    """Return whether a vector of loads is faster than single ones; nbytes: of an element.

    A processor has more of them under way at once: two threads gather 100,000 rows of 64 elements out of 10,000 rows in
    4.0 ms instead of 5.2 (Zen 4). Intel's processors before Sapphire Rapids gather slowly since a microcode update
    (INTEL-SA-00828); nearly all of them lack AVX512_BF16, so this looks for it. AVX2's gathers are no faster than
    single loads.
    """
    return nbytes in _WORDS and target_features().issuperset(_FEATURES)


class Rows(NamedTuple):
    """Rows [first, last), and how many elements each has."""

    first: Any
    last: Any
    count: Any


class InRows(NamedTuple):
    """Where elements of rows are in an array: element k of row r is at first + r * row + k * step."""

    array: Any
    first: Any
    row: Any
    step: Any


@emitted
def fetch_rows(builder, rows, places, bounds, values, table, scale) -> types.intp:
    """Write the elements of whole rows, up to the first row with an invalid place; return the number of that row.

    places, values, table: `InRows`; in the table, place p is p * scale further on; bounds: `Bounds`. Return rows.first
    if places or values are not packed, if rows are short, or if vectors do not pay: nor do they in a table of one line,
    which the first cache may hold (1,000 rows of 1,000 along the last axis took 1.9 ms instead of 0.6).
    """
    row = cgutils.alloca_once_value(builder, rows.first)
    if vectors_pay(table.array.nbytes):
        conditions = [builder.icmp_signed("==", each.step, _LONG(1)) for each in (places, values)]
        conditions.append(builder.icmp_signed("!=", table.step, _LONG(0)))
        conditions.append(builder.icmp_signed(">=", rows.count, _LONG(_LANES)))
        with builder.if_then(functools.reduce(builder.and_, conditions)):
            _emit_rows(builder, rows, places, bounds, values, table, scale, row)
    return builder.load(row)


def _emit_rows(
    builder: Any, rows: Any, places: Any, bounds: Any, values: Any, table: Any, scale: Any, row: Any
) -> None:
    """Emit the loop over rows; row: the variable for the number of the row."""
    limit, size, from_end, scale, step = (splat(builder, each, _LANES) for each in (*bounds, scale, table.step))
    lanes = builder.mul(step, ir.Constant(step.type, [_LONG(lane) for lane in range(_LANES)]))
    stop, end = builder.append_basic_block("stop"), builder.sub(rows.count, _LONG(_LANES))
    every = ir.Constant(ir.VectorType(_BIT, _LANES), [_BIT(1)] * _LANES)
    valid = cgutils.alloca_once_value(builder, every)
    with cgutils.for_range_slice(builder, rows.first, rows.last, _LONG(1), inc=True) as (number, _):
        builder.store(number, row)
        starts = [builder.add(each.first, builder.mul(number, each.row)) for each in (places, values, table)]
        with cgutils.for_range_slice(builder, _LONG(0), rows.count, _LONG(_LANES), inc=True) as (column, _):
            # The last vector overlaps the one before it if the row does not consist of whole vectors.
            k = builder.select(builder.icmp_signed("<", column, end), column, end)
            raw = builder.zext(places.array.load(builder.add(starts[0], k), _LANES), step.type)
            place = builder.select(builder.icmp_unsigned("<", raw, limit), raw, builder.add(raw, from_end))
            are_valid = builder.icmp_unsigned("<", place, size)
            builder.store(builder.and_(builder.load(valid), are_valid), valid)
            line = splat(builder, builder.add(starts[2], builder.mul(k, table.step)), _LANES)
            indices = builder.add(builder.add(line, lanes), builder.mul(place, scale))
            elements = _load_all(builder, table.array, indices, are_valid)
            values.array.store(elements, builder.add(starts[1], k))
        is_valid = builder.icmp_unsigned("==", builder.bitcast(builder.load(valid), _MASK), _MASK(-1))
        following = builder.append_basic_block("following")
        builder.cbranch(is_valid, following, stop)
        builder.position_at_end(following)
    builder.store(rows.last, row)
    builder.branch(stop)
    builder.position_at_end(stop)


def _load_all(builder: Any, array: Any, indices: Any, mask: Any) -> Any:
    """Emit the load of an array's elements at a vector of indices, where the mask is set."""
    element = array.element
    base = splat(builder, builder.ptrtoint(array.at(_LONG(0)), _LONG), _LANES)
    distances = builder.mul(indices, ir.Constant(indices.type, [_LONG(array.nbytes)] * _LANES))
    pointers = builder.inttoptr(builder.add(base, distances), ir.VectorType(element.as_pointer(), _LANES))
    vector = ir.VectorType(element, _LANES)
    kind = ir.FunctionType(vector, [pointers.type, ir.IntType(32), mask.type, vector])
    name = f"llvm.masked.gather.v{_LANES}i{element.width}.v{_LANES}p0"
    load = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(load, [pointers, ir.IntType(32)(array.nbytes), mask, ir.Constant(vector, ir.Undefined)])
