"""The sum of the squares of each row of bytes."""

import numpy as np

from dmlcpu.kernels.walk import share
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record, record_at

WORK = record(rows=np.int64, depth=np.int64, sign=np.int64)


@kernel
def byte_squares(part, parts, x, squares, works):
    """Sum up a share of the rows. x: uint8 (rows, depth), but flat; squares: int32, of each row."""
    work = record_at(works, 0, WORK)
    depth, sign = work.depth, np.int32(work.sign)
    first, last = share(part, parts, work.rows)
    for row in range(first, last):
        line, total = x[row * depth : (row + 1) * depth], np.int32(0)
        for i in range(depth):
            value = np.int32(np.int32(line[i] ^ np.uint8(sign)) - sign)
            total = np.int32(total + np.int32(value * value))
        squares[row] = total
