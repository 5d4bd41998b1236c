"""Boxes through which helpers are handed launches, and what callers and helpers do with them; see pool.py.

A caller takes boxes that are free, posts its launch in each, and does parts of it until none is left. Then it takes
back what no helper has begun, and waits only for helpers that are at work.

A helper may lose its core in the middle of a part: to threads of another library that spin, or to another process. The
scheduler would let it go on up to 4 ms later. So the caller looks whether the helper runs. If it does not, the caller
lends it its own core: it confines the helper to that core, and sleeps until the part is done.

Sleeping helpers are woken by one another: each wakes up to WOKEN more before its first part. The caller wakes one at
most, and none if the first of its helpers is awake. To wake 127 one after the other took 0.8 ms.

A sleeping helper may be woken on its waker's core. On virtual machines Linux takes an idle core for one that does not
exist; both threads then share a core until the scheduler looks again, 4 ms later. With two processors, and once that
has been seen, helpers are confined to other cores than their waker's until they have risen.

Helpers are taken only while callers and helpers at work are no more than the pool has helpers: a second caller takes
the place of one.
"""

from typing import Any

import numpy as np
from numba.core import types

from dmlcpu.runtime.atomics import (
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
from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.launches import do_part, do_parts, take_part
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record, record_at

# Helpers that one helper wakes. Waking takes the waker 6 us, and the helper 20 to 130 us to rise. By computation for 15
# to 127 helpers, calls of 1 to 20 ms are within 10 % of the fastest with 8; with 2 they took up to 1.5 times as long.
WOKEN = 8
_SET = 16  # int64s of a set of processors, a bit for each: 1,024, as in the C library

# What all share, before the boxes. Atomic operations take arrays, so words that several threads write are arrays of one
# element, each in a cache line of its own.
HEAD = record(
    CACHE_LINE,
    most=np.int64,  # helpers
    confines=np.int64,  # whether helpers are confined while they are woken
    spare=np.int64,  # processors but the caller's: no more helpers stay awake, or they would take turns with the caller
    awake=(np.int64, 1),  # helpers
    busy=(np.int64, 1),  # callers in a launch, and helpers that they have
)
BOX = record(
    CACHE_LINE,
    state=(np.int64, 1),  # in a cache line of its own, because its helper watches it
    owner=(np.int64, 1),  # 1 while a caller has it
    following=np.int64,  # the next box of its caller, or NO_BOX
    later=np.int64,  # the box that its caller took next, as long as it takes boxes
    woken=(np.int64, WOKEN),  # the boxes of the helpers that this one wakes
    wakes=np.int64,  # how many these are
    helpers=np.int64,  # how many boxes there are from this one on
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
CELLS, FIRST = cells_of(BOX), cells_of(HEAD)

# The states of a box. Its owner posts, takes back and awaits; its helper runs, and frees it when it is done. What is
# posted for a helper that sleeps is pending until another thread wakes the helper.
FREE, ASLEEP, POSTED, RUNNING, AWAITED, PENDING, WAKING = range(7)

NO_BOX = -1

# In nanoseconds. How long a caller waits awake for a helper that is at work: this, and a fraction of the time the call
# has taken, by which parts may differ. Then it sleeps.
_WAIT = 150_000
_IMBALANCE = 8
# When the caller looks after the helper: after this time, then each time twice as long after, and at last this often.
# A helper that ran for less than this fraction of the time since has lost its core.
_LOOK = 10_000
_LONGEST_LOOK = 1_000_000
_RAN = 4
FIRST_WAKING = 100_000  # what waking a helper is taken to cost until that has been measured
LONGEST_WAKING = 200_000  # longer ones count as this, or one busy hour would keep most later calls serial

_getcpu: Any = types.ExternalFunction("sched_getcpu", types.int32())
_getaffinity: Any = types.ExternalFunction("sched_getaffinity", types.int32(types.int32, types.int64, types.int64))
_setaffinity: Any = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.int64, types.int64))


