"""Vector operations that find saturating pairs of bytes, and widen bytes to int16; see gemm/forms.py.

An int16 word has two elements. Bytes 0 and 2 of a word of four bytes become the first such word, 1 and 3 the second.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.generic import widen_signed, widen_unsigned
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.packing import STEP
from dmlcpu.kernels.gemm.microkernels.vectors import WORD, constant, shuffle, vector
from dmlcpu.runtime.intrinsics import emitted, short_loop

MOST = 128  # the greatest absolute sum of a pair that does not saturate: 255 * 128 fits int16 with any sign
_MASK = ir.IntType(2 * STEP)


@emitted
def copy_words(builder, words, copy, first) -> types.uint32:
    """Copy words[first : first + STEP] to copy[first:]; return which pairs of their bytes saturate, a bit for each."""
    line = words.load(first, STEP)
    copy.store(line, first)
    return _emit_saturating(builder, line)


@emitted
def count_saturating(builder, words, first, count) -> types.intp:
    """Return how many pairs of signed bytes of words[first : first + STEP * count] saturate."""
    number = first.type
    total = cgutils.alloca_once_value(builder, number(0))
    with short_loop(builder, count) as i:
        mask = _emit_saturating(builder, words.load(builder.add(first, builder.mul(i, number(STEP))), STEP))
        found = builder.zext(builder.ctpop(mask), number)
        builder.store(builder.add(builder.load(total), found), total)
    return builder.load(total)


def _emit_saturating(builder: Any, words: Any) -> Any:
    even, odd = widen_signed(builder, words)
    above = builder.add(builder.add(even, odd), constant(even.type, MOST))
    return builder.bitcast(builder.icmp_unsigned(">", above, constant(even.type, 2 * MOST)), _MASK)


@emitted
def widen_lhs(builder, words, source, count, target, first):
    """Widen STEP * count words of unsigned bytes to int16, backwards, so that they may be widened in place."""
    number, line = source.type, vector(WORD, STEP)
    with short_loop(builder, count) as i:
        at = builder.mul(builder.sub(builder.sub(count, i), number(1)), number(STEP))
        halves = widen_unsigned(builder, words.load(builder.add(source, at), STEP))
        even, odd = (builder.bitcast(half, line) for half in halves)
        both = shuffle(builder, even, odd, [i + part for i in range(STEP) for part in (0, STEP)])
        target.store(both, builder.add(first, builder.mul(at, number(2))))


@emitted
def widen_rhs(builder, words, source, count, target, first):
    """Widen `count` groups of NR words of signed bytes to int16: each makes two groups."""
    number, line = source.type, vector(WORD, NR)
    with short_loop(builder, count) as i:
        group = words.load(builder.add(source, builder.mul(i, number(NR))), NR)
        at = builder.add(first, builder.mul(i, number(2 * NR)))
        for part, half in enumerate(widen_signed(builder, group)):
            target.store(builder.bitcast(half, line), builder.add(at, number(part * NR)))
