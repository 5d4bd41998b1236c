"""Microkernels that read columns of B whose bytes are contiguous, and multiply each by a row of A along K."""

from typing import Any

from numba.core import cgutils

from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel, emit_column_sum, emit_correction
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, WORD, constant, load, shuffle, vector
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import emit_prefetch, emitted, splat

# Bytes that are read of a column beyond its end are less than this.
LINE = 64
# Prefetch distance in blocks of `lanes` columns.
PREFETCH = 2


def make_dots(microkernel: Microkernel) -> Any:
    """Return an intrinsic that writes the products of a row of A and `lanes` columns of B.

    dots(b, start, step, depth, sign_flip, a, first, acc, at):

    - b: bytes, columns `step` apart from b[start] on, of `depth` bytes, rounded up to LINE; exclusive or with sign_flip
      makes them unsigned
    - a: words of signed bytes, from a[first] on, zero from `depth` on, up to LINE
    - acc: int32, the sums, from acc[at] on
    """
    width = 4 * microkernel.lanes

    @emitted
    def dots(builder, b, start, step, depth, sign_flip, a, first, acc, at):
        isa.require(microkernel.isa)
        number, columns = start.type, range(microkernel.lanes)
        flips = splat(builder, builder.trunc(sign_flip, BYTE), width)
        zero = constant(vector(WORD, microkernel.lanes), 0)
        totals = [cgutils.alloca_once_value(builder, zero) for _ in columns]
        of_row = cgutils.alloca_once_value(builder, zero)
        places = [b.at(builder.add(start, builder.mul(step, number(j)))) for j in columns]
        ahead = builder.mul(step, number(PREFETCH * microkernel.lanes))
        count = builder.sdiv(builder.add(depth, number(width - 1)), number(width))
        with cgutils.for_range(builder, count, intp=number) as loop:
            line = builder.mul(loop.index, number(width))
            row = a.load(builder.add(first, builder.mul(loop.index, number(microkernel.lanes))), microkernel.lanes)
            rhs = microkernel.prepare_rhs(builder, row)
            if microkernel.lhs_offset:
                builder.store(emit_column_sum(builder, microkernel, builder.load(of_row), rhs), of_row)
            for place, total in zip(places, totals, strict=True):
                here = builder.gep(place, [line])
                emit_prefetch(builder, builder.gep(here, [ahead]))
                column = builder.bitcast(builder.xor(load(builder, here, width), flips), row.type)
                lhs = microkernel.prepare_lhs(builder, column)
                builder.store(microkernel.multiply(builder, builder.load(total), lhs, rhs), total)
        sums = [builder.load(total) for total in totals]
        if microkernel.lhs_offset:
            correction = emit_correction(builder, microkernel, builder.load(of_row))
            sums = [builder.add(each, correction) for each in sums]
        acc.store(_sums_of(builder, sums), at)

    return dots


def _sums_of(builder: Any, rows: list[Any]) -> Any:
    """Return a vector of the sums of the lanes of as many vectors."""
    lanes = len(rows)
    even, odd = (list(range(first, 2 * lanes, 2)) for first in (0, 1))
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [builder.add(shuffle(builder, x, y, even), shuffle(builder, x, y, odd)) for x, y in pairs]
    return rows[0]
