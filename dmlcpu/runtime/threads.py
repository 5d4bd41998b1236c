"""How many threads an operator may use, how much work is worth one, and whose threads they are."""

import atexit
import contextlib
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from numba import config

from dmlcpu.runtime.compilation import OFF_FOR_GOOD, can_compile
from dmlcpu.runtime.layers import NumbaLayer, asked_for
from dmlcpu.runtime.pool import AVAILABLE, AWAKE, Pool
from dmlcpu.runtime.quota import cpu_quota

# A share of work below this many nanoseconds is not worth a thread that is awake.
GRAIN = 40_000
# A share that sleeping threads are woken for must be worth this many times what waking takes and a grain: with less,
# calls between those of another library took longer on two threads than on one (Zen 4).
_WAKINGS = 2
_STEP = 1 << 16  # such shares are rounded up to a multiple: plans are kept for each budget
# Calls in a row keep their threads awake, and are worth waking them for. Each begins soon after the one before: within
# the time for which threads stay awake, and that of a call not worth waking them for, which has less than this many
# such shares.
_SHARES = 2
# If threads that were woken for calls in a row sleep again before the next call, another library probably has its turn
# in between. Then twice as many calls must come in a row before they are woken again: up to this many. After a pause of
# this many nanoseconds one is enough again. Schedulers take the core from a caller for less: for 24 ms among 13 ONNX
# Runtime sessions.
_LONGEST_ROW = 64
_LONG_PAUSE = 100_000_000


# What one thread more costs work that is worth two: this fraction of the least share worth the second. It is 1 us for a
# thread that is awake, and 3 to 13 us for one that sleeps. (Posting takes 0.2 us and a part begins 1 us later; a waker
# makes three system calls, 6.4 us.) With n threads a call takes work / n + n * cost, the least for sqrt(work / cost).
_NEXT = 40
_PARTS = 8  # of a thread, where a part costs nothing extra
MOST_PARTS = 512  # of such work, unless there are more threads


