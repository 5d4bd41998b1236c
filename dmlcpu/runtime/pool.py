"""Threads of our own, on Linux. They wait for work awake, then asleep. Nobody waits for one that comes late.

Each helper has a box, through which it is handed jobs. Who makes a parallel call takes boxes that are free, posts the
job in each, and does parts of it until none is left. Then it takes back what no helper has begun, and waits only for
those that are at work. So a helper that does not come, as its core is busy, costs nothing but its help, and callers in
several threads do not wait for one another.

A sleeping helper is woken on another core than its waker's. Linux would often choose the waker's own, because it takes
the idle core of a virtual machine for one that is not there; both threads then share a core until the scheduler looks
again, 4 ms later.

Measured on two virtual cores of Zen 4 (Linux 6.18), int8 product 100 x 768 x 2304, ms: called in a row / after 30 ms
of sleep / beside a process that computes on one core. One thread 0.90 / 1.23 / 0.91; these threads 0.54 / 1.06 / 0.89;
TBB 0.80 / 1.36 / 0.99; GNU OpenMP 0.54 / 5.8 / 8.0, with GOMP_SPINCOUNT=1000 1.02 / 1.37 / 1.03.
"""

import functools
import logging
import threading
import time
from typing import Any

from numba import int64, intp
from numba.core import types

from dmlcpu.runtime.atomics import FUTEX, compare_exchange, exchange, load, nanoseconds, sleep, spin, wake
from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.jit import compile_lazily, device
from dmlcpu.runtime.jobs import call, enter, entry_of, make_job, take_part
from dmlcpu.runtime.memory import aligned_empty

_log = logging.getLogger("dmlcpu")

# A box, in cells of 8 bytes; what its helper waits for has a cache line of its own.
_STATE = 0
_OWNER, _NEXT, _ENTRY, _JOB, _THREAD, _STEERED, _WOKEN_AT, _WAKING = range(8, 16)
_ALLOWED, _ELSEWHERE = 16, 32  # sets of processors, a bit for each
_SET = 16  # cells of a set: 1,024 processors, as in the C library
_BOX = 48

# The states of a box. Its owner posts, takes back and awaits; its helper runs, and is free again when it is done.
_FREE, _ASLEEP, _POSTED, _RUNNING, _AWAITED = range(5)

_NOBODY = -1
AVAILABLE = bool(FUTEX)

# In nanoseconds. How long a helper stays awake after its last work: of 0.06 to 1.4 ms, 0.6 was best for calls in a row.
AWAKE = 600_000
# How long a caller waits awake for a helper that is at work: at least so long, and a fraction of the time the call has
# taken, by which parts may differ. Then it sleeps: the helper may have lost its core to something else for 4 ms.
_WAIT = 150_000
_IMBALANCE = 8
_FIRST_WAKING = 100_000  # what waking a helper is taken to cost until that has been measured
_LONGEST_WAKING = 200_000  # that counts; or one busy hour would keep all but the largest calls serial for good
_FALLING_ASLEEP = 20  # ms, at most, at the end of the process

_getcpu: Any = types.ExternalFunction("sched_getcpu", types.int32())
_getaffinity: Any = types.ExternalFunction("sched_getaffinity", types.int32(types.int32, types.int64, types.int64))
_setaffinity: Any = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.int64, types.int64))


def _serve(boxes, box, awake):  # type: ignore[no-untyped-def]
    """Be a helper: do the jobs that are posted in a box, and sleep when none has come for `awake` nanoseconds."""
    while True:
        idle = spin(boxes, box + _STATE, _FREE, awake)
        if idle and compare_exchange(boxes, box + _STATE, _FREE, _ASLEEP) == _FREE:
            sleep(boxes, box + _STATE, _ASLEEP)
            _rise(boxes, box)
            _roam(boxes, box)
        if compare_exchange(boxes, box + _STATE, _POSTED, _RUNNING) == _POSTED:  # else it has been taken back
            enter(boxes[box + _ENTRY], boxes[box + _JOB])
            _roam(boxes, box)  # if it was confined only after it had risen
            if exchange(boxes, box + _STATE, _FREE) == _AWAITED:
                wake(boxes, box + _STATE)


