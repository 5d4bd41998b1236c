"""Products of few rows with AVX2 alone, by `vpmaddubsw`, which adds pairs of products of bytes in 16 bits.

Such a sum can saturate. Two bytes of b that follow one another along K, times any unsigned bytes, are exact if and only
if the absolute value of their sum is at most 128. The row of ones gives these sums of two bytes. Their total is the sum
of a column of b, and each of them shows whether its bytes must be widened first.
"""

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from dmlcpu.kernels.gemm.microkernels.forms import MOST
from dmlcpu.kernels.gemm.microkernels.generic import widen_signed, widen_unsigned
from dmlcpu.kernels.gemm.microkernels.microkernel import ROW_STEP
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, HALF, WORD, call, constant, load, store, vector
from dmlcpu.runtime.intrinsics import Strided, splat

_LANES = 8  # words of a register
_HALVES, _WORDS = vector(HALF, 2 * _LANES), vector(WORD, _LANES)
_ONES = constant(_HALVES, 1)


def emit_pairs(builder: Any, a: Any, groups: list[list[Any]], acc: Strided, column: Any) -> None:
    """Emit the products of rows of a and vectors of words of b, each of which has a group of four rows of b.

    a: the address of the first row's words; acc: rows of accumulators, which are added to from `column` on. The bytes
    of the last row of a are 1, and 0 where b has no more rows.
    """
    number = column.type
    last = builder.sub(acc.count, number(1))
    ones = [splat(builder, word, _LANES) for word in _words_of_row(builder, a, last, len(groups))]
    totals, most = [], constant(_HALVES, 0)
    for vectors in zip(*groups, strict=True):
        sums = [add_bytes(builder, one, words) for one, words in zip(ones, vectors, strict=True)]
        totals.append(add_halves(builder, functools.reduce(builder.add, sums), _ONES))
        for each in sums:
            amount = call(builder, "llvm.abs.v16i16", _HALVES, [each, ir.IntType(1)(0)])
            most = call(builder, "llvm.umax.v16i16", _HALVES, [most, amount])
    _add_to_row(builder, acc, last, column, totals)
    beyond = builder.bitcast(builder.icmp_unsigned(">", most, constant(_HALVES, MOST)), ir.IntType(2 * _LANES))
    are_exact = builder.icmp_unsigned("==", beyond, beyond.type(0))
    with builder.if_else(are_exact, likely=True) as (is_exact, other):
        with is_exact, cgutils.for_range(builder, last, intp=number) as loop:
            _emit_exact(builder, a, loop.index, groups, acc, column)
        with other:
            for i, group in enumerate(groups):
                _emit_widened(builder, a, last, i, group, acc, column)


def _emit_exact(builder: Any, a: Any, row: Any, groups: list[list[Any]], acc: Strided, column: Any) -> None:
    """Emit the products of a row with bytes that need not be widened."""
    totals = [constant(_WORDS, 0)] * len(groups[0])
    for word, group in zip(_words_of_row(builder, a, row, len(groups)), groups, strict=True):
        lhs = splat(builder, word, _LANES)
        own = [add_halves(builder, add_bytes(builder, lhs, words), _ONES) for words in group]
        totals = [builder.add(total, each) for total, each in zip(totals, own, strict=True)]
    _add_to_row(builder, acc, row, column, totals)


def _emit_widened(builder: Any, a: Any, rows: Any, number: int, group: list[Any], acc: Strided, column: Any) -> None:
    """Emit the products of rows with the widened bytes of a group, by its number."""
    rhs = [widen_signed(builder, words) for words in group]
    with cgutils.for_range(builder, rows, intp=rows.type) as loop:
        word = _words_of_row(builder, a, loop.index, number + 1)[number]
        lhs = widen_unsigned(builder, splat(builder, word, _LANES))
        totals = []
        for each in rhs:
            even, odd = (add_halves(builder, x, y) for x, y in zip(lhs, each, strict=True))
            totals.append(builder.add(even, odd))
        _add_to_row(builder, acc, loop.index, column, totals)


def _words_of_row(builder: Any, a: Any, row: Any, count: int) -> list[Any]:
    words = builder.gep(a, [builder.mul(row, row.type(ROW_STEP))])
    return [builder.load(builder.gep(words, [row.type(i)])) for i in range(count)]


def _add_to_row(builder: Any, acc: Strided, row: Any, column: Any, totals: list[Any]) -> None:
    """Emit the sum of vectors and a row's accumulators."""
    line = builder.gep(acc.at(builder, row), [column])
    places = [builder.gep(line, [row.type(v * _LANES)]) for v in range(len(totals))]
    sums = [builder.add(total, load(builder, place, _LANES, 4)) for place, total in zip(places, totals, strict=True)]
    for place, total in zip(places, sums, strict=True):
        store(builder, total, place, 4)


def add_bytes(builder: Any, lhs: Any, rhs: Any) -> Any:
    """Emit the sums of pairs of products of bytes, unsigned by signed, which saturate at 16 bits (vpmaddubsw)."""
    count = lhs.type.count
    operands = [builder.bitcast(words, vector(BYTE, 4 * count)) for words in (lhs, rhs)]
    return call(builder, "llvm.x86.avx2.pmadd.ub.sw", vector(HALF, 2 * count), operands)


def add_halves(builder: Any, lhs: Any, rhs: Any) -> Any:
    """Emit the sums of pairs of products of 16 bits (vpmaddwd).

    It is called by its name, because LLVM would move the widening of a pattern out of a loop, and narrow again within.
    """
    return call(builder, "llvm.x86.avx2.pmadd.wd", vector(WORD, lhs.type.count // 2), [lhs, rhs])
