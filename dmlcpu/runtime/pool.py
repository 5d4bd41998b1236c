"""dmlcpu's own threads, on Linux: helpers that wait for work awake, then asleep. No call waits for one that is late.

Each helper has a box through which it is handed launches. A caller takes boxes that are free, posts its launch in each,
and does parts of it until none is left. Then it takes back what no helper has begun, and waits only for helpers that
are at work. So a helper whose core is busy costs nothing but its help, and callers in several threads do not wait for
one another.

A helper may lose its core in the middle of a part: to threads of another library that spin, or to another process. The
scheduler would let it go on up to 4 ms later. So the caller looks whether the helper runs. If it does not, the caller
lends it its own core: it confines the helper to that core, and sleeps until the part is done.

Sleeping helpers are woken by one another: each wakes two more before its first part. The caller wakes one at most, and
none if the first of its helpers is awake. To wake 127 one after the other took 0.8 ms.

A sleeping helper may be woken on its waker's core. On virtual machines Linux takes an idle core for one that does not
exist; both threads then share a core until the scheduler looks again, 4 ms later. With two processors, and once that
has been seen, helpers are confined to other cores than their waker's until they have risen.

No more threads are at work than the pool has helpers, and one: a second caller takes the place of a helper.

Measured on two virtual cores of Zen 4 (Linux 6.18), int8 product 100 x 768 x 2304, ms: called in a row / after 30 ms
of sleep / beside a process that computes on one core. One thread 0.90 / 1.23 / 0.91; these threads 0.54 / 1.06 / 0.89;
TBB 0.80 / 1.36 / 0.99; GNU OpenMP 0.54 / 5.8 / 8.0, with GOMP_SPINCOUNT=1000 1.02 / 1.37 / 1.03.
"""

import functools
import logging
import threading
import time
from typing import Any

import numpy as np
from numba import int64, intp
from numba.core import types

from dmlcpu.runtime.atomics import (
    FUTEX,
    add,
    compare_exchange,
    exchange,
    load,
    nanoseconds,
    relax,
    running_time,
    sleep,
    spin,
    wake,
)
from dmlcpu.runtime.claims import Claims
from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.jit import compile_lazily, device
from dmlcpu.runtime.launches import ask, call, enter, entry_of, make_launch, take_part
from dmlcpu.runtime.memory import aligned_empty
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record, record_at
from dmlcpu.runtime.uninterrupted import uninterrupted

_log = logging.getLogger("dmlcpu")

_SET = 16  # int64s of a set of processors, a bit for each: 1,024, as in the C library

# What all share, before the boxes. Atomic operations take arrays, so words that several threads write are arrays of one
# element, each in a cache line of its own.
HEAD = record(
    CACHE_LINE,
    most=np.int64,  # helpers
    confines=np.int64,  # whether helpers are confined while they are woken
    awake=(np.int64, 1),  # helpers
    busy=(np.int64, 1),  # callers in a launch, and helpers that they have
)
BOX = record(
    CACHE_LINE,
    state=(np.int64, 1),  # in a cache line of its own, because its helper watches it
    owner=(np.int64, 1),  # 1 while a caller has it
    following=np.int64,  # the next box of its caller, or _NO_BOX
    later=np.int64,  # the box that its caller took next, as long as it takes boxes
    left=np.int64,  # the boxes of the helpers that this one wakes, or _NO_BOX
    right=np.int64,
    helpers=np.int64,  # how many boxes there are from this one on
    entry=np.int64,
    launch=np.int64,
    thread=np.int64,  # the helper's number in the system
    steered=np.int64,  # whether the helper is confined
    woken_at=np.int64,  # or 0 once the helper has risen
    woken_on=np.int64,  # the waker's processor
    waking=np.int64,  # what waking the helper takes: a moving average in nanoseconds
    allowed=(np.int64, _SET),  # the processors that the helper may use when it is no longer confined
    confined=(np.int64, _SET),  # those that it may use while it is confined
    limit=(np.int64, 2),  # of the caller's sleep: seconds and nanoseconds
)
_CELLS, _FIRST = cells_of(BOX), cells_of(HEAD)

# The states of a box. Its owner posts, takes back and awaits; its helper runs, and frees it when it is done. What is
# posted for a helper that sleeps is pending until another thread wakes the helper.
_FREE, _ASLEEP, _POSTED, _RUNNING, _AWAITED, _PENDING, _WAKING = range(7)

_NO_BOX = -1
AVAILABLE = bool(FUTEX)

