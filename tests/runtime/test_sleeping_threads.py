"""Budgets, and the plans of calls, when threads are awake and when they sleep."""

import concurrent.futures
import functools
import math
from types import SimpleNamespace

import pytest

import dmlcpu
from dmlcpu.runtime import threads


@pytest.fixture(autouse=True)
def _restored():
    with threads.use_budget(2):
        yield


class Layer:
    """Threads that are awake or asleep as a test sets them."""

    most = 63

    def __init__(self, waking, asleep=True):
        self.asleep, self._waking, self.launched = asleep, waking, 0

    def awake(self):
        return 0 if self.asleep else self.most

    def waking(self):
        return self._waking

    def launch(self, address, parts, args, helpers):
        self.launched += 1
        self._waking *= 2
        return True


@pytest.fixture
def pausing(monkeypatch):
    """A clock that stands still until it is told how much time has passed."""
    now = [10**12]
    monkeypatch.setattr(threads, "_last", 0)
    monkeypatch.setattr(threads, "_row", 0)
    monkeypatch.setattr(threads, "_row_needed", 1)
    monkeypatch.setattr(threads.time, "perf_counter_ns", lambda: now[0])

    def pause(nanoseconds):
        now[0] += nanoseconds

    return pause


def use(monkeypatch, layer, threads_allowed=4):
    monkeypatch.setattr(threads, "_layer", layer)
    dmlcpu.set_num_threads(threads_allowed)
    return layer


@pytest.mark.parametrize(("waking", "grain"), [(0, 2 << 16), (30_000, 3 << 16), (100_000, 5 << 16), (200_000, 8 << 16)])
def test_sleeping_threads_are_woken_for_larger_shares(monkeypatch, pausing, waking, grain):
    use(monkeypatch, Layer(waking))
    pausing(10**9)
    assert threads.budget() == threads.Budget(4, grain)
    assert dmlcpu.get_num_threads() == 4


def test_the_most_does_not_depend_on_threads_that_sleep_but_on_the_limits_of_a_thread(monkeypatch, pausing):
    use(monkeypatch, Layer(100_000))
    pausing(10**9)
    with threads.limit_threads(6), threads.limit_threads(3):
        assert threads.most_of_thread() == threads.Budget(3)
        assert threads.most() == threads.Budget(4)
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            assert other.submit(threads.most_of_thread).result() == threads.Budget(4)
    with threads.limit_threads(6):
        assert threads.most_of_thread() == threads.Budget(4)


def preparing():
    """Return a cached `prepare` of pieces of work, in nanoseconds, and the budgets that it has been called with."""
    budgets = []

    @functools.lru_cache
    def prepare(pieces, budget):
        budgets.append(budget)
        return SimpleNamespace(budget=budget, is_single=budget.parts(sum(pieces), len(pieces)) == 1)

    return prepare, budgets


def test_one_part_is_planned_once_and_no_thread_is_looked_at(monkeypatch):
    layer = use(monkeypatch, Layer(100_000))
    monkeypatch.setattr(layer, "awake", None)
    prepare, budgets = preparing()
    first = threads.plan_for_now(prepare, ((30_000, 40_000),))
    assert first is threads.plan_for_now(prepare, ((30_000, 40_000),), 1)
    assert budgets == [threads.Budget(4)]


def test_several_parts_are_planned_within_the_budget_of_the_call(monkeypatch, pausing):
    layer = use(monkeypatch, Layer(100_000))
    prepare, budgets = preparing()
    key = ((600_000,) * 9,)
    awake, asleep = threads.Budget(4), threads.Budget(4, 5 << 16)
    for is_asleep, expected in ((True, asleep), (False, awake), (True, asleep)):
        layer.asleep = is_asleep
        pausing(10**9)
        assert threads.plan_for_now(prepare, key).budget == expected
    layer.asleep = False
    assert threads.plan_for_now(prepare, key, 3).budget == threads.Budget(3)
    assert threads.plan_for_now(prepare, key, 5).budget == awake
    with threads.limit_threads(1):
        alone = threads.plan_for_now(prepare, key)
        assert (alone.budget, alone.is_single) == (threads.Budget(1), True)
    assert budgets == [awake, asleep, threads.Budget(3), threads.Budget(1)]  # each once


def test_without_arguments_the_key_is_the_budget(monkeypatch):
    use(monkeypatch, Layer(0, asleep=False))
    assert threads.plan_for_now(lambda budget: SimpleNamespace(budget=budget, is_single=False)).budget.threads == 4


def test_a_key_that_cannot_be_hashed_is_planned_within_the_budget_of_each_call(monkeypatch):
    use(monkeypatch, Layer(0, asleep=False))
    prepare, budgets = preparing()
    for pieces, is_single in (([600_000] * 9, False), ([10], True)):
        for most in (None, 3):
            assert threads.plan_for_now(prepare, (pieces,), most).is_single == is_single
    assert budgets == [threads.Budget(4), threads.Budget(3)] * 2
    assert prepare.cache_info().currsize == 0