@device
def _rise(boxes, box):  # type: ignore[no-untyped-def]
    """Note how long waking took."""
    if boxes[box + _WOKEN_AT] != 0:  # it is, if the helper rose by chance before it was woken
        took = min(max(nanoseconds() - boxes[box + _WOKEN_AT], 0), _LONGEST_WAKING)
        boxes[box + _WAKING] += (took - boxes[box + _WAKING]) // 4
        boxes[box + _WOKEN_AT] = 0


@device
def _roam(boxes, box):  # type: ignore[no-untyped-def]
    """Be allowed on all of the waker's processors again."""
    if boxes[box + _STEERED]:
        boxes[box + _STEERED] = 0
        _setaffinity(0, 8 * _SET, address_of(boxes, box + _ALLOWED))


@device
def _wake_elsewhere(boxes, box):  # type: ignore[no-untyped-def]
    """Wake a helper on a processor that the caller may use and is not on."""
    if _getaffinity(0, 8 * _SET, address_of(boxes, box + _ALLOWED)) == 0:
        here = _getcpu()
        others = 0
        for i in range(_SET):
            mine = 1 << (here & 63) if i == here >> 6 else 0
            boxes[box + _ELSEWHERE + i] = boxes[box + _ALLOWED + i] & ~mine
            others |= boxes[box + _ELSEWHERE + i]
        if others:
            boxes[box + _STEERED] = 1
            _setaffinity(boxes[box + _THREAD], 8 * _SET, address_of(boxes, box + _ELSEWHERE))
    boxes[box + _WOKEN_AT] = nanoseconds()
    wake(boxes, box + _STATE)