# In nanoseconds. How long a helper stays awake after its last work: of 0.06 to 1.4 ms, 0.6 was best for calls in a row.
AWAKE = 600_000
# How long a caller waits awake for a helper that is at work: this, and a fraction of the time the call has taken, by
# which parts may differ. Then it sleeps.
_WAIT = 150_000
_IMBALANCE = 8
# When the caller looks after the helper: after this time, then each time twice as long after, and at last this often.
# A helper that ran for less than this fraction of the time since has lost its core.
_LOOK = 10_000
_LONGEST_LOOK = 1_000_000
_RAN = 4
_FIRST_WAKING = 100_000  # what waking a helper is taken to cost until that has been measured
_LONGEST_WAKING = 200_000  # longer ones count as this, or one busy hour would keep most later calls serial
_FALLING_ASLEEP = 20  # ms, at most, at the end of the process

_getcpu: Any = types.ExternalFunction("sched_getcpu", types.int32())
_getaffinity: Any = types.ExternalFunction("sched_getaffinity", types.int32(types.int32, types.int64, types.int64))
_setaffinity: Any = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.int64, types.int64))


def _serve(boxes, first, awake):
    """Be the helper of the box at boxes[first]: do what is posted; sleep when nothing came for `awake` nanoseconds."""
    head, box = record_at(boxes, 0, HEAD), record_at(boxes, first, BOX)
    patience = awake
    add(head.awake, 0, 1)
    while True:
        idle = spin(box.state, 0, _FREE, patience)
        if idle:
            compare_exchange(box.state, 0, _FREE, _ASLEEP)
        if load(box.state, 0) == _ASLEEP:  # also if what was pending has been taken back
            add(head.awake, 0, -1)
            while load(box.state, 0) == _ASLEEP:
                sleep(box.state, 0, _ASLEEP, 0)
            add(head.awake, 0, 1)
            if box.woken_at != 0:  # it is 0 if the helper rose by chance before it was woken
                took = min(max(nanoseconds() - box.woken_at, 0), _LONGEST_WAKING)
                box.waking += (took - box.waking) // 4
                box.woken_at = 0
                if box.woken_on == _getcpu():
                    head.confines = 1
            _unsteer(box)
            patience = awake
        if _begins(box, _POSTED) or _begins(box, _PENDING):  # else it has been taken back
            _wake(boxes, box.left)
            _wake(boxes, box.right)
            enter(box.entry, box.launch)
            patience = 0 if box.steered else awake  # its caller needs the core that it has lent
            _unsteer(box)
            if exchange(box.state, 0, _FREE) == _AWAITED:
                wake(box.state, 0)


@device
def _begins(box, state):
    """Begin what is posted, or pending; return whether it is."""
    return compare_exchange(box.state, 0, state, _RUNNING) == state


@device
def _wake(boxes, first):
    """Wake the helper for which something is pending in a box; first: of its cells, or _NO_BOX."""
    if first == _NO_BOX:
        return
    head, box = record_at(boxes, 0, HEAD), record_at(boxes, first, BOX)
    if compare_exchange(box.state, 0, _PENDING, _WAKING) == _PENDING:
        if head.confines:
            _steer(box, head.confines)  # not True: Numba would compile it for True and for False
        box.woken_on, box.woken_at = _getcpu(), nanoseconds()
        exchange(box.state, 0, _POSTED)
        wake(box.state, 0)


@device
def _unsteer(box):
    """Allow the helper on all of the waker's processors again."""
    if box.steered:
        box.steered = 0
        _setaffinity(0, 8 * _SET, address_of(box.allowed, 0))


@device
def _steer(box, away):
    """Confine a helper to the processors that the caller may use and is not on, if `away`; else to the one it is on.

    After `away` it is allowed on all that the caller may use, else on those on which it was allowed before.
    """
    if box.thread == 0 or _getaffinity(0 if away else box.thread, 8 * _SET, address_of(box.allowed, 0)) != 0:
        return  # without a number, the caller would confine itself
    here, some = _getcpu(), 0
    for i in range(_SET):
        mine = 1 << (here & 63) if i == here >> 6 else 0
        box.confined[i] = box.allowed[i] & ~mine if away else mine
        some |= box.confined[i]
    if some:
        box.steered = 1
        _setaffinity(box.thread, 8 * _SET, address_of(box.confined, 0))