def serve(boxes, first, awake):
    """Be the helper of the box at boxes[first]: do what is posted; sleep when nothing came for `awake` nanoseconds."""
    head, box = record_at(boxes, 0, HEAD), record_at(boxes, first, BOX)
    patience, counts = awake, True  # whether it counts among the awake
    add(head.awake, 0, 1)
    while True:
        idle = spin(box.state, 0, FREE, patience)
        if idle:
            compare_exchange(box.state, 0, FREE, ASLEEP)
        if load(box.state, 0) == ASLEEP:  # also if what was pending has been taken back
            add(head.awake, 0, -1 if counts else 0)
            while load(box.state, 0) == ASLEEP:
                sleep(box.state, 0, ASLEEP, 0)
            add(head.awake, 0, 1)
            patience, counts = awake, True
        if _begins(box, POSTED) or _begins(box, PENDING):
            _note_waking(box, head)  # not before: a waker might be at work on the box
            _unsteer(box)
            for i in range(box.wakes):
                _wake(boxes, box.woken[i])
            do_parts(box.launch)
            counts = counts and _stays_awake(head)
            patience = 0 if box.steered or not counts else awake  # a caller needs the core that it has lent
            _unsteer(box)
            if exchange(box.state, 0, FREE) == AWAITED:
                wake(box.state, 0)
        else:  # it has been taken back, or a waker is at work on the box
            counts = counts and _stays_awake(head)
            patience = awake if counts else 0


@device
def _stays_awake(head):
    """Return whether a helper with nothing to do stays among the awake: not if these outnumber the spare processors.

    Several leave one after the other, until no more are left than may stay.
    """
    if load(head.awake, 0) <= head.spare:
        return True
    if add(head.awake, 0, -1) > head.spare:
        return False
    add(head.awake, 0, 1)
    return True


@device
def _note_waking(box, head):
    """Measure what waking the helper has taken, and see on which processor it has risen, if it has been woken."""
    if box.woken_at != 0:
        took = min(max(nanoseconds() - box.woken_at, 0), LONGEST_WAKING)
        box.waking += (took - box.waking) // 4
        box.woken_at = 0
        if box.woken_on == _getcpu():
            head.confines = 1


@device
def _begins(box, state):
    """Begin what is posted, or pending; return whether it is."""
    return compare_exchange(box.state, 0, state, RUNNING) == state


@device
def _wake(boxes, first):
    """Wake the helper for which something is pending in a box; first: of its cells."""
    head, box = record_at(boxes, 0, HEAD), record_at(boxes, first, BOX)
    if compare_exchange(box.state, 0, PENDING, WAKING) == PENDING:
        if head.confines:
            _steer(box, 1)
        box.woken_on, box.woken_at = _getcpu(), nanoseconds()
        exchange(box.state, 0, POSTED)
        wake(box.state, 0)


@device
def _unsteer(box):
    """Allow the helper on all its processors again, if it is confined."""
    if box.steered:
        box.steered = 0
        _setaffinity(box.thread, 8 * _SET, address_of(box.allowed, 0))


@device
def _steer(box, away):
    """Confine a helper to the processors that the caller may use and is not on, if `away`; else to the one it is on.

    After `away` it is allowed on all that the caller may use, else on those on which it was allowed before.
    """
    _unsteer(box)  # it may be confined from a time when it was woken in vain
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


def lead(boxes, parts, helpers, launch):
    """Do all parts of a launch, with as many helpers, at most, as are free when a part is begun.

    Return 0, as a launch needs a number.
    """
    begin, mine = nanoseconds(), NO_BOX
    add(record_at(boxes, 0, HEAD).busy, 0, 1)
    part = take_part(launch)
    while part < parts:
        mine = _recruit(boxes, mine, min(helpers, parts - part - 1), launch)
        do_part(launch, part)
        part = take_part(launch)
    _leave(boxes, mine, begin)
    return 0


