"""How many threads an operator may use, how small a share of work is worth one, and whose threads they are."""

import atexit
import contextlib
import math
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from dmlcpu.runtime.layers import NumbaLayer, asked_for
from dmlcpu.runtime.pool import AVAILABLE, AWAKE, Pool
from dmlcpu.runtime.quota import cpu_quota

# A share of work below this many nanoseconds is not worth a thread that is awake.
GRAIN = 30_000
# A share that sleeping threads are woken for must be worth so many times what waking takes.
_WAKINGS = 3


class Budget(NamedTuple):
    """What a plan may spend: threads, and the least work that is worth one of them."""

    threads: int
    grain: int = GRAIN

    def parts(self, work: int, most: int) -> int:
        """Return into how many shares to cut `work` nanoseconds that can be cut into at most `most` pieces."""
        return max(1, min(self.threads, most, work // self.grain))


_budget: Budget | None = None
_layer: Pool | NumbaLayer | None = None
_making = threading.RLock()  # a signal handler or a finalizer may need the layer while this thread makes it


def budget() -> Budget:
    """Return the budget in force; when the threads sleep, one whose shares are worth waking them."""
    limits = _budget or _first_budget()
    if limits.threads == 1 or limits.grain != GRAIN or not layer().is_asleep():
        return limits
    # In powers of two: plans are kept for each budget.
    return Budget(limits.threads, 1 << (GRAIN + _WAKINGS * layer().waking()).bit_length())


def layer() -> Pool | NumbaLayer:
    """Return what runs the shares of a kernel call; it starts no thread before its first launch."""
    global _layer
    if _layer is None:
        with _making:
            _layer = _layer or _make_layer()
    return _layer


def launch(address: int, parts: int, args: tuple[Any, ...]) -> bool:
    """Call the kernel at an address for every part, with all threads that are free; return whether it was done."""
    return layer().launch(address, parts, args)


def _make_layer() -> Pool | NumbaLayer:
    if not AVAILABLE or asked_for():
        return NumbaLayer()
    passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
    # More threads than processors would take turns, whatever the budget says.
    return Pool(len(os.sched_getaffinity(0)) - 1, awake=0 if passive else AWAKE)


def _after_fork_in_child() -> None:
    global _layer, _making
    _making = threading.RLock()  # a thread that was left behind may have held the other
    if isinstance(_layer, Pool):
        _layer = None  # its helpers were left behind; the child gets its own


def _close() -> None:
    if isinstance(_layer, Pool):
        _layer.close()


atexit.register(_close)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)


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
    return (_budget or _first_budget()).threads


def set_num_threads(n: int) -> None:
    """Let operators use at most `n` threads, in this process, from the next call on.

    Numba's own setting is left alone, and results do not depend on the number: more threads than the process has
    processors only cut the work into more shares.

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
    _budget = (_budget or _first_budget())._replace(threads=n.__index__())


@contextlib.contextmanager
def limits(threads: int, grain: int = GRAIN) -> Iterator[None]:
    """Work under another budget for a while (the tests' and the warm-up's way to several shares)."""
    global _budget
    before = _budget or _first_budget()
    _budget = Budget(threads, grain)
    try:
        yield
    finally:
        _budget = before


def _first_budget() -> Budget:
    """Return the budget that DMLCPU_NUM_THREADS or the machine allows."""
    global _budget
    _budget = Budget(_from_environment() or _machine_threads())
    return _budget


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
