from typing import Any

import pytest

from dmlcpu.errors import DmlError
from dmlcpu.jobs.limits import Limits, Settings, size
from dmlcpu.runtime import threads


@pytest.mark.parametrize(("workers", "each"), [(None, 6), (1, 6), (2, 3), (4, 1), (6, 1), (16, 1)])
def test_threads_are_shared_out(workers: int | None, each: int) -> None:
    with threads.use_budget(6):
        limits = Settings(workers=workers, max_memory="1G").limits
    assert (limits.workers, limits.threads) == (workers or 1, each)


def test_threads_that_are_asked_for() -> None:
    assert Settings(workers=3, threads=7).limits.threads == 7


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (1 << 20, 1 << 20),
        ("1048576", 1 << 20),
        ("1M", 1 << 20),
        ("1.5g", 3 << 29),
        ("2 GiB", 2 << 30),
        ("512MB", 512 << 20),
        (" 3T ", 3 << 40),
        ("4096k", 4 << 20),
        ("2000000b", 2_000_000),
    ],
)
def test_sizes(text: int | str, nbytes: int) -> None:
    assert Settings(max_memory=text).limits.memory == nbytes
    assert Settings(workers=4, max_memory=text).limits.memory == nbytes // 4


@pytest.mark.parametrize("text", ["", "M", "1X", "-1M", "1e9", "1,000,000", "1023k", 0, -5, "1M2", "nan", "½G", 1.5])
def test_no_sizes(text: int | str) -> None:
    with pytest.raises(DmlError) as error:
        Settings(max_memory=text)
    assert str(error.value) == f"run_jobs: max_memory is {text!r}; allowed: at least 1M, as in 512M or 4G"


def test_half_of_the_memory_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlcpu.jobs.limits.memory_limit", lambda: 1000)
    assert Settings(workers=2).limits.memory == 250


def test_a_cluster_gives_each_job_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlcpu.jobs.limits.memory_limit", lambda: 1000)
    with threads.use_budget(6):
        assert Settings(workers=2).limits == Limits(2, 3, 250)
        assert Settings(workers=2, scheduler="tcp://127.0.0.1:8786").limits == Limits(2, 1, 1 << 30)
        assert Settings(workers=2, threads=3, max_memory="2G", scheduler="tcp://127.0.0.1:8786").limits == Limits(
            2, 3, 2 << 30
        )


@pytest.mark.parametrize("name", ["workers", "threads"])
@pytest.mark.parametrize("value", [True, "2", 2.0])
def test_counts_of_another_kind(name: str, value: Any) -> None:
    given = {"workers": None, "threads": None, name: value}
    with pytest.raises(TypeError, match=f"run_jobs: {name} is {value!r}; allowed: an integer of at least 1"):
        Settings(**given)


@pytest.mark.parametrize("name", ["workers", "threads"])
def test_counts_that_are_too_small(name: str) -> None:
    given = {"workers": None, "threads": None, name: 0}
    with pytest.raises(DmlError, match=f"run_jobs: {name} is 0; allowed: at least 1"):
        Settings(**given)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (999, "999 bytes"),
        (1000, "0.977 KB"),
        (1023_000, "999 KB"),
        (1023_700, "0.976 MB"),
        (1 << 50, "1 PB"),
        (1 << 54, "16 PB"),
        (1 << 74, "16,384 EB"),
    ],
)
def test_sizes_for_people(nbytes: int, text: str) -> None:
    assert size(nbytes) == text
