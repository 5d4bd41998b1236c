"""Microkernels that read columns of B whose bytes are contiguous, and multiply each by a row of A along K.

Columns are read one after the other, in the order of memory, and the processor itself reads ahead: 32 GB/s on two
threads. Reading a line of each of 16 columns at a time, with prefetches, reached 18 (1,000,000 columns of 384 bytes,
Zen 4).
"""

from typing import Any

from numba.core import cgutils

from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel, emit_column_sum, emit_correction
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, WORD, constant, load, shuffle, vector
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import emitted, splat

# Fewer bytes than this are read beyond the end of a column.
DEPTH_STEP = 64


def make_dots(microkernel: Microkernel) -> Any:
    """Return an intrinsic that writes the products of a row of A and `lanes` columns of B.

    dots(b, depth, sign_flip, a, first, acc, at):

    - b: Strided columns of `depth` bytes, rounded up to DEPTH_STEP; exclusive or with sign_flip makes them unsigned
    - a: words of signed bytes, from a[first] on, zero from `depth` on, up to DEPTH_STEP
    - acc: int32, the sums, from acc[at] on
    """
    unit = microkernel.unit

    @emitted
    def dots(builder, b, depth, sign_flip, a, first, acc, at):
        isa.require(unit.isa)
        number, columns = depth.type, range(unit.lanes)
        flips = splat(builder, builder.trunc(sign_flip, BYTE), unit.width)
        zero = constant(vector(WORD, unit.lanes), 0)
        totals = [cgutils.alloca_once_value(builder, zero) for _ in columns]
        of_row = cgutils.alloca_once_value(builder, zero)
        count = builder.sdiv(builder.add(depth, number(unit.width - 1)), number(unit.width))

        def load_row(line):
            place = builder.add(first, builder.mul(line, number(unit.lanes)))
            return microkernel.prepare_rhs(builder, a.load(place, unit.lanes))

        if microkernel.lhs_offset:
            with cgutils.for_range(builder, count, intp=number) as loop:
                of_line = emit_column_sum(builder, microkernel, builder.load(of_row), load_row(loop.index))
                builder.store(of_line, of_row)
        for j, total in zip(columns, totals, strict=True):
            place = b.at(builder, number(j))
            with cgutils.for_range(builder, count, intp=number) as loop:
                here = builder.gep(place, [builder.mul(loop.index, number(unit.width))])
                column = builder.xor(load(builder, here, unit.width), flips)
                lhs = microkernel.prepare_lhs(builder, builder.bitcast(column, zero.type))
                sum_ = microkernel.multiply(builder, builder.load(total), lhs, load_row(loop.index))
                builder.store(sum_, total)
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
