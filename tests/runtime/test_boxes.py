"""Helpers are woken by one another, on other processors, and go on on their caller's if they lose their own."""

import os
import threading

import numpy as np
import pytest
from numba import njit
from numba.core import types
from pools import SECOND, cells, count, linger, meet, run, wait_for_sleep

from dmlcpu.runtime import boxes
from dmlcpu.runtime.atomics import exchange, load, nanoseconds, wake
from dmlcpu.runtime.boxes import AWAITED
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.pool import AVAILABLE, Pool
from dmlcpu.runtime.records import record_at

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="this system has only Numba's threads")


_usleep = types.ExternalFunction("usleep", types.int32(types.int32))


@kernel
def doze(part, parts, met, busy, boxes, steered, slips):
    """Let the first part end when the second has begun, which computes, then sleeps until its helper is confined.

    If it slips away, it ends as if it had ended just before that. It sleeps for 20 s at most.
    """
    if part == 0:
        while load(met, 1) == 0:
            pass
    else:
        exchange(met, 1, 1)
        end = nanoseconds() + busy
        while nanoseconds() < end:
            pass
        while load(boxes, steered) == 0 and nanoseconds() < end + 20 * SECOND:
            _usleep(1_000)
        if slips:
            _usleep(1_000)
            exchange(boxes, steered, 0)
    met[part] += 1


