"""The Walsh-Hadamard matrix of a power of two, multiplied in place: sums and differences of halves, stage by stage."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from dmlcpu.kernels.gemm.microkernels.vectors import call, shuffle
from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.jit import device

LANES = 16


def _butterfly(builder: Any, one: Any, other: Any) -> tuple[Any, Any]:
    return builder.fadd(one, other), builder.fsub(one, other)


def mixed(builder: Any, value: Any) -> Any:
    """Emit the stages within a vector: each pair of lanes becomes their sum and their difference."""
    lanes, single = value.type.count, value.type.element
    half = 1
    while half < lanes:
        others = shuffle(builder, value, value, [lane ^ half for lane in range(lanes)])
        signs = ir.Constant(value.type, [single(-1.0 if lane & half else 1.0) for lane in range(lanes)])
        value = call(builder, f"llvm.fmuladd.v{lanes}f32", value.type, [value, signs, others])  # products are exact
        half *= 2
    return value


@emitted
def mix_halves(builder, w, first, half):
    """Do the stage that combines w[first : first + half] with as many numbers after them, all whole LANES."""
    with cgutils.for_range(builder, builder.udiv(half, half.type(LANES))) as loop:
        at = builder.add(first, builder.mul(loop.index, loop.index.type(LANES)))
        places = at, builder.add(at, half)
        for value, place in zip(_butterfly(builder, *[w.load(each, LANES) for each in places]), places, strict=True):
            w.store(value, place)


@emitted
def mix_quarters(builder, w, first, quarter):
    """Do two stages in one pass: with halves of `quarter` numbers, then of twice as many."""
    with cgutils.for_range(builder, builder.udiv(quarter, quarter.type(LANES))) as loop:
        at = builder.add(first, builder.mul(loop.index, loop.index.type(LANES)))
        places = [builder.add(at, builder.mul(quarter, quarter.type(i))) for i in range(4)]
        a, b, c, d = [w.load(place, LANES) for place in places]
        (a, b), (c, d) = _butterfly(builder, a, b), _butterfly(builder, c, d)
        (a, c), (b, d) = _butterfly(builder, a, c), _butterfly(builder, b, d)
        for value, place in zip((a, b, c, d), places, strict=True):
            w.store(value, place)


@device
def rotate(w):
    """Multiply by the matrix of each power of two that the size is made of, the greatest first.

    The stages within each whole vector of LANES numbers are done: `mixed`.
    """
    first = 0
    while first < w.size:
        n = 1
        while 2 * n <= w.size - first:
            n *= 2
        half = LANES if n >= LANES else 1
        while LANES <= half < n:
            if 4 * half <= n:
                for block in range(first, first + n, 4 * half):
                    mix_quarters(w, block, half)
                half *= 4
            else:
                mix_halves(w, first, half)
                half *= 2
        while half < n:  # stages of fewer than LANES numbers
            for block in range(first, first + n, 2 * half):
                for i in range(block, block + half):
                    one, other = w[i], w[i + half]
                    w[i], w[i + half] = one + other, one - other
            half *= 2
        first += n
