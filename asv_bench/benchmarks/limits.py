"""What the machine can do at most, timed in turns with the contenders."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dmlcpu.kernels import registry
from dmlcpu.kernels.measure.multiply import can_measure
from dmlcpu.runtime.records import LINE_CELLS

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


class Multiplying:
    """Multiply bytes in registers alone, by the instruction of the kernels in use."""

    unit = "products"

    def __init__(self):
        self.kernel = registry.find("measure", "multiply").kernel
        self.done = np.zeros(LINE_CELLS * THREADS, np.int64)  # products, one line for each thread
        self.turns = 1 << 18  # milliseconds
        self()
        self.amount = int(self.done[::LINE_CELLS].sum())

    def __call__(self):
        return self.kernel(THREADS, self.turns, self.done)


@functools.cache
def of(unit):
    """Return the limit of work of a unit, or None where it cannot be measured."""
    if unit == "bytes":
        return Reading()
    return Multiplying() if can_measure() else None