def _launch(address, parts, helpers, args, boxes, recruit, leave):
    """Do all parts of a kernel call, with as many helpers, at most, as are free when a part is begun.

    recruit, leave: where the machine code of `_recruit` and `_leave` is.
    """
    launch, entry = make_launch(address, parts, args), entry_of(args)
    begin, mine = nanoseconds(), _NO_BOX
    add(record_at(boxes, 0, HEAD).busy, 0, 1)
    part = take_part(launch, args)
    while part < parts:
        mine = ask(recruit, (boxes, mine, min(helpers, parts - part - 1), entry, launch))
        call(address, part, parts, args)
        part = take_part(launch, args)
    ask(leave, (boxes, mine, begin))


def _recruit(boxes, mine, wanted, entry, launch):
    """Post a launch in free boxes until its caller's chain has `wanted` of them; return the chain's first box."""
    head, before, root, parent = record_at(boxes, 0, HEAD), mine, _NO_BOX, _NO_BOX
    helpers = record_at(boxes, mine, BOX).helpers if mine != _NO_BOX else 0
    for first in range(_FIRST, boxes.size, _CELLS):
        if helpers >= wanted or load(head.busy, 0) > head.most:
            break
        box = record_at(boxes, first, BOX)
        if load(box.owner, 0) == 0 and compare_exchange(box.owner, 0, 0, 1) == 0:
            add(head.busy, 0, 1)
            helpers += 1
            box.entry, box.launch, box.following, box.helpers = entry, launch, mine, helpers
            box.later = box.left = box.right = _NO_BOX
            if root == _NO_BOX:
                root = parent = first
            else:
                record_at(boxes, mine, BOX).later = first
                parent = _adopt(record_at(boxes, parent, BOX), parent, first)
            mine = first
    at = mine
    while at != before:  # from the last one back: who wakes others finds that they are pending
        box = record_at(boxes, at, BOX)
        if compare_exchange(box.state, 0, _FREE, _POSTED) != _FREE:
            exchange(box.state, 0, _PENDING)
        at = box.following
    _wake(boxes, root)
    return mine


@device
def _adopt(box, parent, child):
    """Let the helper of a box wake that of another one; return which box gets the next."""
    if box.left == _NO_BOX:
        box.left = child
        return parent
    box.right = child
    return box.later


def _leave(boxes, mine, begin):
    """Give back the boxes of the caller's chain when no part is left; return _NO_BOX, as `ask` needs a number."""
    head, at = record_at(boxes, 0, HEAD), mine
    while at != _NO_BOX:  # all, before it waits for any
        box = record_at(boxes, at, BOX)
        at = box.following
        _take_back(box)
    patience = _WAIT + (nanoseconds() - begin) // _IMBALANCE
    while mine != _NO_BOX:
        box = record_at(boxes, mine, BOX)
        mine = box.following
        if load(box.state, 0) == _RUNNING:
            _await(box, patience)
        add(head.busy, 0, -1)
        exchange(box.owner, 0, 0)
    add(head.busy, 0, -1)
    return mine


@device
def _take_back(box):
    """Take back what no helper has begun."""
    state = compare_exchange(box.state, 0, _POSTED, _FREE)
    while state in (_PENDING, _WAKING):
        if state == _PENDING and compare_exchange(box.state, 0, _PENDING, _ASLEEP) == _PENDING:
            break
        relax()
        state = compare_exchange(box.state, 0, _POSTED, _FREE)


@device
def _await(box, patience):
    """Wait until a helper that is at work is done.

    The wait is awake for about `patience`, then asleep. A helper that has lost its core goes on on the caller's.
    """
    lost, box.limit[1] = False, _LOOK
    seen = ran = nanoseconds()
    while True:
        look = box.limit[1]
        if 2 * look <= patience and not lost:
            if not spin(box.state, 0, _RUNNING, look):
                break
        else:
            if compare_exchange(box.state, 0, _RUNNING, _AWAITED) == _RUNNING:
                sleep(box.state, 0, _AWAITED, address_of(box.limit, 0))
            if compare_exchange(box.state, 0, _AWAITED, _RUNNING) != _AWAITED:
                break
        seen_before, ran_before = seen, ran
        seen, ran = nanoseconds(), running_time(box.thread)
        if look > _LOOK and not lost and _RAN * (ran - ran_before) < seen - seen_before:
            lost = True
            _steer(box, not lost)
        if look < _LONGEST_LOOK:
            box.limit[1] = 2 * look
    if lost:  # also if the helper was done before it was confined
        box.steered = 0
        _setaffinity(box.thread, 8 * _SET, address_of(box.allowed, 0))


@functools.cache
def _compiled() -> tuple[Any, Any]:
    """Return the compiled functions: what a caller runs, and what a helper runs."""
    return compile_lazily(_launch), compile_lazily(_serve)


