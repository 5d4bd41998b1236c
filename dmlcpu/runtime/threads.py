"""How many threads an operator may use, how small a share of work is worth one, and whose threads they are."""

import atexit
import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from dmlcpu.runtime.layers import NumbaLayer, asked_for
from dmlcpu.runtime.pool import AVAILABLE, AWAKE, Pool
from dmlcpu.runtime.quota import cpu_quota

# A share of work below this many nanoseconds is not worth a thread that is awake.
GRAIN = 40_000
# A share that sleeping threads are woken for must be worth so many times what waking takes.
_WAKINGS = 2
_STEP = 1 << 16  # such shares are rounded up to a multiple: plans are kept for each budget
# Calls that begin within so many nanoseconds are calls in a row, whose threads stay awake once they are. It is more
# than the time of a call that is not worth waking for, and less than the pauses of programs that do something else.
_IN_A_ROW = 1_500_000


class Budget(NamedTuple):
    """What a plan may spend: threads, and the least work worth one of them; and its kernel, if it may not choose."""

    threads: int
    grain: int = GRAIN
    kernel: str | None = None  # of alternatives, the one to use; None: the plan chooses

    def parts(self, work: int, most: int) -> int:
        """Return into how many shares to cut `work` nanoseconds that can be cut into at most `most` pieces."""
        return max(1, min(self.threads, most, work // self.grain))


class _Budgets(NamedTuple):
    """The budget when the threads are awake, and when they sleep."""

    awake: Budget
    asleep: Budget


_budgets: _Budgets | None = None
_layer: Pool | NumbaLayer | None = None
_last = 0  # when a budget was last asked for while the threads slept
_own = threading.local()  # its attribute most: how many threads a call of this thread may use at most
_has_own = False  # whether any thread ever had such a bound; most programs have none, and do not look for it
_making = threading.RLock()  # a signal handler or a finalizer may need the layer while this thread makes it


def budget(most: int | None = None) -> Budget:
    """Return what the call that begins now may spend: of threads at most so many, if that is given."""
    global _last
    awake, asleep = _budgets or _first_budgets()
    # After a pause all code is slow, so there is little of it here.
    if awake is not asleep and (_layer or layer()).is_asleep():
        before, _last = _last, time.perf_counter_ns()
        if _last - before >= _IN_A_ROW:
            awake = asleep
    if _has_own:
        most = min(getattr(_own, "most", awake.threads), awake.threads if most is None else most)
    return awake if most is None or most >= awake.threads else awake._replace(threads=most)


def layer() -> Pool | NumbaLayer:
    """Return what runs the shares of a kernel call; it starts no thread before its first launch."""
    global _layer
    if _layer is None:
        with _making:
            _layer = _layer or _make_layer()
    return _layer


def launch(address: int, parts: int, args: tuple[Any, ...]) -> bool:
    """Call the kernel at an address for every part, with all threads that are free; return whether it was done."""
    mine, before = layer(), _budgets
    waking = mine.is_asleep()
    done = mine.launch(address, parts, args)
    if waking and before is not None and before.awake is not before.asleep:
        _replace(before, _budgets_of(before.awake.threads))  # what waking takes has been measured again
    return done


def _budgets_of(threads: int) -> _Budgets:
    awake = asleep = Budget(threads)
    if threads > 1:
        steps = -(-_WAKINGS * layer().waking() // _STEP)
        asleep = Budget(threads, max(GRAIN, steps * _STEP))
    return _Budgets(awake, asleep)


def _replace(before: _Budgets | None, budgets: _Budgets) -> _Budgets:
    """Set the budgets, unless somebody else has set others meanwhile; return those in force."""
    global _budgets
    with _making:
        if _budgets is before or _budgets is None:
            _budgets = budgets
        return _budgets


def _make_layer() -> Pool | NumbaLayer:
    if not AVAILABLE or asked_for():
        return NumbaLayer()
    passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
    # More threads than processors would take turns, whatever the budget says.
    return Pool(len(os.sched_getaffinity(0)) - 1, awake=0 if passive else AWAKE)


def _after_fork_in_child() -> None:
    global _layer, _making
    _making = threading.RLock()  # a thread that was left behind may have held the other
    if isinstance(_layer, NumbaLayer):
        _layer.close()
    else:
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
    return (_budgets or _first_budgets()).awake.threads


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
    global _budgets
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"set_num_threads: n is {n!r}; allowed: an integer of at least 1")
    if n.__index__() < 1:
        raise ValueError(f"set_num_threads: n is {n}; allowed: an integer of at least 1")
    budgets = _budgets_of(n.__index__())
    with _making:
        _budgets = budgets


@contextlib.contextmanager
def use_budget(threads: int, grain: int = GRAIN, kernel: str | None = None) -> Iterator[None]:
    """Work under another budget for a while, awake or asleep (the tests' and the warm-up's way to shares and kernels).

    A call that the kernel is not for raises LookupError.
    """
    global _budgets
    before, fixed = _budgets, Budget(threads, grain, kernel)
    _budgets = _Budgets(fixed, fixed)
    try:
        yield
    finally:
        _budgets = before


class limit_threads:  # noqa: N801  # read as a sentence: with limit_threads(2)
    """Let the calls of this thread use at most so many threads for a while; other threads' calls are not bound by it.

    Parameters
    ----------
    threads : int
        At least 1. A bound around this one, and `set_num_threads`, go on holding.
    """

    __slots__ = ("_before", "_threads")

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        global _has_own
        self._before = getattr(_own, "most", None)
        _own.most = self._threads if self._before is None else min(self._threads, self._before)
        _has_own = True

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del _own.most
        else:
            _own.most = self._before


def _first_budgets() -> _Budgets:
    """Return the budgets that DMLCPU_NUM_THREADS or the machine allows."""
    return _replace(None, _budgets_of(_from_environment() or _machine_threads()))


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
