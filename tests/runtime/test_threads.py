import contextlib
import os

import pytest

import dmlcpu
from dmlcpu.runtime import threads


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    monkeypatch.setattr(threads, "_budget", threads._budget)


def test_setting_and_getting():
    dmlcpu.set_num_threads(3)
    assert dmlcpu.get_num_threads() == 3
    assert threads.budget().threads == 3


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-2, ValueError), (1.5, TypeError), (True, TypeError)])
def test_refusals(n, error):
    before = dmlcpu.get_num_threads()
    with pytest.raises(error) as caught:
        dmlcpu.set_num_threads(n)
    assert str(caught.value) == f"set_num_threads: n is {n!r}; allowed: an integer of at least 1"
    assert dmlcpu.get_num_threads() == before


def test_the_environment_decides_first(monkeypatch):
    monkeypatch.setattr(threads, "_budget", None)
    monkeypatch.setenv("DMLCPU_NUM_THREADS", "7")
    assert dmlcpu.get_num_threads() == 7


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.0"])
def test_a_bad_environment_is_refused(monkeypatch, text):
    monkeypatch.setattr(threads, "_budget", None)
    monkeypatch.setenv("DMLCPU_NUM_THREADS", text)
    with pytest.raises(ValueError, match=f"DMLCPU_NUM_THREADS is '{text}'; allowed: an integer of at least 1"):
        dmlcpu.get_num_threads()


@pytest.fixture
def machine(monkeypatch):
    """A machine of our making, for the default number: what Numba says, the cores allowed, the quota."""
    monkeypatch.setattr(threads, "_budget", None)
    monkeypatch.delenv("DMLCPU_NUM_THREADS", raising=False)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)

    def make(numba_says, cores, quota):
        monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", numba_says)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        monkeypatch.setattr(threads, "cpu_quota", lambda: quota)

    return make


@pytest.mark.parametrize(
    ("numba_says", "cores", "quota", "n"),
    [
        (64, 64, None, 64),
        (64, 64, 2.0, 2),
        (64, 64, 1.5, 2),
        (64, 64, 0.5, 1),
        (64, 3, None, 3),
        (64, 3, 8.0, 3),
        (5, 64, 8.0, 5),
    ],
)
def test_without_it_the_least_of_cores_and_quota_does(machine, numba_says, cores, quota, n):
    machine(numba_says, cores, quota)
    assert dmlcpu.get_num_threads() == n


def test_numbas_variable_is_taken_at_its_word(machine, monkeypatch):
    machine(64, 3, 2.0)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "64")
    assert dmlcpu.get_num_threads() == 64


def test_the_quota_binds_nobody_who_asks_for_more(machine, monkeypatch):
    machine(64, 64, 2.0)
    monkeypatch.setenv("DMLCPU_NUM_THREADS", "7")
    assert dmlcpu.get_num_threads() == 7
    dmlcpu.set_num_threads(9)
    assert dmlcpu.get_num_threads() == 9


def test_systems_that_cannot_tell_the_cores(machine, monkeypatch):
    machine(4, 1, None)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert dmlcpu.get_num_threads() == 4


@pytest.mark.parametrize(
    ("n", "work", "most", "parts"),
    [(4, 10**9, 100, 4), (4, 10**9, 3, 3), (4, 59_999, 100, 1), (4, 60_000, 100, 2), (4, 0, 0, 1)],
)
def test_how_work_is_cut(n, work, most, parts):
    assert threads.Budget(n, 30_000).parts(work, most) == parts


def test_limits_are_put_back_after_an_error():
    before = threads._budget = threads.Budget(3)
    with contextlib.suppress(ZeroDivisionError), threads.limits(5, grain=1):
        assert threads.budget() == threads.Budget(5, 1)
        1 / 0  # noqa: B018
    assert threads._budget == before


class Layer:
    """Threads that are awake or asleep as we like."""

    def __init__(self, waking):
        self._waking = waking

    def is_asleep(self):
        return self._waking > 0

    def waking(self):
        return self._waking


@pytest.mark.parametrize(
    ("waking", "grain"), [(0, threads.GRAIN), (30_000, 1 << 17), (100_000, 1 << 19), (300_000, 1 << 20)]
)
def test_sleeping_threads_are_woken_for_larger_shares(monkeypatch, waking, grain):
    monkeypatch.setattr(threads, "_layer", Layer(waking))
    monkeypatch.setattr(threads, "_budget", threads.Budget(4))
    assert threads.budget() == threads.Budget(4, grain)
    assert dmlcpu.get_num_threads() == 4


def test_a_budget_of_one_asks_no_thread(monkeypatch):
    monkeypatch.setattr(threads, "_layer", None)
    monkeypatch.setattr(threads, "_budget", threads.Budget(1))
    assert threads.budget() == threads.Budget(1)
    assert threads._layer is None
