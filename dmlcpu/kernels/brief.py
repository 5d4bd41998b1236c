"""What a kernel is told besides its arrays: all integers of a plan in one int64 array, its *brief*.

Numba's dispatcher looks at every argument of every call, so a dozen integers and a few small arrays would cost a tiny
input more time than its work does.
"""

import itertools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.runtime.jit import viewer

Brief = NDArray[np.int64]


def make_brief(*sections: ArrayLike) -> Brief:
    """Return integers and small tables of them, behind one another; where each starts and the last ends comes first."""
    flat = [np.asarray(section, np.int64).reshape(-1) for section in sections]
    starts = itertools.accumulate((section.size for section in flat), initial=len(flat) + 1)
    return np.concatenate([[*starts], *flat], dtype=np.int64)


@viewer
def section(brief, number):
    """Return a section of a brief, counted from 0, without its shape."""
    return brief[brief[number] : brief[number + 1]]