class Budget(NamedTuple):
    """What a plan may spend: threads, and the least work worth the second of them, in nanoseconds."""

    threads: int
    grain: int = GRAIN
    kernel: str | None = None  # the kernel to use; None: the plan chooses
    ready: int = 0  # helpers that are awake, if a share is worth one of the others only from `grain` on

    def parts(self, work: int, most: int) -> int:
        """Return into how many shares to cut `work` nanoseconds that can be cut into at most `most` pieces."""
        count = max(_shares(work // self.grain), min(self.ready + 1, _shares(work // GRAIN)))
        return max(1, min(self.threads, most, count))


def parts_for(threads: int, pieces: int, most: int = MOST_PARTS) -> int:
    """Return into how many parts to cut work of which parts cost nothing extra, at most `most` if threads are fewer.

    With several parts a thread, fast cores take what slow ones do not get to: 8 fast cores and 8 that are half as fast
    give 8.8 of 12.4 times one core with one part a thread, and 11.7 with four. And of 1,000 rows no thread of 61 gets
    more than 1.1 times the mean with eight. Two threads have one part each.
    """
    if threads <= 2 or pieces <= threads:
        return threads
    even = -(-pieces // max(1, pieces // (_PARTS * threads)))  # of equally many pieces
    return max(threads, min(even, most))


def _shares(grains: int) -> int:
    """Return how many threads are best for work of `grains` least shares."""
    return max(grains, math.isqrt(_NEXT * grains)) if grains > 1 else 1


# The budget of all calls while compilation is switched off.
REFERENCE = Budget(1, kernel="reference")


class _Budgets(NamedTuple):
    """The budget when the threads are awake, when they sleep, and when some are awake."""

    awake: Budget
    asleep: Budget
    partly: tuple[Budget, ...]  # with 1, 2, 4, ... helpers awake
    helpers: int  # how many must be awake for the first
    gap: int  # the longest between the beginnings of calls in a row that find the threads asleep, in nanoseconds
    asked: int  # threads that were asked for: plans are made for no more than there can be


class _Own(threading.local):
    """The limits of this thread: each a lock, which is taken while the limit is in force, and a number of threads."""

    limits: Sequence[tuple[weakref.ref[threading.Lock], int]] = ()


_budgets: _Budgets | None = None
_layer: Pool | NumbaLayer | None = None
_last = 0  # when a budget was last asked for while the threads slept
_row = 0  # how many calls in a row have found the threads asleep
_row_needed = 1  # how many must before the threads are woken for the next
_own = _Own()
_has_own = False  # whether any thread ever had a limit of its own; without one, calls need not look
_making = threading.RLock()  # a signal handler or a finalizer may need the layer while this thread makes it


def budget(most: int | None = None) -> Budget:
    """Return what the call that begins now may spend: at most `most` threads, if that is given."""
    global _last, _row, _row_needed
    if not can_compile():
        return REFERENCE
    usual, asleep, partly, helpers, gap, _ = _budgets or _first_budgets()
    # After a pause all code is slow, so this is short.
    if usual is not asleep:
        ready = (_layer or layer()).awake()
        if ready >= helpers:
            pass
        elif ready:
            usual = partly[ready.bit_length() - 1]
        else:
            before, _last = _last, time.perf_counter_ns()
            _row += 1
            if _last - before > gap:
                _row, _row_needed = 0, 1 if _last - before > _LONG_PAUSE else _row_needed
            if _row < _row_needed:
                usual = asleep
    if _has_own:
        most = _within_limits(most)
    return usual if most is None or most >= usual.threads else usual._replace(threads=most)


def _within_limits(most: int | None) -> int | None:
    """Return the least of a number of threads and of this thread's own limits."""
    for limit, threads in _own.limits:
        lock = limit()
        if lock is not None and lock.locked():
            most = min(threads, most or threads)
    return most


def awake() -> Budget:
    """Return the budget when the threads are awake: another object whenever it, or the process, has changed."""
    return (_budgets or _first_budgets()).awake


def most() -> Budget:
    """Return the budget that no call may exceed: that of calls in a row, whatever limits a thread has."""
    return awake() if can_compile() else REFERENCE


def most_of_thread() -> Budget:
    """Return the budget that no call of this thread may exceed, for estimates of memory."""
    usual, own = most(), _within_limits(None)
    return usual if own is None or own >= usual.threads else usual._replace(threads=own)


def plan_for_now(prepare: Callable[..., Any], key: tuple[Any, ...] = (), most: int | None = None) -> Any:
    """Return what a cached `prepare` makes of a key for a call that begins now, on at most `most` threads.

    What is one part with the most threads is one part with fewer: tiny calls need not look whether threads sleep. A key
    that cannot be hashed is given to the same function without its cache.
    """
    is_off = config.DISABLE_JIT or OFF_FOR_GOOD  # `can_compile`, without its call
    try:
        chosen = prepare(*key, REFERENCE if is_off else (_budgets or _first_budgets()).awake)
        return chosen if chosen.is_single else prepare(*key, budget(most))
    except TypeError:  # also if `prepare` refuses the kind of an argument, which it then does once more
        pass
    return prepare.__wrapped__(*key, budget(most))  # type: ignore[attr-defined]  # here, errors have no other as context


def layer() -> Pool | NumbaLayer:
    """Return what runs the shares of a kernel call; it starts no thread before its first launch."""
    global _layer
    if _layer is None:
        with _making:
            _layer = _layer or _make_layer()
    return _layer


def launch(address: int, parts: int, args: tuple[Any, ...], helpers: int) -> bool:
    """Call the kernel at an address for every part, with at most `helpers` helpers; return whether it did."""
    global _row, _row_needed
    mine, before = layer(), _budgets
    waking = not mine.awake()
    if not waking:
        _row_needed = _row_needed // 2 or 1
    elif _row:
        _row, _row_needed = 0, min(2 * _row_needed, _LONGEST_ROW)
    done = mine.launch(address, parts, args, helpers)
    if before is None or before.awake is before.asleep:
        return done
    # Some helpers could not be started, or what waking takes has been measured again.
    if mine.most < before.helpers or (waking and before.asleep.grain != _asleep_grain()):
        _replace(before, _budgets_of(before.asked))
    return done


def _budgets_of(asked: int) -> _Budgets:
    threads = min(asked, layer().most + 1) if asked > 1 else 1
    usual = Budget(threads)
    if threads == 1:
        return _Budgets(usual, usual, (), 0, AWAKE + _SHARES * GRAIN, asked)
    helpers = threads - 1
    asleep = Budget(threads, _asleep_grain())
    partly = tuple([asleep._replace(ready=1 << power) for power in range(helpers.bit_length())])
    return _Budgets(usual, asleep, partly, helpers, AWAKE + _SHARES * asleep.grain, asked)


def _asleep_grain() -> int:
    """Return the least work worth a thread that sleeps."""
    return -(-_WAKINGS * (GRAIN + layer().waking()) // _STEP) * _STEP


def _replace(before: _Budgets | None, budgets: _Budgets) -> _Budgets:
    """Set the budgets, unless another thread has set others meanwhile; return those in force."""
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
    global _budgets, _layer, _making
    _making = threading.RLock()  # a thread that the child does not have may hold the other
    if _budgets is not None:  # equal, but another object: kept calls are chosen anew
        before, fresh = _budgets, Budget(*_budgets.awake)
        _budgets = before._replace(awake=fresh, asleep=fresh if before.asleep is before.awake else before.asleep)
    if isinstance(_layer, NumbaLayer):
        _layer.close()
    else:
        _layer = None  # the child has none of its helpers, and makes its own


def _close() -> None:
    if isinstance(_layer, Pool):
        _layer.close()


atexit.register(_close)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)


def get_num_threads() -> int:
    """Return the limit that is set for the threads of a call. A call never uses more threads than there are processors.

    Returns
    -------
    int
        The argument of `set_num_threads`. If it was not called, the environment variable ``DMLCPU_NUM_THREADS``, or
        else ``NUMBA_NUM_THREADS``. If none of these is set, the number of cores that this process may run on, limited
        by its CPU quota (cgroups; rounded up) and by ``OMP_NUM_THREADS``. The first call determines this number.

    Examples
    --------
    >>> import dmlcpu
    >>> dmlcpu.set_num_threads(2)
    >>> dmlcpu.get_num_threads()
    2
    """
    return (_budgets or _first_budgets()).asked


def set_num_threads(n: int) -> None:
    """Let operators use at most `n` threads, in this process, from the next call on.

    Numba's own setting does not change, and results do not depend on the number. Calls never use more threads than the
    number of processors that the process had at its first call.

    Parameters
    ----------
    n : int
        At least 1. With 1, a call computes on its own thread alone.

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
    """Replace the budget of the whole process for a while, for tests, benchmarks and warm-up: threads, grain, kernel.

    A call that the kernel does not support raises LookupError.
    """
    global _budgets
    before, fixed = _budgets, Budget(threads, grain, kernel)
    _budgets = _Budgets(fixed, fixed, (), 0, 0, threads)
    try:
        yield
    finally:
        _budgets = before


def limit_threads(threads: int) -> contextlib.AbstractContextManager[bool]:
    """Limit calls of this thread to `threads` threads in a ``with``; `set_num_threads` and outer limits still hold.

    An interrupt cannot leave a limit in force: ``with`` takes and releases a lock in C, with no signal handler in
    between, and a lock that is no longer used ends with its last reference.
    """
    global _has_own
    lock = threading.Lock()
    _own.limits = [*[limit for limit in _own.limits if limit[0]() is not None], (weakref.ref(lock), threads)]
    _has_own = True
    return lock


def _first_budgets() -> _Budgets:
    """Return the budgets that DMLCPU_NUM_THREADS or the machine allows."""
    text = os.environ.get("DMLCPU_NUM_THREADS", "")
    if text and not re.fullmatch(r"\s*\+?0*[1-9][0-9]*\s*", text):
        raise ValueError(f"DMLCPU_NUM_THREADS is {text!r}; allowed: an integer of at least 1")
    return _replace(None, _budgets_of(int(text) if text else _machine_threads()))


def _machine_threads() -> int:
    threads = int(config.NUMBA_NUM_THREADS)
    if not os.environ.get("NUMBA_NUM_THREADS"):
        if hasattr(os, "sched_getaffinity"):
            threads = min(threads, len(os.sched_getaffinity(0)))
        threads = min(threads, math.ceil(cpu_quota() or threads))
        # Launchers of several processes set it; GNU OpenMP ignores, too, what it cannot read.
        of_openmp = re.match(r"\s*\+?0*([1-9][0-9]*)\s*(,|$)", os.environ.get("OMP_NUM_THREADS", ""))
        threads = min(threads, int(of_openmp[1]) if of_openmp else threads)
    return max(1, threads)
