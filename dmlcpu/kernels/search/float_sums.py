"""Exact products and squared differences of rows of floats, in float64 and in one order.

Element d is added to sum d % 8; at the end sum i + 4 is added to sum i, then i + 2, then i + 1. Products of float32 are
exact in float64, so a processor may fuse them with the addition. Other terms are rounded before they are added. So the
sums are the same on every processor, and in a tile of any size.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.vectors import call, constant, shuffle, vector
from dmlcpu.kernels.search.constants import DISTANCES, PRODUCTS
from dmlcpu.runtime.intrinsics import emitted

LANES = 8
_DOUBLE = ir.DoubleType()
_DOUBLES = vector(_DOUBLE, LANES)


def _wide(builder: Any, value: Any, kind: Any) -> Any:
    return value if value.type == kind else builder.fpext(value, kind)


def _added(builder: Any, total: Any, one: Any, other: Any, terms: int) -> Any:
    """Emit total + one * other, or total + (one - other)**2."""
    if terms == DISTANCES:
        one = other = builder.fsub(one, other)
    elif terms == PRODUCTS:  # fused where the processor can
        name = "llvm.fmuladd.f64" if one.type == _DOUBLE else f"llvm.fmuladd.v{LANES}f64"
        return call(builder, name, one.type, [one, other, total])
    return builder.fadd(total, builder.fmul(one, other))


def as_doubles(builder: Any, values: Any) -> Any:
    """Emit a vector of floats as float64."""
    return _wide(builder, values, vector(_DOUBLE, values.type.count))


def sum_of_lanes(builder: Any, sums: Any) -> Any:
    """Emit the sum of all lanes: add one half to the other, then again."""
    width = sums.type.count
    while width > 1:
        width //= 2
        halves = [shuffle(builder, sums, sums, list(range(start, start + width))) for start in (0, width)]
        sums = builder.fadd(*halves)
    return builder.extract_element(sums, ir.IntType(32)(0))


def make_tile_sums(rows: int, columns: int, terms: int) -> Callable[..., Any]:
    """Return an intrinsic: the sums of `rows` rows of a with `columns` rows of b, written to sums[0 : rows * columns].

    a and b: float32 or float64, rows of `depth` numbers; for PRODUCTS all must be float32 numbers. The rows of a begin
    at a[a_at], one after the other; b_at[b_first : b_first + columns] are the numbers of the rows of b.
    """

    @emitted
    def tile_sums(builder, a, a_at, b, b_at, b_first, depth, sums):
        """Write the sums of a tile."""
        index = depth.type
        starts = []
        for j in range(columns):
            row = builder.load(b_at.at(builder.add(b_first, index(j))))
            starts.append(builder.mul(row, depth))
        lefts = [builder.add(a_at, builder.mul(index(i), depth)) for i in range(rows)]
        places = [[cgutils.alloca_once_value(builder, constant(_DOUBLES, 0.0)) for _ in range(columns)]
                  for _ in range(rows)]  # fmt: skip
        whole = builder.udiv(depth, index(LANES))
        with cgutils.for_range(builder, whole) as loop:
            at = builder.mul(loop.index, index(LANES))
            ones = [_wide(builder, a.load(builder.add(left, at), LANES), _DOUBLES) for left in lefts]
            others = [_wide(builder, b.load(builder.add(start, at), LANES), _DOUBLES) for start in starts]
            for i, one in enumerate(ones):
                for j, other in enumerate(others):
                    total = builder.load(places[i][j])
                    builder.store(_added(builder, total, one, other, terms), places[i][j])
        done = builder.mul(whole, index(LANES))
        with cgutils.for_range(builder, builder.sub(depth, done)) as loop:
            at, lane = builder.add(done, loop.index), builder.trunc(loop.index, ir.IntType(32))
            ones = [_wide(builder, builder.load(a.at(builder.add(left, at))), _DOUBLE) for left in lefts]
            others = [_wide(builder, builder.load(b.at(builder.add(start, at))), _DOUBLE) for start in starts]
            for i, one in enumerate(ones):
                for j, other in enumerate(others):
                    totals = builder.load(places[i][j])
                    total = builder.extract_element(totals, lane)
                    total = _added(builder, total, one, other, terms)
                    builder.store(builder.insert_element(totals, total, lane), places[i][j])
        for i in range(rows):
            for j in range(columns):
                total = sum_of_lanes(builder, builder.load(places[i][j]))
                builder.store(total, sums.at(index(i * columns + j)))

    return tile_sums


@emitted
def greatest(builder, x, first, count) -> types.float64:
    """Return the greatest absolute value of x[first : first + count], infinity or NaN if any is among them."""
    bits = ir.IntType(32 if x.element == ir.FloatType() else 64)
    lines = vector(bits, 2 * LANES)

    def magnitude(value: Any, kind: Any, mask: Any) -> Any:
        return builder.and_(builder.bitcast(value, kind), mask)  # ordered like absolute values; NaN is the greatest

    def keep(place: Any, value: Any) -> None:
        most = builder.load(place)
        builder.store(builder.select(builder.icmp_unsigned(">", value, most), value, most), place)

    mask = 2 ** (bits.width - 1) - 1
    most, rest = cgutils.alloca_once_value(builder, constant(lines, 0)), cgutils.alloca_once_value(builder, bits(0))
    whole = builder.udiv(count, count.type(2 * LANES))
    with cgutils.for_range(builder, whole) as loop:
        at = builder.add(first, builder.mul(loop.index, count.type(2 * LANES)))
        keep(most, magnitude(x.load(at, 2 * LANES), lines, constant(lines, mask)))
    done = builder.mul(whole, count.type(2 * LANES))
    with cgutils.for_range(builder, builder.sub(count, done)) as loop:
        at = builder.add(first, builder.add(done, loop.index))
        keep(rest, magnitude(builder.load(x.at(at)), bits, bits(mask)))
    width, value = 2 * LANES, builder.load(most)
    while width > 1:
        width //= 2
        one, other = [shuffle(builder, value, value, list(range(start, start + width))) for start in (0, width)]
        value = builder.select(builder.icmp_unsigned(">", one, other), one, other)
    keep(rest, builder.extract_element(value, ir.IntType(32)(0)))
    return _wide(builder, builder.bitcast(builder.load(rest), x.element), _DOUBLE)
