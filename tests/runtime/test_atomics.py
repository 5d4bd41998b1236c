"""Operations on words that several threads use, as one thread sees them; test_pool.py has several."""

import threading
import time

import numpy as np
import pytest
from jitted import jitted
from numba.core import types

from dmlcpu.runtime import atomics
from dmlcpu.runtime.intrinsics import emitted


def test_each_operation_returns_what_the_cell_was():
    cells = np.array([3, 8])
    assert jitted(atomics.load)(cells, 1) == 8
    assert jitted(atomics.fetch_add)(cells, 1) == 8
    assert jitted(atomics.exchange)(cells, 1, 20) == 9
    compare_exchange = jitted(atomics.compare_exchange)
    assert compare_exchange(cells, 1, 9, 30) == 20
    assert cells.tolist() == [3, 20]
    assert compare_exchange(cells, 1, 20, 30) == 20
    assert cells.tolist() == [3, 30]


@pytest.mark.skipif(not atomics.FUTEX, reason="this system has only Numba's threads")
def test_running_time_of_a_thread_stands_still_while_the_thread_sleeps():
    running_time, mine = jitted(atomics.running_time), threading.get_native_id()
    before = running_time(mine)
    while running_time(mine) - before < 10**6:
        pass
    before = running_time(mine)
    time.sleep(0.2)
    assert 0 < running_time(mine) - before < 10**8


def test_a_thread_whose_running_time_is_unknown_is_taken_to_run():
    running_time, before = jitted(atomics.running_time), time.monotonic_ns()
    assert before <= running_time(1 << 26) <= time.monotonic_ns()  # Linux has no numbers from 1 << 22 on


@emitted
def known(builder, ran, now) -> types.int64:
    """Return what `running_time` returns if the thread's clock reads `ran`."""
    return atomics._emit_known(builder, ran, now)


@pytest.mark.parametrize(
    ("ran", "expected"), [(-1, 77), (0, 77), (1, 1), (999_999, 999_999), (1_000_001, 1_000_001), (40_000_000, 77)]
)
def test_a_thread_whose_clock_only_counts_ticks_is_taken_to_run(ran, expected):
    assert jitted(known)(ran, 77) == expected


@pytest.mark.skipif(not atomics.FUTEX, reason="this system has only Numba's threads")
def test_sleep_ends_after_its_limit_and_at_once_if_the_cell_has_changed():
    cells, limit, sleep = np.array([3, 8]), np.array([0, 1_000_000]), jitted(atomics.sleep)
    sleep(cells, 1, 8, limit.ctypes.data)
    sleep(cells, 1, 7, 0)
    assert cells.tolist() == [3, 8]
