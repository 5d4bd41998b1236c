"""Bits that say what each row may select, made of lists of what it may, or may not, select."""

import numpy as np

from dmlcpu.kernels.walk import share
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record, record_at

MARKS = record(rows=np.int64, step=np.int64, allows=np.int64)  # step: bytes of a row's bits


@kernel
def mark(part, parts, bits, starts, positions, works):
    """Write the bits of a share of the rows: those of what is listed if that is allowed, else those of all the rest.

    bits: uint8 (rows, step), the lowest bit first; starts: int64 (rows + 1,), positions: int64, -1 for none. All are
    flat.
    """
    work = record_at(works, 0, MARKS)
    usual = np.uint8(0 if work.allows else 255)
    first, last = share(part, parts, work.rows)
    for row in range(first, last):
        line = bits[row * work.step : (row + 1) * work.step]
        for i in range(work.step):
            line[i] = usual
        for i in range(starts[row], starts[row + 1]):
            if positions[i] >= 0:
                bit = np.uint8(1 << (positions[i] & 7))
                line[positions[i] >> 3] = line[positions[i] >> 3] & ~bit | (bit & ~usual)
