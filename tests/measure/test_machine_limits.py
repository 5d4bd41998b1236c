import math
import time

import pytest

from dmlcpu.measure import limits
from dmlcpu.measure.limits import Limits, fastest, measure_limits


def test_limits_of_each_number_of_threads() -> None:
    one, three = measure_limits(1, 3, seconds=0, nbytes=1 << 20)
    assert (one.threads, three.threads) == (1, 3)
    for found in (one, three):
        for rate in (found.read, found.copy, found.multiply):
            assert rate is not None
            assert 1e6 < rate < 1e16
            assert math.isfinite(rate)


def test_a_few_bytes_are_enough() -> None:
    (found,) = measure_limits(1, seconds=0, nbytes=1)
    assert found.read > 0


def test_products_are_not_measured_where_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "can_measure", lambda: False)
    (found,) = measure_limits(1, seconds=0, nbytes=1 << 20)
    assert found.multiply is None
    assert found.read > 0


@pytest.mark.parametrize(("memory", "nbytes"), [(1 << 40, 128 << 20), (1 << 30, 64 << 20)])
def test_small_machines_measure_with_less(monkeypatch: pytest.MonkeyPatch, memory: int, nbytes: int) -> None:
    monkeypatch.setattr(limits, "memory_limit", lambda: memory)
    assert limits.memory_to_use() == nbytes


def test_the_better_of_two_measurements() -> None:
    one, other = Limits(2, 5.0, 6.0, 9.0), Limits(2, 7.0, 4.0, 8.0)
    assert one.best(other) == Limits(2, 7.0, 6.0, 9.0)
    assert one.best(other._replace(multiply=None)).multiply is None


def test_a_call_that_compiles_does_not_count() -> None:
    """It takes all the time that there is."""
    calls = []

    def call() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            time.sleep(0.2)

    assert fastest(call, 0.1) < 0.2
    assert len(calls) >= limits.LEAST_CALLS
