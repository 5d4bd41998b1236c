"""The microkernel's interface, and the code that microkernels of all instruction sets share.

A microkernel multiplies a few rows of the left-hand side by a panel of the right-hand side, and adds the products to a
tile of accumulators. It is an intrinsic, made for an instruction set and a number of rows.

Operands are 32-bit words of four bytes that follow one another along K, unsigned on the left, signed on the right. A
word of the left is copied to all lanes of a vector. Each lane multiplies its four bytes by those of a word of the right
and adds the products to its accumulator. Accumulators wrap at 32 bits, so they are exact if the result fits.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from numba.core import cgutils

from dmlcpu.kernels.gemm.microkernels.units import Unit
from dmlcpu.kernels.gemm.microkernels.vectors import WORD, constant, load, store, vector
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import emit_prefetch, emitted, splat
from dmlcpu.runtime.isa import Isa
from dmlcpu.runtime.records import CACHE_LINE

MR = 12  # rows of the tallest tile of a vector unit
TALLEST = 32  # rows of the tallest tile of any unit, that of AMX
NR = 32  # columns of a tile, and of a panel of the right-hand side
KC = 256  # the most words of a row of the left-hand side
# Words from row to row: a cache line more than a chunk, because rows that are a power of two apart compete for the same
# cache sets. It is constant, so that one register addresses all rows.
ROW_STEP = KC + 16

PREFETCH = 64  # distance in groups of the right-hand side

_ONES = 0x01010101


class Microkernel(NamedTuple):
    """How the vector unit of an instruction set multiplies: up to MR rows at a time, and columns that divide NR."""

    unit: Unit
    prepare_lhs: Callable[[Any, Any], tuple[Any, ...]]  # (builder, vector): of a word of the left in all lanes
    prepare_rhs: Callable[[Any, Any], tuple[Any, ...]]  # (builder, vector): of words of the right
    multiply: Callable[..., Any]  # (builder, acc, lhs, rhs) -> acc
    # `prepare_lhs` subtracts this from each byte of the left, to multiply signed bytes. The result is corrected by the
    # column sums of the right-hand side, times this.
    lhs_offset: int = 0
    # Emits products of few rows, for an instruction that is exact only for some bytes; see pairs.py.
    emit_pairs: Callable[..., None] | None = None


class Operands(NamedTuple):
    """The operands of an emitted microkernel: addresses of words, and numbers; see `make_dot`."""

    a: Any
    b: Any
    groups: Any
    c_in: Any
    step: Any
    acc: Any


def as_it_is(_builder: Any, words: Any) -> tuple[Any, ...]:
    """Return the words unchanged, because the instruction needs no others."""
    return (words,)


def make_dot(rows: int, microkernel: Microkernel) -> Any:
    """Return an intrinsic that computes acc = c_in + a @ b for a tile of `rows` rows.

    dot(a, a_start, b, b_start, groups, c_in, acc), where indices count elements:

    - a: uint32, from a_start on, rows ROW_STEP apart, of `groups` words (at most KC)
    - b: uint32, from b_start on, (groups, NR), on a cache line
    - c_in: Strided rows of int32, on a cache line; a step of 0 starts all rows with the same
    - acc: int32, (rows, NR), on a cache line

    acc and c_in may be one array, and have one or two dimensions.
    """
    unit = microkernel.unit
    if NR % unit.columns or unit.rows > MR:  # it would write beyond the tile
        found = f"{unit.rows} rows and {unit.columns} columns"
        raise ValueError(f"a microkernel of {found}; allowed: at most {MR} rows, and columns that divide {NR}")
    return make_tile_operation(unit.isa, functools.partial(emit_dot, microkernel=microkernel, rows=rows))


def make_tile_operation(needs: Isa, emit: Callable[..., None]) -> Any:
    """Return an intrinsic with the arguments of make_dot's intrinsic; emit(builder, operands) writes its code."""

    @emitted
    def dot(builder, a, a_start, b, b_start, groups, c_in, acc):
        isa.require(needs)
        first, zero = c_in.array.at(c_in.first), groups.type(0)
        emit(builder, Operands(a.at(a_start), b.at(b_start), groups, first, c_in.step, acc.at(zero)))

    return dot


