"""The microkernel for any processor: bytes are widened to 16 bits and multiplied in pairs.

It uses vectors of 128 bits, which LLVM emulates where the processor has none.
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
    """Add the products of widened bytes."""
    for a, b in zip(lhs, rhs, strict=True):
        acc = builder.add(acc, _pair_products(builder, a, b))
    return acc


def _halves(builder: Any, words: Any) -> Any:
    return builder.bitcast(words, vector(HALF, 2 * words.type.count))


def _pair_products(builder: Any, a: Any, b: Any) -> Any:
    """Return a0 b0 + a1 b1 of 16-bit pairs in 32 bits; where it can, LLVM emits one instruction (pmaddwd)."""
    count = a.type.count
    wide = vector(WORD, count)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    return builder.add(*(shuffle(builder, products, products, list(range(odd, count, 2))) for odd in (0, 1)))


GENERIC = Microkernel(units.GENERIC, widen_unsigned, widen_signed, multiply_widened)
