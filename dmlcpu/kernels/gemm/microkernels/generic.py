"""The microkernel for any processor: bytes are widened to 16 bits and multiplied in pairs.

It uses vectors of 128 bits, which LLVM emulates if the processor has none.
"""

from typing import Any

from dmlcpu.kernels.gemm.microkernels import units
from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel
from dmlcpu.kernels.gemm.microkernels.vectors import HALF, WORD, constant, shuffle, vector


def widen_unsigned(builder: Any, words: Any) -> tuple[Any, ...]:
    """Widen unsigned bytes to 16 bits: the even-numbered bytes, and the odd-numbered."""
    halves = _halves(builder, words)
    return builder.and_(halves, constant(halves.type, 255)), builder.lshr(halves, constant(halves.type, 8))


def widen_signed(builder: Any, words: Any) -> tuple[Any, ...]:
    """Widen signed bytes to 16 bits: the even-numbered bytes, and the odd-numbered."""
    halves = _halves(builder, words)
    eight = constant(halves.type, 8)
    return builder.ashr(builder.shl(halves, eight), eight), builder.ashr(halves, eight)


def multiply_widened(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    """Add the products of widened bytes in pairs, for which LLVM emits one instruction if possible (pmaddwd)."""
    for a, b in zip(lhs, rhs, strict=True):
        wide = vector(WORD, a.type.count)
        products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
        even, odd = (shuffle(builder, products, products, list(range(i, a.type.count, 2))) for i in (0, 1))
        acc = builder.add(acc, builder.add(even, odd))
    return acc


def _halves(builder: Any, words: Any) -> Any:
    return builder.bitcast(words, vector(HALF, 2 * words.type.count))


GENERIC = Microkernel(units.GENERIC, widen_unsigned, widen_signed, multiply_widened)
