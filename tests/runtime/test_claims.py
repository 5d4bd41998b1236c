"""Claims: one caller at a time, and none that stays after an interrupt."""

import threading

from dmlcpu.runtime.claims import Claims


def test_one_claim_at_a_time_is_granted():
    claims, first, second = Claims(), threading.Lock(), threading.Lock()
    with first:
        assert claims.grant(first)
        with second:
            assert not claims.grant(second)
    third = threading.Lock()
    with third:
        assert claims.grant(third)


def test_a_claim_that_was_refused_does_not_refuse_others():
    claims, first, second, third = Claims(), threading.Lock(), threading.Lock(), threading.Lock()
    with second:
        with first:
            assert claims.grant(first)
            assert not claims.grant(second)
        with third:
            assert not claims.grant(third)  # the second caller has not gone yet
    with third:
        assert claims.grant(third)


def test_a_claim_ends_with_its_lock():
    """An interrupt at any place, even within the ``with``, leaves a lock that nothing uses."""
    claims = Claims()
    lost = threading.Lock()
    lost.acquire()
    assert claims.grant(lost)
    del lost
    mine = threading.Lock()
    with mine:
        assert claims.grant(mine)
    assert len(claims._locks) == 1


def test_threads_get_it_one_after_the_other():
    claims, inside, granted, most = Claims(), [], [], []

    def call():
        for _ in range(300):
            mine = threading.Lock()
            with mine:
                if claims.grant(mine):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    granted.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert granted
    assert set(most) == {1}
