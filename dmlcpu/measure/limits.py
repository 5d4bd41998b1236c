"""How fast threads read, copy and multiply bytes, the rates that limit kernels, and the fractions operators reach."""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.kernels import registry
from dmlcpu.kernels.measure.memory import READ_CELLS
from dmlcpu.kernels.measure.multiply import can_measure
from dmlcpu.operators.table import OPERATORS, Operator
from dmlcpu.runtime.memory import aligned_empty
from dmlcpu.runtime.quota import memory_limit
from dmlcpu.runtime.records import LINE_CELLS

SECONDS = 0.06  # of calls for each rate
# The first call compiles. So may a later one: calls use several threads after some in a row.
LEAST_CALLS = 5
# Larger than the caches of most processors; less on machines with little memory.
_MOST_BYTES, _PART_OF_MEMORY = 128 << 20, 16
_TRIAL = 1 << 12  # iterations of the multiply kernel, to estimate the time of one
_CALL = 4e-3  # seconds of its measured calls: much longer than a launch


class Limits(NamedTuple):
    """The limits of a number of threads.

    Attributes
    ----------
    threads : int
        The number of threads.
    read : float
        Bytes read in a second, from memory larger than the caches.
    copy : float
        Bytes moved in a second by copies: those read plus those written.
    multiply : float or None
        Products of bytes in a second, with the instruction of the kernels in use; None if it cannot be measured.
    """

    threads: int
    read: float
    copy: float
    multiply: float | None

    def best(self, other: "Limits") -> "Limits":
        """Return the higher of each rate of two measurements."""
        multiply = None if self.multiply is None or other.multiply is None else max(self.multiply, other.multiply)
        return Limits(self.threads, max(self.read, other.read), max(self.copy, other.copy), multiply)


def measure_limits(*threads: int, seconds: float = SECONDS, nbytes: int | None = None) -> list[Limits]:
    """Measure the limits of given numbers of threads.

    Parameters
    ----------
    *threads : int
        The numbers of threads; threads beyond those that the process may use share processors.
    seconds : float, default: 0.06
        The time for each of the three rates. The fastest call counts.
    nbytes : int, optional
        The size of the memory to read and copy. By default 128 MiB, or a sixteenth of the machine's memory if that is
        less.

    Returns
    -------
    list of Limits
        One for each number, in the same order.

    Raises
    ------
    RuntimeError
        If compilation is switched off: then no kernel can run.
    """
    memory = aligned_empty(max(1, (nbytes or memory_to_use()) // (16 * READ_CELLS)) * 2 * READ_CELLS, np.int64)
    memory[...] = 1
    return [_limits(each, memory, seconds) for each in threads]


def memory_to_use() -> int:
    """Return how many bytes to measure with."""
    return min(_MOST_BYTES, memory_limit() // _PART_OF_MEMORY)


def fastest(call: Callable[[], object], seconds: float) -> float:
    """Return the fastest time of at least LEAST_CALLS calls, made within some seconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_CALLS or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def _limits(threads: int, memory: Array, seconds: float) -> Limits:
    source, target = np.split(memory, 2)
    found = np.zeros(LINE_CELLS * threads, np.int64)
    read, copy = (registry.find("measure", stage).kernel for stage in ("read", "copy"))
    return Limits(
        threads,
        read=memory.nbytes / fastest(partial(read, threads, memory, found), seconds),
        copy=memory.nbytes / fastest(partial(copy, threads, source, target), seconds),
        multiply=_multiply_rate(threads, seconds) if can_measure() else None,
    )


def _multiply_rate(threads: int, seconds: float) -> float:
    done = np.zeros(LINE_CELLS * threads, np.int64)
    call = partial(registry.find("measure", "multiply").kernel, threads)
    turns = int(_TRIAL * _CALL / fastest(partial(call, _TRIAL, done), 0)) + 1
    taken = fastest(partial(call, turns, done), seconds)
    return int(done[::LINE_CELLS].sum()) / taken


class Reached(NamedTuple):
    """How fast an operator was on its own workload."""

    operator: str
    limit: str  # the field of `Limits` that bounds it
    rate: float  # bytes or products in a second
    fraction: float | None = None  # the rate divided by the limit's, if known; more than 1 if bytes were in a cache

    def of(self, limits: Limits) -> "Reached":
        """Return a copy with the fraction of the limit."""
        limit = getattr(limits, self.limit)
        return self._replace(fraction=self.rate / limit if limit else None)


def measure_operators(seconds: float, nbytes: int) -> list[Reached]:
    """Measure each operator for some seconds, on arrays of about `nbytes`, without fractions."""
    return [_measure(operator, seconds, nbytes) for operator in OPERATORS.values()]


def _measure(operator: Operator, seconds: float, nbytes: int) -> Reached:
    workload = operator.workload(nbytes)
    out = operator.function(**workload.arguments)  # reused by all calls: the system would have to clear fresh memory
    call = partial(operator.function, **workload.arguments, out=out)
    return Reached(operator.name, workload.limit, workload.amount / fastest(call, seconds))