def emit_dot(builder: Any, x: Operands, microkernel: Microkernel, rows: int) -> None:
    """Emit the code of `make_dot`: loops over the blocks of a tile, and the products of a block."""
    number = x.groups.type
    # A single row leaves registers for all columns, so it reads a panel in the order of memory.
    vectors = NR // microkernel.unit.lanes if rows == 1 else microkernel.unit.vectors
    height = min(rows, microkernel.unit.rows)
    # Columns come first: the rows of a tile are smaller than a panel, and stay in the nearest cache.
    with _blocks(builder, number, NR, vectors * microkernel.unit.lanes) as column:
        with _blocks(builder, number, rows - rows % height, height) as row:
            _emit_block(builder, microkernel, height, vectors, row, column, x)
        if rows % height:
            _emit_block(builder, microkernel, rows % height, vectors, number(rows - rows % height), column, x)


@contextlib.contextmanager
def _blocks(builder: Any, number: Any, size: int, step: int) -> Iterator[Any]:
    """Emit a loop over 0, step, ..., size - step; a single iteration needs no loop."""
    if step == size:
        yield number(0)
    else:
        with cgutils.for_range(builder, number(size // step), intp=number) as loop:
            yield builder.mul(loop.index, number(step))


def _emit_block(
    builder: Any, microkernel: Microkernel, rows: int, vectors: int, row: Any, column: Any, x: Operands
) -> None:
    """Emit the products of the rows and columns that registers hold at a time. row, column: the first of them."""
    number, lanes, align = x.groups.type, microkernel.unit.lanes, microkernel.unit.align
    c_in = builder.gep(x.c_in, [builder.add(builder.mul(row, x.step), column)])
    tile = builder.gep(x.acc, [builder.add(builder.mul(row, number(NR)), column)])
    acc = {}
    for i in range(rows):
        line = builder.gep(c_in, [builder.mul(number(i), x.step)])
        for v in range(vectors):
            before = load(builder, builder.gep(line, [number(v * lanes)]), lanes, align)
            acc[i, v] = cgutils.alloca_once_value(builder, before)
    zero = constant(vector(WORD, lanes), 0)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in range(vectors) if microkernel.lhs_offset]
    a = builder.gep(x.a, [builder.mul(row, number(ROW_STEP))])
    b = builder.gep(x.b, [column])
    with cgutils.for_range(builder, x.groups, intp=number) as loop:
        line = builder.gep(b, [builder.mul(loop.index, number(NR))])
        words = builder.gep(a, [loop.index])
        for place in range(0, NR, CACHE_LINE // 4):
            emit_prefetch(builder, builder.gep(line, [number(PREFETCH * NR + place)]))
        places = [builder.gep(line, [number(v * lanes)]) for v in range(vectors)]
        rhs = [microkernel.prepare_rhs(builder, load(builder, place, lanes, align)) for place in places]
        for total, own in zip(sums, rhs, strict=False):  # no sums, or one for each vector
            builder.store(emit_column_sum(builder, microkernel, builder.load(total), own), total)
        for i in range(rows):
            copies = splat(builder, builder.load(builder.gep(words, [number(i * ROW_STEP)])), lanes)
            lhs = microkernel.prepare_lhs(builder, copies)
            for v in range(vectors):
                product = microkernel.multiply(builder, builder.load(acc[i, v]), lhs, rhs[v])
                builder.store(product, acc[i, v])
    for (i, v), total in acc.items():
        result = builder.load(total)
        if sums:
            result = builder.add(result, emit_correction(builder, microkernel, builder.load(sums[v])))
        store(builder, result, builder.gep(tile, [number(i * NR + v * lanes)]), align)


def emit_column_sum(builder: Any, microkernel: Microkernel, total: Any, rhs: tuple[Any, ...]) -> Any:
    """Emit the sums of columns, to which a vector of words is added."""
    return microkernel.multiply(builder, total, (constant(total.type, _ONES),), rhs)


def emit_correction(builder: Any, microkernel: Microkernel, sums: Any) -> Any:
    """Emit the correction for `lhs_offset` of accumulators whose columns have these sums."""
    return builder.mul(sums, constant(sums.type, microkernel.lhs_offset))
