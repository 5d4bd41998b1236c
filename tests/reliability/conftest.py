"""How long the harnesses of this folder go on, and how many calls they made.

Each test makes a fixed number of calls, in a few seconds. With DMLCPU_RELIABILITY_SECONDS=3600, each file of tests goes
on for an hour instead, with other seeds each time; its harnesses share that time.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest

SECONDS = "DMLCPU_RELIABILITY_SECONDS"
_COUNTED = "dmlcpu: counted"


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float | None:
    """How long the harness goes on; None: for its usual number of calls."""
    whole = os.environ.get(SECONDS)
    if not whole:
        return None
    sharing = [item for item in request.session.items if item.path == request.path and "seconds" in item.fixturenames]
    return float(whole) / len(sharing)


@pytest.fixture
def seeds(seconds: float | None) -> Callable[[int], Iterator[int]]:
    """Return the seeds of a harness: the first ones, as many as are asked for; or others until its time is over."""

    def drawn(usual: int) -> Iterator[int]:
        if seconds is None:
            yield from range(usual)
            return
        end = time.monotonic() + seconds
        for seed in itertools.count(time.time_ns()):
            if time.monotonic() > end:
                return
            yield seed

    return drawn


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Tell what a harness counted, at the end of the run."""
    return lambda text: record_property(_COUNTED, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for outcome in ("passed", "failed") for each in terminalreporter.stats.get(outcome, [])]
    lines = [f"{each.nodeid}: {text}" for each in reports for name, text in each.user_properties if name == _COUNTED]
    if lines:
        terminalreporter.section("what the harnesses did")
        terminalreporter.write("".join(f"{line}\n" for line in lines))
