"""dmlcpu's own threads: every part is done once, whether helpers are late, busy, asleep or missing."""

import logging
import os
import threading
import time

import numpy as np
import pytest
from numba.core import types

from dmlcpu.runtime import pool as pools
from dmlcpu.runtime.atomics import exchange, load, nanoseconds
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.pool import Pool

pytestmark = pytest.mark.skipif(not pools.AVAILABLE, reason="this system has only Numba's threads")

SECOND = 1_000_000_000


@kernel
def count(part, parts, done):
    done[part] += 1


@kernel
def meet(part, parts, met, patience):
    """Wait until all parts are under way at once; met[part] is 1 then, and 2 if that took too long."""
    exchange(met, part, 1)
    end = nanoseconds() + patience
    for other in range(parts):
        while load(met, other) == 0:
            if nanoseconds() > end:
                met[part] = 2
                return


@kernel
def linger(part, parts, done, nanoseconds_each):
    """Take longer for later parts."""
    end = nanoseconds() + part * nanoseconds_each
    while nanoseconds() < end:
        pass
    done[part] = 1


@kernel
def meet_after_first(part, parts, met, patience):
    """Let the first part end when met[0] is set; the others meet."""
    if part > 0:
        exchange(met, part, 1)
    end = nanoseconds() + patience
    for other in range(parts if part else 1):
        while load(met, other) == 0:
            if nanoseconds() > end:
                met[part] = 2
                return


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
    boxes = pool._boxes.view(np.int64)
    run(pool, doze, 2, met, busy, boxes, pools.BOX.fields["steered"][1] // boxes.itemsize, slips)
    return met


def run(pool, kernel, parts, *args):
    assert pool.launch(kernel.address(args), parts, args, parts - 1)


def cells(n):
    return np.zeros(n, np.int64)


def wait_for_sleep(pool):
    """Wait until all helpers sleep."""
    for _ in range(2000):
        if not pool.awake() and (pool._boxes["state"] == pools._ASLEEP).all():
            return
        time.sleep(0.001)
    raise AssertionError("the helper does not fall asleep")


@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize("parts", [1, 2, 3, 50])
def test_launch_does_every_part_once(most, parts):
    pool = Pool(most)
    for calls in range(1, 20):
        done = cells(parts)
        run(pool, count, parts, done)
        assert done.tolist() == [1] * parts, f"call {calls}"


@pytest.mark.parametrize("asleep", [False, True])
def test_helpers_work_at_the_same_time_as_the_caller(asleep):
    pool = Pool(2)
    for _ in range(5):
        if asleep:
            run(pool, count, 2, cells(2))
            wait_for_sleep(pool)
        met = cells(3)
        run(pool, meet, 3, met, 20 * SECOND)
        assert met.tolist() == [1, 1, 1]


def test_launch_does_not_wait_for_a_helper_that_has_not_begun():
    pool, done = Pool(1), cells(2)
    pool._count(1)
    pool._boxes["state"] = pools._FREE  # as if a helper were awake: it has not been started
    run(pool, count, 2, done)
    assert done.tolist() == [1, 1]
    assert pool._boxes[["state", "owner"]].item() == ([pools._FREE], [0])


@pytest.mark.parametrize("each", [0, 50_000, 20_000_000])  # ns: longer than a caller waits awake
def test_launch_waits_for_a_helper_that_is_at_work(each):
    pool = Pool(3)
    for _ in range(5):
        done = cells(4)
        run(pool, linger, 4, done, each)
        assert done.tolist() == [1] * 4


def test_callers_in_several_threads_share_the_helpers():
    pool, wrong = Pool(2), []
    run(pool, count, 5, cells(5))  # the first launch prepares; others meanwhile return False

    def call():
        for _ in range(200):
            done = cells(5)
            run(pool, count, 5, done)
            if done.tolist() != [1] * 5:
                wrong.append(done)

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not pool._boxes["owner"].any()


def test_launch_uses_a_helper_that_becomes_free_meanwhile():
    pool = Pool(1)
    run(pool, count, 2, cells(2))
    pool._boxes["owner"] = 1  # another caller has the helper
    met = cells(3)

    def give_back():
        pool._boxes["owner"] = 0
        met[0] = 1

    thread = threading.Timer(0.05, give_back)
    thread.start()
    run(pool, meet_after_first, 3, met, 20 * SECOND)
    thread.join()
    assert met.tolist() == [1, 1, 1]


def test_launch_starts_helpers_when_it_first_needs_them():
    before = threading.active_count()
    pool = Pool(3)
    run(pool, count, 1, cells(1))
    assert threading.active_count() == before
    run(pool, count, 3, cells(3))
    run(pool, count, 2, cells(2))
    assert threading.active_count() == before + 2
    run(pool, count, 9, cells(9))
    assert threading.active_count() == before + 3


def test_launch_returns_false_while_another_prepares(monkeypatch):
    pool, done, able = Pool(1), cells(2), []
    start = threading.Thread.start

    def start_later(thread):
        able.append(pool.launch(count.address((done,)), 2, (done,), 1))  # as a finalizer may call
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    run(pool, count, 2, done)
    assert able == [False]
    assert done.tolist() == [1, 1]
    assert pool._helpers == 1


def test_an_interrupt_while_a_helper_starts_gives_its_box_no_second_helper(monkeypatch):
    pool, start, started = Pool(1), threading.Thread.start, []

    def interrupted(thread):
        start(thread)
        started.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(pool, count, 2, cells(2))
    for _ in range(3):
        done = cells(2)
        run(pool, count, 2, done)
        assert done.tolist() == [1, 1]
    assert len(started) == 1


def test_waking_is_measured_when_a_sleeping_helper_is_woken():
    pool = Pool(1)
    assert pool.awake() == 0
    run(pool, count, 2, cells(2))
    first = pool.waking()
    wait_for_sleep(pool)
    run(pool, meet, 2, cells(2), 20 * SECOND)
    assert pool.waking() != first
    assert 0 < pool.waking() <= pools._LONGEST_WAKING


def depth_of(pool, first):
    """Return how many wake one another from the helper of a box to the last."""
    if first == pools._NO_BOX:
        return 0
    box = pool._boxes[(first - pools._FIRST) // pools._CELLS]
    return 1 + max(depth_of(pool, box["left"]), depth_of(pool, box["right"]))


def boxes_below(pool, first):
    """Return the numbers of the boxes whose helpers one helper wakes, directly or not, and its own."""
    if first == pools._NO_BOX:
        return []
    number = (first - pools._FIRST) // pools._CELLS
    box = pool._boxes[number]
    return [number, *boxes_below(pool, box["left"]), *boxes_below(pool, box["right"])]


@pytest.mark.parametrize("awake", [0, 1, 3])
def test_the_caller_wakes_one_helper_at_most_and_each_wakes_two(awake):
    pool = Pool(127)
    pool._count(127)  # helpers that never answer
    pool._boxes["state"][:awake] = pools._FREE
    for _ in range(2):
        done = cells(128)
        run(pool, count, 128, done)
        assert done.tolist() == [1] * 128
        assert depth_of(pool, pools._FIRST) == 7
        assert sorted(boxes_below(pool, pools._FIRST)) == list(range(127))
        assert np.flatnonzero(pool._boxes["woken_at"]).tolist() == ([] if awake else [0])
        states = pool._boxes["state"][:, 0].tolist()
        # The first one has been woken: it will find that nothing is left, and stay awake.
        assert states == [pools._FREE] * max(awake, 1) + [pools._ASLEEP] * (127 - max(awake, 1))
        pool._boxes["woken_at"] = 0
        pool._boxes["state"][awake:] = pools._ASLEEP
    assert pool._head["busy"].tolist() == [[0]]


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
    assert (pool._boxes["state"] == pools._ASLEEP).all()
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

    def pinned():
        os.sched_setaffinity(0, {min(allowed)})
        lend(pool)

    thread = threading.Thread(target=pinned)
    thread.start()
    thread.join()
    assert processors(pool, "confined") == {min(allowed)}
    assert os.sched_getaffinity(pool._boxes["thread"].item()) == allowed


def test_a_caller_is_not_confined_itself_by_a_box_without_a_helper():
    pool, allowed = Pool(1), os.sched_getaffinity(0)
    pool._count(1)
    try:
        run(pool, count, 2, cells(2))
        assert os.sched_getaffinity(0) == allowed
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_closed_pool_launches_without_helpers():
    pool = Pool(1)
    run(pool, count, 2, cells(2))
    pool.close()
    assert pool._boxes["state"].item() == pools._ASLEEP
    done = cells(2)
    run(pool, count, 2, done)
    assert done.tolist() == [1, 1]
    assert pool._boxes["state"].item() == pools._ASLEEP
    wait_for_sleep(pool)


def test_helpers_sleep_at_once_if_awake_is_0():
    pool = Pool(1, awake=0)
    run(pool, meet, 2, cells(2), 20 * SECOND)
    wait_for_sleep(pool)


def fail_to_start(_thread):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (fail_to_start, "can't start new thread"),
        # gevent runs a thread's target in the thread that starts it; a helper would never return there.
        (lambda thread: thread.run(), "threads are greenlets here"),
    ],
)
def test_launch_does_all_parts_where_no_thread_can_be_started(monkeypatch, caplog, start, reason):
    monkeypatch.setattr(threading.Thread, "start", start)
    caplog.set_level(logging.DEBUG, "dmlcpu")
    pool = Pool(3)
    for _ in range(2):
        done = cells(4)
        run(pool, count, 4, done)
        assert done.tolist() == [1] * 4
    assert [record.message for record in caplog.records] == [f"no thread could be started ({reason}); there are 0"]


def test_describe_says_how_many_helpers_there_are_and_how_they_wait():
    pool = Pool(3)
    assert pool.describe() == {
        "layer": "dmlcpu's own (0 of at most 3 helpers started)",
        "layer_from": "dmlcpu's default on Linux",
        "waiting": "awake for 0.6 ms after a call, then asleep",
        "advice": None,
    }
    assert (
        Pool(1, awake=0).describe()["waiting"] == "awake for 0 ms after a call, then asleep (OMP_WAIT_POLICY=passive)"
    )
