"""How many threads an operator may use, and how small a share of work is worth one."""

import contextlib
import math
import os
from collections.abc import Iterator
from typing import NamedTuple

from dmlcpu.runtime.quota import cpu_quota

# A share of work below this many elementary steps (about a nanosecond each) is not worth a thread: launching a
# parallel kernel costs 1.5 us (OpenMP) to 120 us (workqueue).
GRAIN = 30_000


class Budget(NamedTuple):
    """What a plan may spend: threads, and the least work that is worth one of them."""

    threads: int
    grain: int = GRAIN

    def parts(self, work: int, most: int) -> int:
        """Return into how many shares to cut `work` steps that can be cut into at most `most` pieces."""
        return max(1, min(self.threads, most, work // self.grain))


_budget: Budget | None = None


def budget() -> Budget:
    """Return the budget in force; on first use, the one DMLCPU_NUM_THREADS or Numba allows."""
    global _budget
    if _budget is None:
        _budget = Budget(_from_environment() or _machine_threads())
    return _budget


def get_num_threads() -> int:
    """Return how many threads an operator may use at most.

    Returns
    -------
    int
        What `set_num_threads` was given; else the environment's ``DMLCPU_NUM_THREADS``; else
        ``NUMBA_NUM_THREADS``; else one for each core this process may run on, and no more than its CPU quota
        (cgroups), rounded up.

    Examples
    --------
    >>> import dmlcpu
    >>> dmlcpu.set_num_threads(2)
    >>> dmlcpu.get_num_threads()
    2
    """
    return budget().threads


def set_num_threads(n: int) -> None:
    """Let operators use at most `n` threads, in this process, from the next call on.

    Numba's own setting is left alone, and results do not depend on the number: a larger `n` than Numba has
    threads (``NUMBA_NUM_THREADS``) only cuts the work into more shares.

    Parameters
    ----------
    n : int
        At least 1. With 1, no thread is ever started.

    Raises
    ------
    TypeError
        If `n` is not an integer.
    ValueError
        If `n` is less than 1.

    Examples
    --------
    >>> import dmlcpu
    >>> dmlcpu.set_num_threads(1)
    >>> dmlcpu.get_num_threads()
    1
    """
    global _budget
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"set_num_threads: n is {n!r}; allowed: an integer of at least 1")
    if n.__index__() < 1:
        raise ValueError(f"set_num_threads: n is {n}; allowed: an integer of at least 1")
    _budget = budget()._replace(threads=n.__index__())


@contextlib.contextmanager
def limits(threads: int, grain: int = GRAIN) -> Iterator[None]:
    """Work under another budget for a while (the tests' and the warm-up's way to several shares)."""
    global _budget
    before = budget()
    _budget = Budget(threads, grain)
    try:
        yield
    finally:
        _budget = before


def _from_environment() -> int | None:
    text = os.environ.get("DMLCPU_NUM_THREADS", "")
    if not text:
        return None
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise ValueError(f"DMLCPU_NUM_THREADS is {text!r}; allowed: an integer of at least 1")
    return n


def _machine_threads() -> int:
    from numba import config

    threads = int(config.NUMBA_NUM_THREADS)
    if not os.environ.get("NUMBA_NUM_THREADS"):
        if hasattr(os, "sched_getaffinity"):
            threads = min(threads, len(os.sched_getaffinity(0)))
        threads = min(threads, math.ceil(cpu_quota() or threads))
    return max(1, threads)