def _launch(address, parts, args, boxes):  # type: ignore[no-untyped-def]
    """Do all parts of a kernel call, with the help of whoever is free when a part is begun."""
    job, entry = make_job(address, parts, args), entry_of(args)
    begin = nanoseconds()
    mine, helpers = _NOBODY, 0
    part = take_part(job, args)
    while part < parts:
        mine, more = _recruit(boxes, mine, parts - part - 1 - helpers, entry, job)
        helpers += more
        call(address, part, parts, args)
        part = take_part(job, args)
    patience = max(_WAIT, (nanoseconds() - begin) // _IMBALANCE)
    while mine != _NOBODY:
        box, mine = mine, boxes[mine + _NEXT]
        _dismiss(boxes, box, patience)


@device
def _recruit(boxes, mine, wanted, entry, job):  # type: ignore[no-untyped-def]
    """Post a job in free boxes, as many as are wanted; return the first of the caller's chain, and how many it took."""
    helpers = 0
    for box in range(0, boxes.size, _BOX):
        if helpers >= wanted:
            break
        if load(boxes, box + _OWNER) == 0 and compare_exchange(boxes, box + _OWNER, 0, 1) == 0:
            boxes[box + _ENTRY], boxes[box + _JOB], boxes[box + _NEXT] = entry, job, mine
            mine = box
            helpers += 1
            if exchange(boxes, box + _STATE, _POSTED) == _ASLEEP:
                _wake_elsewhere(boxes, box)
    return mine, helpers


@device
def _dismiss(boxes, box, patience):  # type: ignore[no-untyped-def]
    """Take a job back if its helper has not begun, else wait until it is done; then let others have the box."""
    if compare_exchange(boxes, box + _STATE, _POSTED, _FREE) == _RUNNING:
        at_work = spin(boxes, box + _STATE, _RUNNING, patience)
        if at_work and compare_exchange(boxes, box + _STATE, _RUNNING, _AWAITED) == _RUNNING:
            sleep(boxes, box + _STATE, _AWAITED)
    exchange(boxes, box + _OWNER, 0)


@functools.cache
def _compiled() -> tuple[Any, Any]:
    """Return the compiled functions: what a caller runs, and what a helper runs."""
    return compile_lazily(_launch), compile_lazily(_serve)


class Pool:
    """Helpers, each started when it is first wanted. They end with the process.

    Parameters
    ----------
    most : int
        How many there may be.
    awake : int
        For how many nanoseconds they wait awake for work.
    """

    def __init__(self, most: int, awake: int = AWAKE) -> None:
        self._boxes = aligned_empty(max(most, 1) * _BOX, "int64")
        self._boxes[...] = 0
        self._boxes[_STATE::_BOX] = _ASLEEP  # what there is not sleeps
        self._boxes[_WAKING::_BOX] = _FIRST_WAKING
        self._cells = memoryview(self._boxes)  # type: ignore[arg-type]  # read in half the time
        self._most, self.awake = most, awake
        self._helpers = 0
        self._started = self._boxes[:0]  # the boxes that have a helper
        self._known: set[int] = set()  # the addresses of kernels for whose arguments `_launch` is compiled
        self._preparing = threading.Lock()

    def launch(self, address: int, parts: int, args: tuple[Any, ...]) -> bool:
        """Call the kernel at an address for every part; return False, and do nothing, where that cannot be.

        The first call of a kernel compiles, and may start helpers. A finalizer or a signal handler that calls meanwhile
        must do without, and so must other threads.
        """
        wanted = min(parts - 1, self._most)
        if address in self._known and self._helpers >= wanted:
            _compiled()[0](address, parts, args, self._started)
            return True
        if not self._preparing.acquire(blocking=False):
            return False
        try:
            self._start(wanted)
            _compiled()[0](address, parts, args, self._started)
            self._known.add(address)
        finally:
            self._preparing.release()
        return True

    def compiled(self) -> list[Any]:
        """Return the compiled functions that this uses."""
        return [*_compiled()]

    def is_asleep(self) -> bool:
        """Return whether the helper that is asked first sleeps, or has not been started."""
        return self._cells[_STATE] == _ASLEEP

    def waking(self) -> int:
        """Return what waking a helper takes, in nanoseconds: a moving average of what was measured."""
        return self._cells[_WAKING]

    def describe(self) -> dict[str, str | None]:
        """Return what users may want to know."""
        waits = f"awake for {self.awake / 1e6:g} ms after a call, then asleep"
        return {
            "layer": f"dmlcpu's own ({self._helpers} of at most {self._most} helpers started)",
            "layer_from": "dmlcpu's default on Linux",
            "waiting": f"{waits} (OMP_WAIT_POLICY=passive)" if self.awake == 0 else waits,
            "advice": None,
        }

    def close(self) -> None:
        """Have no more helpers; wait a moment for those that there are to fall asleep, which they do not wake from."""
        boxes, self._most = self._started, 0
        self._count(0)
        for _ in range(_FALLING_ASLEEP):
            if (boxes[_STATE::_BOX] == _ASLEEP).all():
                break
            time.sleep(1e-3)

    def _start(self, wanted: int) -> None:
        if wanted <= self._helpers:
            return
        _compiled()[1].compile((int64[::1], intp, intp))  # once, and not in each thread
        for number in range(self._helpers, wanted):
            thread = threading.Thread(
                target=self._help, args=(number, threading.get_native_id()), name=f"dmlcpu-{number + 1}", daemon=True
            )
            self._boxes[number * _BOX + _STATE] = _FREE
            self._count(number + 1)  # before: an interrupt in `start` must not have a box get two helpers
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more, or the interpreter is about to end
                self._give_up(number, str(error))
            if self._most <= number:
                break

    def _help(self, number: int, starter: int) -> None:
        if threading.get_native_id() == starter:
            self._give_up(number, "threads are greenlets here")  # of gevent: this would never return
            return
        box = number * _BOX
        self._boxes[box + _THREAD] = threading.get_native_id()
        _compiled()[1](self._boxes, box, self.awake)

    def _count(self, helpers: int) -> None:
        self._helpers = helpers
        self._started = self._boxes[: helpers * _BOX]

    def _give_up(self, number: int, reason: str) -> None:
        _log.debug("no thread could be started (%s); there are %d", reason, number)
        self._boxes[number * _BOX + _STATE] = _ASLEEP
        self._most = number
        self._count(number)
