"""Rows of floats become codes of one byte a number, and facts that bound their error.

A row x is centered (x - m, cosines: x / |x| - m), multiplied by a power of two, and rotated: w = R (x - m). R is
orthogonal, so products and distances do not change. It spreads each dimension over many, so that one scale suits a
whole row of any data. R changes signs and is a Walsh-Hadamard matrix for each power of two that the depth is made of.
Then code = round(w / scale). The scale is so great that the length of the codes hardly differs from row to row.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.vectors import call, constant, vector
from dmlcpu.kernels.search.constants import (
    CODE_LENGTH,
    COSINE,
    DISTANCE,
    FACTS,
    FAR,
    GREATEST,
    LENGTH,
    RESIDUAL,
    ROUNDED_PRODUCTS,
    SQUARE,
    TERM,
)
from dmlcpu.kernels.search.float_sums import (
    LANES,
    as_doubles,
    greatest,
    make_tile_sums,
    sum_of_lanes,
)
from dmlcpu.kernels.search.rotation import LANES as MIXED, mixed, rotate
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words, emitted, splat
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import LINE_CELLS, record, record_at

ENCODE = record(
    rows=np.int64,
    depth=np.int64,
    metric=np.int64,
    factor=np.float64,
    most=np.float64,  # the greatest absolute value of a code
    share_cells=np.int64,  # of a part's workspace
)
LOOKED_AT = 2.0**990  # a row whose squares sum to more is searched for numbers that are too great, and NaN
LEAST_SQUARE = 2.0**-900
LEAST_SCALE = np.float32(2.0**-90)  # far above what float32 loses in the rotation, 2**-136 at most
TARGET = 40.0 / 127  # normal numbers have codes of this length, times the greatest code and the root of the depth
ROUND = 12582912.0  # 1.5 * 2**23: adding it to a float32, and subtracting it again, rounds half to even

sum_products = make_tile_sums(1, 1, ROUNDED_PRODUCTS)


def _in_lines(builder: Any, depth: Any, lanes: int, emit: Any) -> None:
    """Emit emit(first, count) for each `lanes` numbers, then for each remaining number, with a count of 1."""
    whole = builder.udiv(depth, depth.type(lanes))
    with cgutils.for_range(builder, whole) as loop:
        emit(builder.mul(loop.index, depth.type(lanes)), lanes)
    done = builder.mul(whole, depth.type(lanes))
    with cgutils.for_range(builder, builder.sub(depth, done)) as loop:
        emit(builder.add(done, loop.index), 1)


def _fused(builder: Any, one: Any, other: Any, added: Any) -> Any:
    """Emit one * other + added of vectors, fused if the processor does that fast."""
    name = f"llvm.fmuladd.v{one.type.count}f{64 if one.type.element == ir.DoubleType() else 32}"
    return call(builder, name, one.type, [one, other, added])


def _add_products(builder: Any, places: tuple[Any, Any], one: Any, other: Any) -> None:
    """Emit the addition of products of vectors, or of one lane, to the sums of their kind."""
    place = places[1] if one.type.count == 1 else places[0]
    builder.store(_fused(builder, one, other, builder.load(place)), place)


def _sums(builder: Any, element: Any, lanes: int) -> tuple[Any, Any]:
    """Emit sums of vectors, and of single lanes."""
    one, other = (constant(vector(element, count), 0.0) for count in (lanes, 1))
    return cgutils.alloca_once_value(builder, one), cgutils.alloca_once_value(builder, other)


def _total(builder: Any, places: tuple[Any, Any]) -> Any:
    rest = builder.extract_element(builder.load(places[1]), ir.IntType(32)(0))
    return builder.fadd(sum_of_lanes(builder, builder.load(places[0])), rest)


@emitted
def centre_row(builder, x, centre, signs, depth, scaled: types.float64, factor: types.float64, w, sums):
    """Write signs * float32(difference * factor), mixed within whole vectors; difference = x * scaled - centre.

    Add to `sums` the squares of the differences, and their products with centre.
    """
    double = ir.DoubleType()
    squares, products = _sums(builder, double, MIXED), _sums(builder, double, MIXED)

    def emit(at: Any, lanes: int) -> None:
        scale, multiplier = splat(builder, scaled, lanes), splat(builder, factor, lanes)
        own = centre.load(at, lanes)
        difference = _fused(builder, as_doubles(builder, x.load(at, lanes)), scale, builder.fneg(own))
        _add_products(builder, squares, difference, difference)
        _add_products(builder, products, difference, own)
        single = builder.fptrunc(builder.fmul(difference, multiplier), vector(ir.FloatType(), lanes))
        w.store(mixed(builder, builder.fmul(single, signs.load(at, lanes))), at)

    _in_lines(builder, depth, MIXED, emit)
    for place, totals in enumerate((squares, products)):
        builder.store(_total(builder, totals), sums.at(depth.type(place)))


@emitted
def round_codes(builder, w, depth, scale: types.float32, codes, sums):
    """Write codes = round(w / scale); add to `sums` the squares of the rounding errors, in scales, and of codes."""
    single, lines = ir.FloatType(), 2 * LANES
    lost, kept = _sums(builder, single, lines), _sums(builder, single, lines)
    inverse = builder.fdiv(single(1.0), scale)

    def emit(at: Any, lanes: int) -> None:
        kind = vector(single, lanes)
        exact = builder.fmul(w.load(at, lanes), splat(builder, inverse, lanes))
        moved = builder.fadd(exact, constant(kind, ROUND))
        rounded = builder.fsub(moved, constant(kind, ROUND))
        error = builder.fsub(exact, rounded)
        _add_products(builder, lost, error, error)
        _add_products(builder, kept, rounded, rounded)
        # The sum with ROUND has the rounded integer in its lowest byte.
        integers = builder.bitcast(moved, vector(ir.IntType(32), lanes))
        codes.store(builder.trunc(integers, vector(ir.IntType(8), lanes)), at)

    _in_lines(builder, depth, lines, emit)
    for place, totals in enumerate((lost, kept)):
        builder.store(builder.fpext(_total(builder, totals), ir.DoubleType()), sums.at(depth.type(place)))


@device
def without_codes(target):
    """Write no codes; return the scale that says so."""
    for i in range(target.size):
        target[i] = 0
    return np.float32(0)


@device
def encode_row(line, centre, signs, w, target, numbers, sums, fact, work):
    """Encode a row; return its scale, 0 if it has no codes, or -1 if it has a number that is refused.

    A row has no codes if it is too far away, or if its squares are subnormal, so that its cosine would lose digits.
    """
    depth, scaled = work.depth, 1.0
    for i in range(FACTS):
        fact[i] = 0
    if work.metric == COSINE:
        sum_products(line, 0, line, numbers, 0, depth, sums)
        fact[SQUARE] = sums[0]
        if not sums[0] < LOOKED_AT and not greatest(line, 0, depth) <= GREATEST:
            return np.float32(-1)
        if sums[0] < LEAST_SQUARE and greatest(line, 0, depth) > 0:
            return without_codes(target)
        scaled = 1 / math.sqrt(sums[0]) if sums[0] > 0 else 0.0
    centre_row(line, centre, signs, depth, scaled, work.factor, w, sums)
    if not sums[0] < LOOKED_AT and not greatest(line, 0, depth) <= GREATEST:
        return np.float32(-1)
    fact[TERM] = sums[0] if work.metric == DISTANCE else sums[1]
    fact[LENGTH] = math.sqrt(sums[0]) * work.factor
    if not fact[LENGTH] < FAR:
        return without_codes(target)
    rotate(w)
    least = np.float32(fact[LENGTH] / (TARGET * work.most * math.sqrt(depth)))
    scale = max(np.float32(greatest(w, 0, depth)) / np.float32(work.most), least, LEAST_SCALE)
    round_codes(w, depth, scale, target, sums)
    fact[RESIDUAL], fact[CODE_LENGTH] = math.sqrt(sums[0]), math.sqrt(sums[1])
    return scale


@kernel
def encode(part, parts, x, centre, signs, codes, scales, facts, bad, works, scratch):
    """Encode a share of the rows.

    x: floats, codes: int8 (rows, depth); centre: float64, signs: float32 (depth,), the signs of the rotation times its
    scale; scales: float32 (rows,), 0 of a row without codes; facts: float64 (rows, FACTS); bad: of each part the
    first row with NaN, infinity or a number beyond GREATEST, else -1. All are flat.
    """
    work = record_at(works, 0, ENCODE)
    depth, own = work.depth, part * work.share_cells
    first, last = share(part, parts, work.rows)
    bad[part * LINE_CELLS] = -1
    numbers, sums = as_words(scratch, own, np.int64), as_words(scratch, own + 1, np.float64)
    w = as_words(scratch, own + LINE_CELLS, np.float32)[:depth]
    numbers[0] = 0
    for row in range(first, last):
        at = row * depth
        fact = facts[row * FACTS : (row + 1) * FACTS]
        scale = encode_row(x[at : at + depth], centre, signs, w, codes[at : at + depth], numbers, sums, fact, work)
        if scale < 0:
            bad[part * LINE_CELLS] = row
            return
        scales[row] = scale
