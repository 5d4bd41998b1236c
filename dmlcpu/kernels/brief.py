"""What a kernel is told besides its arrays: all small tables of integers of a plan in one int64 array, its *brief*.

Numba's dispatcher looks at every argument of every call, so a dozen integers and a few small arrays would cost a tiny
input more time than its work does.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.runtime.jit import device

Brief = NDArray[np.int64]


def make_brief(*tables: ArrayLike) -> Brief:
    """Return the tables, of one or two dimensions, behind one another, each with its rows and columns before it."""
    pieces: list[Any] = []
    for table in tables:
        rows = np.atleast_2d(np.asarray(table, np.int64))
        pieces += [rows.shape, rows.reshape(-1)]
    return np.concatenate(pieces, dtype=np.int64)


@device
def table(brief, number):
    """Return a table of a brief, counted from 0: (rows, columns) int64."""
    start = 0
    for _ in range(number):
        start += 2 + brief[start] * brief[start + 1]
    rows, columns = brief[start], brief[start + 1]
    return brief[start + 2 : start + 2 + rows * columns].reshape(rows, columns)
