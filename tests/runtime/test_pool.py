"""dmlcpu's own threads: every part is done once, whether helpers are late, busy, asleep or missing."""

import logging
import threading
import time

import pytest
from pools import SECOND, cells, count, linger, meet, meet_after_first, run, wait_for_sleep

from dmlcpu.runtime import boxes
from dmlcpu.runtime.pool import AVAILABLE, Pool

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="this system has only Numba's threads")


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


@pytest.mark.parametrize("spare", [0, 2])
def test_no_more_helpers_stay_awake_than_there_are_processors_for(monkeypatch, spare):
    monkeypatch.setattr("dmlcpu.runtime.pool.cpu_quota", lambda: spare + 0.5)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    pool, met = Pool(5, awake=20 * SECOND), cells(6)
    run(pool, meet, 6, met, 20 * SECOND)
    end = time.monotonic() + 20
    while pool.awake() > spare and time.monotonic() < end:
        time.sleep(1e-3)
    assert pool.awake() <= spare
    pool.close()


def test_launch_does_not_wait_for_a_helper_that_has_not_begun():
    pool, done = Pool(1), cells(2)
    pool._count(1)
    pool._boxes["state"] = boxes.FREE  # as if a helper were awake: it has not been started
    run(pool, count, 2, done)
    assert done.tolist() == [1, 1]
    assert pool._boxes[["state", "owner"]].item() == ([boxes.FREE], [0])


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


def test_a_closed_pool_launches_without_helpers():
    pool = Pool(1)
    run(pool, count, 2, cells(2))
    pool.close()
    assert pool._boxes["state"].item() == boxes.ASLEEP
    done = cells(2)
    run(pool, count, 2, done)
    assert done.tolist() == [1, 1]
    assert pool._boxes["state"].item() == boxes.ASLEEP
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