@pytest.mark.parametrize("pieces", [("many",), ["many"]])
def test_what_prepare_refuses_is_raised(monkeypatch, pieces):
    use(monkeypatch, Layer(0))
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'int' and 'str'") as caught:
        threads.plan_for_now(preparing()[0], (pieces,))
    assert caught.value.__context__ is None  # or the user would see two errors


@pytest.mark.parametrize("pieces", [(600_000,) * 9, (10,), [600_000] * 9])
def test_without_compilation_every_call_is_planned_for_the_reference(monkeypatch, pieces):
    use(monkeypatch, Layer(0))
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    assert threads.plan_for_now(preparing()[0], (pieces,), 3).budget == threads.REFERENCE


def test_threads_that_are_awake_are_worth_less(monkeypatch, pausing):
    use(monkeypatch, Layer(100_000, asleep=False))
    pausing(10**9)
    assert threads.budget() == threads.Budget(4, threads.GRAIN)


def test_threads_beyond_those_that_are_awake_must_be_worth_waking(monkeypatch, pausing):
    layer = use(monkeypatch, Layer(100_000, asleep=False), 64)
    assert threads.budget() == threads.Budget(64)
    cuts = {}
    for layer.most in (62, 5, 4, 1):
        cuts[layer.most] = [threads.budget().parts(work, 1000) for work in (70_000, 100_000, 600_000, 10_000_000)]
    grain = 5 << 16
    long = min(64, max(10_000_000 // grain, math.isqrt(40 * (10_000_000 // grain))))
    assert cuts == {62: [1, 8, 24, long], 5: [1, 5, 5, long], 4: [1, 5, 5, long], 1: [1, 2, 2, long]}


def test_for_calls_in_a_row_threads_are_woken_as_if_they_were_awake(monkeypatch, pausing):
    use(monkeypatch, Layer(100_000))
    pausing(10**9)
    grains = []
    for gap in (0, 1_200_000, 1_300_000, 10):
        pausing(gap)
        grains.append(threads.budget().grain)
    assert grains == [5 << 16, threads.GRAIN, 5 << 16, threads.GRAIN]


def test_a_launch_that_wakes_updates_the_grain(monkeypatch, pausing):
    layer = use(monkeypatch, Layer(40_000))
    pausing(10**9)
    assert threads.budget().grain == 3 << 16
    assert threads.launch(0, 2, (), 1)
    pausing(10**9)
    assert threads.budget().grain == 4 << 16
    layer.asleep = False
    assert threads.launch(0, 2, (), 1)
    layer.asleep = True
    pausing(10**9)
    assert threads.budget().grain == 4 << 16  # no helper was woken
    assert layer.launched == 2


@pytest.mark.parametrize("started", [0, 1, 5])
@pytest.mark.parametrize("asleep", [False, True])
def test_budgets_have_no_helpers_that_a_launch_could_not_start(monkeypatch, pausing, started, asleep):
    layer = use(monkeypatch, Layer(100_000, asleep), 8)
    assert threads.most().threads == 8
    monkeypatch.setattr(layer, "launch", lambda *_: setattr(layer, "most", started) or True)
    assert threads.launch(0, 8, (), 7)
    layer.asleep = started == 0
    assert threads.most() == threads.budget() == threads.Budget(started + 1)
    assert dmlcpu.get_num_threads() == 8


def test_threads_that_sleep_again_before_the_next_call_are_woken_for_longer_rows(monkeypatch, pausing):
    layer = use(monkeypatch, Layer(100_000))
    monkeypatch.setattr(layer, "waking", lambda: 100_000)

    def calls_until_woken():
        """Count the calls, each of which is launched if the threads are to be woken for it."""
        for calls in range(1, 100):
            pausing(10**6)
            if threads.budget().grain == threads.GRAIN:
                threads.launch(0, 2, (), 1)
                return calls
        raise AssertionError("they are never woken")

    pausing(10**9)
    threads.budget()
    assert [calls_until_woken() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 64, 64]
    layer.asleep = False
    for _ in range(5):
        threads.launch(0, 2, (), 1)  # helped by threads that are awake
    layer.asleep = True
    assert calls_until_woken() == 2
    pausing(30_000_000)  # as long as a scheduler takes the core away, not a pause
    threads.budget()
    assert calls_until_woken() == 4
    pausing(10**9)
    threads.budget()
    assert calls_until_woken() == 1


def test_use_budget_holds_awake_and_asleep(monkeypatch, pausing):
    use(monkeypatch, Layer(100_000))
    pausing(10**9)
    with threads.use_budget(3, grain=7):
        assert threads.launch(0, 2, (), 1)
        assert threads.budget() == threads.Budget(3, 7)
    assert dmlcpu.get_num_threads() == 4


def test_a_budget_of_one_asks_no_thread(monkeypatch):
    use(monkeypatch, None, threads_allowed=1)
    assert threads.budget() == threads.Budget(1)
    assert threads._layer is None


def test_a_number_set_during_a_launch_stays(monkeypatch, pausing):
    layer = use(monkeypatch, Layer(50_000))
    monkeypatch.setattr(layer, "launch", lambda *args: dmlcpu.set_num_threads(2))
    threads.launch(0, 2, (), 1)
    assert dmlcpu.get_num_threads() == 2