@functools.cache
def _shared() -> tuple[Any, Any]:
    """Return the compiled functions that all launches share, whatever the types of their arguments."""
    options = {"_nrt": False, "no_cpython_wrapper": True}
    recruit, leave = [compile_lazily(function, **options) for function in (_recruit, _leave)]
    recruit.compile((int64[::1], *[intp] * 4))
    leave.compile((int64[::1], *[intp] * 2))
    return recruit, leave


@functools.cache
def _addresses() -> tuple[int, ...]:
    """Return where the machine code of `_recruit` and `_leave` is."""
    addresses: tuple[int, ...] = uninterrupted(_find_addresses)
    return addresses


def _find_addresses() -> tuple[int, ...]:
    codes = [code for compiled in _shared() for code in compiled.overloads.values()]
    return tuple([code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name) for code in codes])


class Pool:
    """At most `most` helpers, each started when it is first wanted. They wait awake for `awake` nanoseconds.

    They end with the process.
    """

    def __init__(self, most: int, awake: int = AWAKE) -> None:
        self._cells = aligned_empty(_FIRST + max(most, 1) * _CELLS, "int64")
        self._cells[...] = 0
        self._head, self._boxes = self._cells[:_FIRST].view(HEAD), self._cells[_FIRST:].view(BOX)
        self._head["most"], self._head["confines"] = most, most == 1
        self._boxes["state"] = _ASLEEP  # boxes without a helper are marked asleep
        self._boxes["waking"] = _FIRST_WAKING
        self._awake = memoryview(self._head["awake"][0])  # read in half the time
        self.most, self._patience = most, awake
        self._count(0)
        self._known: set[int] = set()  # the addresses of kernels for whose arguments `_launch` is compiled
        self._preparing = Claims()

    def launch(self, address: int, parts: int, args: tuple[Any, ...], helpers: int) -> bool:
        """Call the kernel at an address for every part; return False, and do nothing, while another thread prepares.

        The first launch of a kernel prepares: it compiles, and may start helpers. A finalizer or a signal handler that
        launches meanwhile gets False as well.
        """
        wanted = min(helpers, self.most)
        if address in self._known and self._helpers >= wanted:
            _compiled()[0](address, parts, wanted, args, self._started, *_addresses())
            return True
        lock = threading.Lock()
        with lock:
            if not self._preparing.grant(lock):
                return False
            self._start(wanted)
            _compiled()[0](address, parts, wanted, args, self._started, *_addresses())
            self._known.add(address)
        return True

    def compiled(self) -> list[Any]:
        """Return the compiled functions that this uses."""
        return [*_compiled(), *_shared()]

    def awake(self) -> int:
        """Return how many helpers are awake."""
        return self._awake[0]

    def waking(self) -> int:
        """Return what waking the first helper takes, in nanoseconds: a moving average of what was measured."""
        return int(self._boxes["waking"].item(0))

    def describe(self) -> dict[str, str | None]:
        """Return what `dmlcpu info` shows of threads."""
        waits = f"awake for {self._patience / 1e6:g} ms after a call, then asleep"
        return {
            "layer": f"dmlcpu's own ({self._helpers} of at most {self.most} helpers started)",
            "layer_from": "dmlcpu's default on Linux",
            "waiting": f"{waits} (OMP_WAIT_POLICY=passive)" if self._patience == 0 else waits,
            "advice": None,
        }

    def close(self) -> None:
        """Hand nothing to helpers any more; wait a moment until all are asleep, from which nothing wakes them."""
        states, self.most = self._boxes["state"][: self._helpers], 0
        self._count(0)
        for _ in range(_FALLING_ASLEEP):
            if (states == _ASLEEP).all():
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
            self._boxes["state"][number] = _FREE
            self._count(number + 1)  # first, or after an interrupt in `start` the box would get a second helper
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more, or the interpreter is about to end
                self._give_up(number, str(error))
            if self.most <= number:
                break

    def _help(self, number: int, starter: int) -> None:
        if threading.get_native_id() == starter:
            self._give_up(number, "threads are greenlets here")  # of gevent: this would never return
            return
        self._boxes["thread"][number] = threading.get_native_id()
        _compiled()[1](self._cells, _FIRST + number * _CELLS, self._patience)

    def _count(self, helpers: int) -> None:
        self._helpers, self._started = helpers, self._cells[: _FIRST + helpers * _CELLS]

    def _give_up(self, number: int, reason: str) -> None:
        _log.debug("no thread could be started (%s); there are %d", reason, number)
        self._boxes["state"][number] = _ASLEEP
        self.most = number
        self._count(number)
