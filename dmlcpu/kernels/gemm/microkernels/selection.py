"""Vector operations that compare a tile's scores with the least that may still be selected; see gemm/candidates.py.

A row of a tile has NR scores. Arrays have one dimension or two, and need no alignment. For each row, the least is the
lower half of cells[first], the next row's is `step` cells behind. The operations come in two forms: `any_...` returns
whether any score of a tile reaches its least, `which_...` returns which rows have one, a bit for each, and writes to
found[row] which scores they are, and to `scores` all scores: int32, or the bits of float32. Most tiles need the first
alone.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.rows import QUIET_NAN
from dmlcpu.kernels.gemm.microkernels.vectors import WORD, constant, vector
from dmlcpu.runtime.intrinsics import emitted, short_loop, splat

_INTS, _FLOATS = vector(WORD, NR), vector(ir.FloatType(), NR)
_FLAG = ir.IntType(1)
_UNROLLED = 4  # rows at a time
KEYS = 16  # keys of a list at a time


def _make_sums(emit: Callable[..., Any]) -> Any:
    @emitted
    def sums(
        builder, acc, rows, bias, column, shift: types.int32, flip: types.int32, cells, first, step, found, scores
    ) -> types.uint32:
        """Compare the scores (acc << shift) + bias; all wrap at 32 bits.

        acc: int32, or whole numbers as float64; bias: the bits of int32, of columns from `column` on; flip: exclusive
        or with it makes greater what comes first, before the comparison.
        """
        shifts, flips = splat(builder, shift, NR), splat(builder, flip, NR)
        added = builder.bitcast(bias.load(column, NR), _INTS)

        def passes(row: Any, least: Any) -> Any:
            exact = acc.load(builder.mul(row, row.type(NR)), NR)
            if acc.element != WORD:
                exact = builder.trunc(builder.fptosi(exact, vector(ir.IntType(64), NR)), _INTS)
            value = builder.add(builder.shl(exact, shifts), added)
            return builder.icmp_signed(">=", builder.xor(value, flips), splat(builder, least, NR)), value

        return emit(builder, rows, passes, cells, first, step, found, scores)

    return sums


def _make_floats(emit: Callable[..., Any]) -> Any:
    @emitted
    def floats(
        builder, acc, rows, a_scales, scales, bias, column, flip: types.int32, cells, first, step, found, scores
    ) -> types.uint32:
        """Compare the scores float32(acc) * (a_scale * scale) + bias, each operation rounded; NaN reaches the least.

        acc: int32 or float64; a_scales: of the rows; the least: the bits of a float32; flip: of the sign, before the
        comparison.
        """
        of_columns, added, flips = scales.load(column, NR), bias.load(column, NR), splat(builder, flip, NR)

        def passes(row: Any, least: Any) -> Any:
            exact = acc.load(builder.mul(row, row.type(NR)), NR)
            value = builder.sitofp(exact, _FLOATS) if acc.element == WORD else builder.fptrunc(exact, _FLOATS)
            value = builder.fmul(value, builder.fmul(splat(builder, builder.load(a_scales.at(row)), NR), of_columns))
            value = builder.fadd(value, added)
            bits = builder.bitcast(value, _INTS)
            directed = builder.bitcast(builder.xor(bits, flips), _FLOATS)
            bound = splat(builder, builder.bitcast(least, ir.FloatType()), NR)
            is_nan = builder.fcmp_unordered("uno", value, value)
            score = builder.select(is_nan, constant(_INTS, QUIET_NAN), bits)
            return builder.fcmp_unordered(">=", directed, bound), score

        return emit(builder, rows, passes, cells, first, step, found, scores)

    return floats


def _least_of(builder: Any, cells: Any, first: Any, step: Any, row: Any) -> Any:
    return builder.trunc(builder.load(cells.at(builder.add(first, builder.mul(row, step)))), WORD)


def _emit_any(
    builder: Any, rows: Any, passes: Callable[..., Any], cells: Any, first: Any, step: Any, _found: Any, _scores: Any
) -> Any:
    """Emit whether any score of some rows passes: four rows at a time, then single ones."""
    number, none = rows.type, constant(vector(_FLAG, NR), 0)
    every = cgutils.alloca_once_value(builder, none)

    def add(row: Any) -> None:
        flags, _ = passes(row, _least_of(builder, cells, first, step, row))
        builder.store(builder.or_(builder.load(every), flags), every)

    whole = builder.udiv(rows, number(_UNROLLED))
    with short_loop(builder, whole) as i:
        for j in range(_UNROLLED):
            add(builder.add(builder.mul(i, number(_UNROLLED)), number(j)))
    done = builder.mul(whole, number(_UNROLLED))
    with short_loop(builder, builder.sub(rows, done)) as i:
        add(builder.add(done, i))
    return builder.bitcast(builder.load(every), WORD)


def _emit_which(
    builder: Any, rows: Any, passes: Callable[..., Any], cells: Any, first: Any, step: Any, found: Any, scores: Any
) -> Any:
    """Emit the loop that writes the scores of each row and which pass, and the bits of rows with one."""
    every = cgutils.alloca_once_value(builder, WORD(0))
    with short_loop(builder, rows) as row:
        flags, score = passes(row, _least_of(builder, cells, first, step, row))
        scores.store(score, builder.mul(row, row.type(NR)))
        bits = builder.bitcast(flags, WORD)
        builder.store(bits, found.at(row))
        flag = builder.zext(builder.icmp_unsigned("!=", bits, WORD(0)), WORD)
        flag = builder.shl(flag, builder.trunc(row, WORD))
        builder.store(builder.or_(builder.load(every), flag), every)
    return builder.load(every)


any_sums, which_sums = map(_make_sums, (_emit_any, _emit_which))
any_floats, which_floats = map(_make_floats, (_emit_any, _emit_which))


@emitted
def insert_key(builder, cells, first, key: types.uint64, count):
    """Insert a key into the list cells[first : first + count], the greatest first, without sign; the last one is lost.

    cells: int64; count: a multiple of KEYS; the cell before the list has all bits set.
    """
    keys, number = splat(builder, key, KEYS), first.type
    chunks = builder.udiv(count, number(KEYS))
    with short_loop(builder, chunks) as i:  # the last ones first: each place gets what is before it
        behind = builder.mul(builder.sub(chunks, builder.add(i, number(1))), number(KEYS))
        place = builder.add(first, behind)
        own, before = cells.load(place, KEYS), cells.load(builder.sub(place, number(1)), KEYS)
        lower = builder.select(builder.icmp_unsigned("<", before, keys), before, keys)
        cells.store(builder.select(builder.icmp_unsigned(">", own, lower), own, lower), place)