@device
def _recruit(boxes, mine, wanted, launch):
    """Post a launch in free boxes until its caller's chain has `wanted` of them; return the chain's first box."""
    head, before, root, parent = record_at(boxes, 0, HEAD), mine, NO_BOX, NO_BOX
    helpers = record_at(boxes, mine, BOX).helpers if mine != NO_BOX else 0
    for first in range(FIRST, boxes.size, CELLS):
        if helpers >= wanted:
            break
        box = record_at(boxes, first, BOX)
        if load(box.owner, 0) == 0 and compare_exchange(box.owner, 0, 0, 1) == 0:
            if add(head.busy, 0, 1) > head.most:
                add(head.busy, 0, -1)
                exchange(box.owner, 0, 0)
                break
            helpers += 1
            box.launch, box.following, box.helpers = launch, mine, helpers
            box.woken_at = 0
            box.later, box.wakes = NO_BOX, 0
            if root == NO_BOX:
                root = parent = first
            else:
                record_at(boxes, mine, BOX).later = first
                parent = _adopt(record_at(boxes, parent, BOX), parent, first)
            mine = first
    at = mine
    while at != before:  # from the last one back: who wakes others finds that they are pending
        box = record_at(boxes, at, BOX)
        if compare_exchange(box.state, 0, FREE, POSTED) != FREE:
            exchange(box.state, 0, PENDING)
        at = box.following
    first = root if root != NO_BOX else _first_pending(boxes, mine)
    if first != NO_BOX:
        _wake(boxes, first)
    return mine


@device
def _first_pending(boxes, mine):
    """Return the box of a caller's chain whose helper has yet to be woken, as its waker is late, or NO_BOX."""
    while mine != NO_BOX:
        box = record_at(boxes, mine, BOX)
        if load(box.state, 0) == PENDING:
            break
        mine = box.following
    return mine


@device
def _adopt(box, parent, child):
    """Let the helper of a box wake that of another one; return which box gets the next."""
    box.woken[box.wakes] = child
    box.wakes += 1
    return parent if box.wakes < WOKEN else box.later


@device
def _leave(boxes, mine, begin):
    """Give back the boxes of the caller's chain when no part is left."""
    head, at = record_at(boxes, 0, HEAD), mine
    while at != NO_BOX:  # all, before it waits for any
        box = record_at(boxes, at, BOX)
        at = box.following
        _take_back(box)
    at, patience = mine, _WAIT + (nanoseconds() - begin) // _IMBALANCE
    while at != NO_BOX:  # first for helpers that run: they may be waking others of the chain
        box = record_at(boxes, at, BOX)
        at = box.following
        if load(box.state, 0) == RUNNING:
            _await(box, patience)
    while mine != NO_BOX:
        box = record_at(boxes, mine, BOX)
        mine = box.following
        while load(box.state, 0) == WAKING:
            relax()
        _take_back(box)
        if load(box.state, 0) == RUNNING:
            _await(box, patience)
        add(head.busy, 0, -1)
        exchange(box.owner, 0, 0)
    add(head.busy, 0, -1)


@device
def _take_back(box):
    """Take back what no helper has begun, unless the helper is just being woken."""
    if compare_exchange(box.state, 0, POSTED, FREE) == PENDING:
        compare_exchange(box.state, 0, PENDING, ASLEEP)


@device
def _await(box, patience):
    """Wait until a helper that is at work is done.

    The wait is awake for about `patience`, then asleep. A helper that has lost its core goes on on the caller's.
    """
    lost, box.limit[1] = False, _LOOK
    begin = seen = ran = nanoseconds()
    while True:
        look = box.limit[1]
        if seen + look <= begin + patience and not lost:
            if not spin(box.state, 0, RUNNING, look):
                break
        else:
            if compare_exchange(box.state, 0, RUNNING, AWAITED) == RUNNING:
                sleep(box.state, 0, AWAITED, address_of(box.limit, 0))
            if compare_exchange(box.state, 0, AWAITED, RUNNING) != AWAITED:
                break
        seen_before, ran_before = seen, ran
        seen, ran = nanoseconds(), running_time(box.thread)
        if look > _LOOK and not lost and _RAN * (ran - ran_before) < seen - seen_before:
            lost = True
            _steer(box, 0)
        if look < _LONGEST_LOOK:
            box.limit[1] = 2 * look
    if lost:  # also if the helper was done before it was confined
        box.steered = 0
        _setaffinity(box.thread, 8 * _SET, address_of(box.allowed, 0))
