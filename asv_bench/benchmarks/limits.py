"""What the machine can do at most, timed in turns with the contenders."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from . import THREADS

BYTES = 1 << 27  # beyond the caches


class Reading:
    """Read an array by as many threads as contenders have: np.max runs at the speed of memory."""

    unit, amount = "bytes", BYTES

    def __init__(self):
        self.parts = np.array_split(np.ones(BYTES // 4, np.float32), THREADS)
        self.pool = ThreadPoolExecutor(THREADS)

    def __call__(self):
        return list(self.pool.map(np.max, self.parts))


@functools.cache
def of(unit):
    """Return the limit of work of a unit, or None where it is not measured."""
    return Reading() if unit == "bytes" else None
