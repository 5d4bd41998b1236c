"""Jobs that are not apart: as hashes, and as texts where hashes are the same."""

import os
from pathlib import Path

import pytest

from dmlcpu.jobs import apart as apart_module
from dmlcpu.jobs.apart import Apart
from dmlcpu.jobs.job import FileInput, Job, Task
from dmlcpu.jobs.packed import Tasks


def found(folder: Path, *jobs: tuple[str, str]) -> list[str]:
    """Return what is wrong with jobs that read and write a file each."""
    made = [Job("top_k", {"x": FileInput(x)}, {"k": 1}, y) for x, y in jobs]
    packed = Tasks(Task(f"jobs:{number}", f"id{number}", [], job) for number, job in enumerate(made))
    tasks = list(Apart(packed, folder).checked())
    assert [task.job for task in tasks] == made
    return [f"{task.id}: {fault.found}" for task in tasks for fault in task.errors]


CASES = [
    ([("a.npy", "b.npy"), ("a.npy", "c.npy")], []),
    ([("a.npy", "o.npy"), ("b.npy", "./o.npy")], ["id1: './o.npy', as at jobs:0"]),
    ([("a.npy", "b.npy"), ("b.npy", "c.npy")], ["id0: 'b.npy', an input at jobs:1"]),
    ([("a.npy", "o.zarr"), ("b.npy", "o.zarr/c.npy")], ["id1: 'o.zarr/c.npy', within an input or an output"]),
    ([("a.zarr", "o.npy"), ("b.npy", "a.zarr/c.npy")], ["id1: 'a.zarr/c.npy', within an input or an output"]),
    ([("o.zarr/a.npy", "b.npy"), ("b.zarr", "o.zarr")], ["id1: 'o.zarr', which an input is within"]),
]


@pytest.mark.parametrize(("jobs", "faults"), CASES)
def test_files_that_are_not_apart(tmp_path: Path, jobs: list[tuple[str, str]], faults: list[str]) -> None:
    assert found(tmp_path, *jobs) == faults


@pytest.mark.parametrize(("jobs", "faults"), CASES)
def test_other_texts_may_have_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[tuple[str, str]], faults: list[str]
) -> None:
    monkeypatch.setattr(apart_module, "hash", lambda text: len(text) % 2, raising=False)
    assert found(tmp_path, *jobs) == faults


def test_a_file_that_jobs_use(tmp_path: Path) -> None:
    job = Job("top_k", {"x": FileInput("a.npy")}, {"k": 1}, "out/b.npy")
    jobs = Apart(Tasks([Task("jobs", "id", [], job)]), tmp_path)
    assert jobs.uses(tmp_path / "a.npy")
    assert jobs.uses(tmp_path / "out" / ".." / "out" / "b.npy")
    assert not jobs.uses(tmp_path / "c.npy")


@pytest.mark.parametrize("file", ["x.zarr/log", "o.zarr/log"])
def test_a_file_in_a_folder_that_is_replaced_or_read_as_one(tmp_path: Path, file: str) -> None:
    job = Job("top_k", {"x": FileInput("x.zarr")}, {"k": 1}, "o.zarr")
    jobs = Apart(Tasks([Task("jobs", "id", [], job)]), tmp_path)
    assert jobs.uses(tmp_path / file)
    assert not jobs.uses(tmp_path / "other.zarr" / "log")


BLIND = [
    ([("a.npy", "o.npy"), ("b.npy", "O.npy")], ["id1: 'O.npy', as at jobs:0"]),
    ([("a.npy", "\u00e9.npy"), ("b.npy", "e\u0301.npy")], ["id1: 'e\u0301.npy', as at jobs:0"]),
    ([("a.npy", "b.npy"), ("B.npy", "c.npy")], ["id0: 'b.npy', an input at jobs:1"]),
    ([("a.npy", "O.zarr"), ("b.npy", "o.zarr/c.npy")], ["id1: 'o.zarr/c.npy', within an input or an output"]),
]


@pytest.mark.parametrize(("jobs", "faults"), BLIND)
def test_names_that_a_file_system_takes_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[tuple[str, str]], faults: list[str]
) -> None:
    assert found(tmp_path, *jobs) == []
    monkeypatch.setattr(apart_module, "is_case_blind", lambda _: True)
    assert found(tmp_path, *jobs) == faults


def test_strays_of_names_in_capitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("top_k", {"x": FileInput("a.npy")}, {"k": 1}, "out/B.npy")
    left = tmp_path / "out" / ".b.npy.0123456789ab.part"
    left.parent.mkdir()
    left.touch()
    assert Apart(Tasks([Task("jobs", "id", [], job)]), tmp_path).strays() == []
    monkeypatch.setattr(apart_module, "is_case_blind", lambda _: True)
    assert Apart(Tasks([Task("jobs", "id", [], job)]), tmp_path).strays() == [left]


def test_a_folder_that_is_blind_to_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    assert not apart_module.is_case_blind(str(tmp_path / "none" / "yet"))
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        try:
            return real(path)
        except FileNotFoundError:
            return real(path.swapcase())

    monkeypatch.setattr(os, "lstat", lstat)
    monkeypatch.chdir(tmp_path)
    assert apart_module.is_case_blind(".")
    (tmp_path / "A").touch()  # both are there: it tells them apart
    assert not apart_module.is_case_blind(".")
