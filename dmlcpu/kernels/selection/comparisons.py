"""Vector operations that compare a tile's scores with the least that may still be selected; see candidates.py.

A row of a tile has NR scores. Arrays have one or two dimensions, and need no alignment. `leasts` is Strided; the least
of each row is the lower half of a cell. Operations have two forms: `any_...` returns whether any score of a tile
reaches its least; `which_...` returns which rows have such scores, as bits, and writes what it finds. Most tiles need
only the first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.rows import QUIET_NAN
from dmlcpu.kernels.gemm.microkernels.vectors import WORD, constant, vector
from dmlcpu.runtime.intrinsics import Strided, emit_barrier, emitted, short_loop, splat

_INTS, _FLOATS = vector(WORD, NR), vector(ir.FloatType(), NR)
_FLAG = ir.IntType(1)
_UNROLLED = 4  # rows at a time
KEYS = 16  # keys of a list at a time


class Columns(NamedTuple):
    """The factors and addends of the sums of columns, from `column` on."""

    scales: Any  # float32
    bias: Any  # int32, or the bits of float32
    column: Any


class Found(NamedTuple):
    """What `which_...` writes."""

    bits: Any  # for each row: which of its scores reach its least
    scores: Any  # all of them: int32, or the bits of float32


def _loaded(builder: Any, columns: Columns) -> tuple[Any, Any]:
    """Return the scales and the bias of a tile's columns, as floats."""
    bias = columns.bias.load(columns.column, NR)
    return columns.scales.load(columns.column, NR), builder.bitcast(bias, _FLOATS)


def _make_sums(emit: Callable[..., Any]) -> Any:
    @emitted
    def sums(builder, acc, columns, shift: types.int32, flip: types.int32, leasts, found) -> types.uint32:
        """Compare the scores (acc << shift) + bias; all wrap at 32 bits.

        acc: int32, or whole numbers as float64; flip: before the comparison, exclusive or with it
        makes those scores greater that come first.
        """
        shifts, flips = splat(builder, shift, NR), splat(builder, flip, NR)
        added = columns.bias.load(columns.column, NR)

        def passes(row: Any, least: Any) -> Any:
            exact = acc.load(builder.mul(row, row.type(NR)), NR)
            if acc.element != WORD:
                exact = builder.trunc(builder.fptosi(exact, vector(ir.IntType(64), NR)), _INTS)
            value = builder.add(builder.shl(exact, shifts), added)
            return builder.icmp_signed(">=", builder.xor(value, flips), splat(builder, least, NR)), value

        return emit(builder, passes, leasts, found)

    return sums


def _make_floats(emit: Callable[..., Any]) -> Any:
    @emitted
    def floats(builder, acc, a_scales, columns, flip: types.int32, leasts, found) -> types.uint32:
        """Compare the scores float32(acc) * (a_scale * scale) + bias, each operation rounded; NaN reaches the least.

        acc: int32 or float64; a_scales: of the rows; the least: the bits of a float32; flip: changes the sign
        before the comparison.
        """
        of_columns, added = _loaded(builder, columns)
        flips = splat(builder, flip, NR)

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

        return emit(builder, passes, leasts, found)

    return floats


def _make_affine(emit: Callable[..., Any]) -> Any:
    @emitted
    def affine(builder, acc, a_scales, added, columns, leasts, found) -> types.uint32:
        """Compare the scores (float32(acc) * a_scale + added) * scale + bias, each operation rounded; none is NaN.

        acc: int32 or float64; a_scales, added: of the rows; the least: the bits of a float32.
        """
        of_columns, bias = _loaded(builder, columns)

        def passes(row: Any, least: Any) -> Any:
            exact = acc.load(builder.mul(row, row.type(NR)), NR)
            value = builder.sitofp(exact, _FLOATS) if acc.element == WORD else builder.fptrunc(exact, _FLOATS)
            value = builder.fmul(value, splat(builder, builder.load(a_scales.at(row)), NR))
            value = builder.fadd(value, splat(builder, builder.load(added.at(row)), NR))
            value = builder.fadd(builder.fmul(value, of_columns), bias)
            bound = splat(builder, builder.bitcast(least, ir.FloatType()), NR)
            return builder.fcmp_ordered(">=", value, bound), builder.bitcast(value, _INTS)

        return emit(builder, passes, leasts, found)

    return affine


def _least_of(builder: Any, leasts: Strided, row: Any) -> Any:
    return builder.trunc(builder.load(leasts.at(builder, row)), WORD)


def _emit_any(builder: Any, passes: Callable[..., Any], leasts: Strided, _: Found) -> Any:
    """Emit whether any score of some rows passes: four rows at a time, then single ones."""
    rows, number, none = leasts.count, leasts.count.type, constant(vector(_FLAG, NR), 0)
    every = cgutils.alloca_once_value(builder, none)

    def add(row: Any) -> None:
        flags, _ = passes(row, _least_of(builder, leasts, row))
        builder.store(builder.or_(builder.load(every), flags), every)

    whole = builder.udiv(rows, number(_UNROLLED))
    with short_loop(builder, whole) as i:
        for j in range(_UNROLLED):
            add(builder.add(builder.mul(i, number(_UNROLLED)), number(j)))
    done = builder.mul(whole, number(_UNROLLED))
    with short_loop(builder, builder.sub(rows, done)) as i:
        add(builder.add(done, i))
    return builder.bitcast(builder.load(every), WORD)


def _emit_which(builder: Any, passes: Callable[..., Any], leasts: Strided, found: Found) -> Any:
    """Emit the loop that writes each row's scores and which of them pass, and a bit for each row in which any does."""
    every = cgutils.alloca_once_value(builder, WORD(0))
    with short_loop(builder, leasts.count) as row:
        flags, score = passes(row, _least_of(builder, leasts, row))
        found.scores.store(score, builder.mul(row, row.type(NR)))
        bits = builder.bitcast(flags, WORD)
        builder.store(bits, found.bits.at(row))
        flag = builder.zext(builder.icmp_unsigned("!=", bits, WORD(0)), WORD)
        flag = builder.shl(flag, builder.trunc(row, WORD))
        builder.store(builder.or_(builder.load(every), flag), every)
    return builder.load(every)


any_sums, which_sums = map(_make_sums, (_emit_any, _emit_which))
any_floats, which_floats = map(_make_floats, (_emit_any, _emit_which))
any_affine, which_affine = map(_make_affine, (_emit_any, _emit_which))


@emitted
def insert_key(builder, cells, first, key: types.uint64, count):
    """Insert an unsigned key into the descending list cells[first : first + count]; the last key is lost.

    cells: int64; count: a multiple of KEYS; the cell before the list has all bits set.
    """
    keys, number = splat(builder, key, KEYS), first.type
    chunks = builder.udiv(count, number(KEYS))
    with short_loop(builder, chunks) as i:  # from the end, because each place gets the key before it
        behind = builder.mul(builder.sub(chunks, builder.add(i, number(1))), number(KEYS))
        place = builder.add(first, behind)
        own, before = cells.load(place, KEYS), cells.load(builder.sub(place, number(1)), KEYS)
        emit_barrier(builder)
        lower = builder.select(builder.icmp_unsigned("<", before, keys), before, keys)
        cells.store(builder.select(builder.icmp_unsigned(">", own, lower), own, lower), place)