def lend(pool, busy=0, slips=False):
    """Call a kernel whose second part leaves its processor; return the cells that it has counted in."""
    pool._boxes["confined"] = 0
    met = cells(2)
    words = pool._boxes.view(np.int64)
    run(pool, doze, 2, met, busy, words, boxes.BOX.fields["steered"][1] // words.itemsize, slips)
    return met


def test_waking_is_measured_when_a_sleeping_helper_is_woken():
    pool = Pool(1)
    assert pool.awake() == 0
    run(pool, count, 2, cells(2))
    first = pool.waking()
    wait_for_sleep(pool)
    run(pool, meet, 2, cells(2), 20 * SECOND)
    assert pool.waking() != first
    assert 0 < pool.waking() <= boxes.LONGEST_WAKING


def depth_of(pool, first):
    """Return how many wake one another from the helper of a box to the last."""
    return 1 + max((depth_of(pool, each) for each in woken_by(pool, first)), default=0)


def woken_by(pool, first):
    """Return the boxes whose helpers the helper of a box wakes."""
    box = pool._boxes[(first - boxes.FIRST) // boxes.CELLS]
    return box["woken"][: box["wakes"]].tolist()


def boxes_below(pool, first):
    """Return the numbers of the boxes whose helpers one helper wakes, directly or not, and its own."""
    number = (first - boxes.FIRST) // boxes.CELLS
    return [number, *(each for child in woken_by(pool, first) for each in boxes_below(pool, child))]


WORDS = boxes.CELLS
WOKEN_AT = boxes.BOX.fields["woken_at"][1] // 8


@kernel
def look(part, parts, words, woken):
    """Note at each part how many helpers have been woken."""
    for i in range(WOKEN_AT, words.size, WORDS):
        woken[part] += words[i] != 0


@pytest.mark.parametrize("awake", [0, 1, 3])
def test_the_caller_wakes_one_helper_before_each_part_at_most_and_each_wakes_eight(awake):
    pool = Pool(127)
    pool._count(127)  # helpers that never answer
    pool._boxes["state"][:awake] = boxes.FREE
    woken = cells(128)
    run(pool, look, 128, pool._boxes.view(np.int64), woken)
    first = 0 if awake else 1
    # The first is awake, or is woken; as it does not answer, the caller later wakes others itself.
    assert woken.tolist() == [min(first + part, 127 - awake) for part in range(128)]
    assert depth_of(pool, boxes.FIRST) == 4  # 1, 8, 64 and the others
    assert sorted(boxes_below(pool, boxes.FIRST)) == list(range(127))
    assert pool._head["busy"].tolist() == [[0]]
    assert not pool._boxes["owner"].any()


@pytest.mark.parametrize("most", [2, 6])
def test_helpers_wake_one_another(most):
    pool = Pool(most)
    for _ in range(20):
        met = cells(most + 1)
        run(pool, meet, most + 1, met, 20 * SECOND)
        assert met.tolist() == [1] * (most + 1)
        wait_for_sleep(pool)


def test_launch_takes_no_more_helpers_than_asked_for():
    pool, done = Pool(3), cells(9)
    assert pool.launch(count.address((done,)), 9, (done,), 2)
    assert done.tolist() == [1] * 9
    assert pool._helpers == 2


def test_no_more_threads_are_at_work_than_processors():
    pool = Pool(3)
    run(pool, count, 4, cells(4))
    pool._head["busy"] = 3  # three other callers
    wait_for_sleep(pool)
    pool._boxes["woken_at"] = 0
    run(pool, linger, 4, cells(4), 1_000_000)
    assert not pool._boxes["woken_at"].any()
    assert (pool._boxes["state"] == boxes.ASLEEP).all()
    assert pool._head["busy"].tolist() == [[3]]


def test_helpers_are_confined_once_one_has_risen_on_its_wakers_processor(monkeypatch):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    assert Pool(1)._head["confines"].item() == 1  # where it was seen
    pool = Pool(2)
    assert pool._head["confines"].item() == 0
    run(pool, count, 2, cells(2))
    pool._boxes["confined"] = 0
    for _ in range(20):
        wait_for_sleep(pool)
        box = pool._boxes[0]
        allowed = os.sched_getaffinity(box["thread"].item())
        with_one = {min(allowed)}
        os.sched_setaffinity(0, with_one)  # the helper can be nowhere else either
        os.sched_setaffinity(box["thread"].item(), with_one)
        try:
            run(pool, meet, 2, cells(2), 20 * SECOND)
        finally:
            for thread in (0, box["thread"].item()):
                os.sched_setaffinity(thread, allowed)
        if pool._head["confines"].item():
            break
    assert pool._head["confines"].item() == 1


def test_a_helper_is_woken_on_another_processor_and_then_allowed_on_all():
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor")
    pool = Pool(1)
    run(pool, count, 2, cells(2))
    wait_for_sleep(pool)
    run(pool, meet, 2, cells(2), 20 * SECOND)
    elsewhere = processors(pool, "confined")
    assert processors(pool, "allowed") == allowed
    assert elsewhere < allowed
    assert len(elsewhere) == len(allowed) - 1
    assert os.sched_getaffinity(pool._boxes["thread"].item()) == allowed


def processors(pool, name):
    """Return a set of processors of the first box."""
    bits = pool._boxes[name][0].view(np.uint8)
    return set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())


@pytest.mark.parametrize("busy", [0, 20_000_000])  # ns: the caller is still awake when the helper sleeps, or not
def test_a_helper_that_has_lost_its_processor_goes_on_on_the_callers(busy):
    pool, allowed = Pool(1), os.sched_getaffinity(0)
    run(pool, count, 2, cells(2))
    for _ in range(2):
        assert lend(pool, busy).tolist() == [1, 2]
        assert pool._boxes["steered"].item() == 0
        assert len(processors(pool, "confined")) == 1
        assert processors(pool, "confined") <= processors(pool, "allowed") == allowed
        assert os.sched_getaffinity(pool._boxes["thread"].item()) == allowed


def test_a_helper_that_was_done_before_it_was_confined_is_allowed_on_all_processors_again():
    pool, allowed = Pool(1), os.sched_getaffinity(0)
    run(pool, count, 2, cells(2))
    lend(pool, slips=True)
    assert len(processors(pool, "confined")) == 1
    assert os.sched_getaffinity(pool._boxes["thread"].item()) == allowed


def test_a_helper_is_free_again_after_a_caller_that_is_pinned_lent_its_processor():
    pool, allowed = Pool(1), os.sched_getaffinity(0)
    run(pool, count, 2, cells(2))
    pinned(lambda: lend(pool))
    assert processors(pool, "confined") == {min(allowed)}
    assert os.sched_getaffinity(pool._boxes["thread"].item()) == allowed


def pinned(call):
    """Make a call in a thread that may use one processor."""

    def work():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        call()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def woken_in_vain():
    """Return a pool whose helper was confined while it was woken, and sleeps again: nothing was left for it."""
    pool, allowed = Pool(1), os.sched_getaffinity(0)
    run(pool, meet, 2, cells(2), 20 * SECOND)
    wait_for_sleep(pool)
    pool._boxes["allowed"] = 0
    pool._boxes["allowed"][0, 0] = sum(1 << each for each in allowed)
    pool._boxes["steered"] = 1
    os.sched_setaffinity(pool._boxes["thread"].item(), {max(allowed)})
    return pool


def test_a_waker_that_is_pinned_does_not_keep_the_helper_on_its_processor():
    pool = woken_in_vain()
    pinned(lambda: run(pool, meet, 2, cells(2), 20 * SECOND))
    assert os.sched_getaffinity(pool._boxes["thread"].item()) == os.sched_getaffinity(0)


@njit
def steer(words):
    boxes._steer(record_at(words, 0, boxes.BOX), 0)


def test_a_helper_that_loses_its_processor_while_it_is_confined_is_free_again_afterwards():
    pool = woken_in_vain()
    steer(pool._boxes.view(np.int64))
    assert processors(pool, "allowed") == os.sched_getaffinity(0)


@kernel
def outlast(part, parts, met, busy, boxes, state):
    """Let the first part take its time, and the second end once the caller sleeps, which it notes; or after 5 s."""
    if part == 0:
        while load(met, 1) == 0:
            pass
        end = nanoseconds() + busy
        while nanoseconds() < end:
            pass
    else:
        exchange(met, 1, 1)
        end = nanoseconds() + 5 * SECOND
        while met[1] == 1 and nanoseconds() < end:
            met[1] += load(boxes, state) == AWAITED


@pytest.mark.parametrize("busy", [0, 30_000_000])  # ns: after a long call, the caller waits awake for longer
def test_a_caller_sleeps_when_a_helper_takes_long(busy):
    pool, met = Pool(1), cells(2)
    run(pool, meet, 2, cells(2), 20 * SECOND)
    pool._boxes["thread"] = 1 << 27  # of no thread: it is taken to run, and no processor is lent
    words = pool._boxes.view(np.int64)
    run(pool, outlast, 2, met, busy, words, boxes.BOX.fields["state"][1] // words.itemsize)
    assert met.tolist() == [0, 2]


def test_a_caller_is_not_confined_itself_by_a_box_without_a_helper():
    pool, allowed = Pool(1), os.sched_getaffinity(0)
    pool._count(1)
    try:
        run(pool, count, 2, cells(2))
        assert os.sched_getaffinity(0) == allowed
    finally:
        os.sched_setaffinity(0, allowed)


@njit
def leave(head, stayed):
    """Let one helper after the other be done; note which stay awake."""
    for helper in range(stayed.size):
        stayed[helper] = boxes._stays_awake(record_at(head, 0, boxes.HEAD))


@pytest.mark.parametrize("spare", [0, 1, 3, 5, 9])
def test_as_many_helpers_stay_awake_as_there_are_spare_processors(spare):
    pool, stayed = Pool(5), np.zeros(5, np.bool_)
    pool._head["spare"], pool._head["awake"] = spare, 5
    leave(pool._head.view(np.int64), stayed)
    assert pool.awake() == stayed.sum() == min(spare, 5)


@njit
def rouse(words, state):
    """Wake a helper whose launch has been taken back."""
    exchange(words, state, boxes.FREE)
    wake(words, state)


def test_a_helper_woken_in_vain_does_not_stay_awake_without_a_spare_processor():
    pool = Pool(1, awake=20 * SECOND)
    pool._head["spare"] = 0
    run(pool, meet, 2, cells(2), 20 * SECOND)
    wait_for_sleep(pool)
    words = pool._boxes.view(np.int64)
    rouse(words, boxes.BOX.fields["state"][1] // words.itemsize)
    wait_for_sleep(pool)
