"""Which jobs are done again: by what is recorded, and by what has changed since."""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_files import assert_best, best, contents, each_best, forget, outcomes, records, save_inputs, save_jobs

from dmlcpu.batch import JobsError, jobs_status, run_jobs
from dmlcpu.operators import OPERATORS

COUNT = 4
ALL = [f"{number:04}" for number in range(COUNT)]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Four jobs that are done."""
    save_inputs(tmp_path, COUNT)
    path = save_jobs(tmp_path, each_best(COUNT))
    result = run_jobs(path)
    assert (result.jobs, result.done_before, result.done, result.failures) == (COUNT, 0, COUNT, [])
    assert outcomes(path) == dict.fromkeys(ALL, "done")
    return path


def done_again(jobs: Path, **options: Any) -> list[str]:
    """Run jobs once more; return the ids of those that were done again."""
    log = jobs.parent / "log"
    log.unlink(missing_ok=True)
    result = run_jobs(jobs, log=log, keep_going=True, **options)
    ran = [json.loads(line)["id"] for line in log.read_text().splitlines()]
    assert result.done + len(result.failures) == len(ran)
    assert result.jobs == result.done_before + result.left_out + len(ran)
    return ran


def rewritten(path: Path, change: Callable[[np.ndarray], object]) -> None:
    """Change an array in a file, whose size and time stay."""
    status = path.stat()
    array = np.load(path)
    change(array)
    np.save(path, array)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size


def test_nothing_is_to_be_done(jobs: Path) -> None:
    before = contents(jobs.parent)
    assert done_again(jobs) == []
    (jobs.parent / "log").unlink()
    assert contents(jobs.parent) == before


def test_force(jobs: Path) -> None:
    assert done_again(jobs, force=True) == ALL
    assert done_again(jobs) == []


def test_a_result_that_is_gone_or_was_changed(jobs: Path) -> None:
    (jobs.parent / "out" / "0001.npz").unlink()
    with (jobs.parent / "out" / "0002.npz").open("ab") as file:
        file.write(b"more")
    os.utime(jobs.parent / "out" / "0003.npz", (1, 1))
    assert done_again(jobs) == ["0001", "0002", "0003"]
    for name in ALL:
        assert_best(jobs.parent, name)
    assert done_again(jobs) == []


def test_a_result_without_a_record_is_made_again(jobs: Path) -> None:
    forget(jobs, "0002")
    assert done_again(jobs) == ["0002"]


def test_an_input_that_was_changed_or_touched(jobs: Path) -> None:
    save_inputs(jobs.parent, 1, seed=5)
    (jobs.parent / "in" / "0002.npy").touch()
    assert done_again(jobs) == ["0000", "0002"]
    assert_best(jobs.parent, "0000")
    assert done_again(jobs) == []


def test_an_input_that_is_gone(jobs: Path) -> None:
    (jobs.parent / "in" / "0001.npy").unlink()
    with pytest.raises(JobsError, match=r"\(0001\): inputs\.x: 'in/0001\.npy', which does not exist; allowed: a file"):
        run_jobs(jobs)
    assert outcomes(jobs) == dict.fromkeys(ALL, "done")  # nothing was run, and nothing written
    assert done_again(jobs) == ["0001"]
    assert outcomes(jobs)["0001"] == "failed"


def test_by_content(jobs: Path) -> None:
    assert done_again(jobs, content_hash=True) == ALL  # the contents were not recorded
    assert done_again(jobs, content_hash=True) == []
    (jobs.parent / "in" / "0001.npy").touch()
    assert done_again(jobs, content_hash=True) == []
    rewritten(jobs.parent / "in" / "0002.npy", lambda array: array.sort())
    assert done_again(jobs, content_hash=True) == ["0002"]
    assert_best(jobs.parent, "0002")
    # Without a hash, the one that was touched counts as changed; and what is recorded serves both ways.
    assert done_again(jobs) == ["0001"]
    assert done_again(jobs, content_hash=True) == ["0001"]
    assert done_again(jobs) == []


def test_an_input_whose_size_and_time_stay(jobs: Path) -> None:
    """As of two versions of one archive, of which a link leads to the other now."""
    folder = jobs.parent / "in"
    status = (folder / "0001.npy").stat()
    rewritten(folder / "0002.npy", lambda array: array.sort())
    np.save(folder / "other.npy", np.sort(np.load(folder / "0001.npy")))
    os.utime(folder / "other.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / "0001.npy").unlink()
    (folder / "0001.npy").symlink_to("other.npy")
    assert done_again(jobs) == ["0001", "0002"]
    for name in ALL:
        assert_best(jobs.parent, name)
    assert done_again(jobs) == []


def test_an_input_that_is_rewritten_within_a_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, inode and times stay: the clock of the file system ticks each 2 s."""
    real = os.stat

    def stat(*arguments: Any, **options: Any) -> os.stat_result:
        status = real(*arguments, **options)
        when = {name: getattr(status, name) // (2 * 10**9) * 2 * 10**9 for name in ("st_mtime_ns", "st_ctime_ns")}
        return os.stat_result(status[:10], when)

    jobs = save_jobs(tmp_path, each_best(1))
    save_inputs(tmp_path, 1)
    assert run_jobs(jobs).done == 1  # which loads kernels: it takes longer than a tick
    monkeypatch.setattr(os, "stat", stat)
    time.sleep((0.1 - time.time()) % 2)  # a tick is at its beginning
    save_inputs(tmp_path, 1, seed=5)
    assert run_jobs(jobs).done == 1
    with (tmp_path / "in" / "0000.npy").open("rb+") as file:
        array = np.load(file)
        file.seek(0)
        np.save(file, -array)
    assert run_jobs(jobs).done == 1
    assert_best(tmp_path, "0000")


def test_a_copy_of_all_on_another_machine(jobs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Copies keep sizes and times; inodes are others, and times of changes of inodes."""
    copied = tmp_path_factory.mktemp("else") / "copied"
    shutil.copytree(jobs.parent, copied)
    assert done_again(copied / jobs.name) == []
    assert jobs_status(copied / jobs.name).stale == 0
    rewritten(copied / "in" / "0001.npy", lambda array: array.sort())  # not seen: all that is known of it stays
    (copied / "in" / "0002.npy").touch()
    assert done_again(copied / jobs.name) == ["0002"]
    rewritten(copied / "in" / "0002.npy", lambda array: array.sort())
    assert done_again(copied / jobs.name) == ["0002"]


def test_a_manifest_of_an_earlier_release(jobs: Path) -> None:
    """It has sizes and times of files, and no place of its own."""
    manifest = Path(f"{jobs}.manifest.jsonl")
    lines = []
    for line in manifest.read_text().splitlines():
        record = json.loads(line)
        record.pop("place", None)
        for file in (*record.get("inputs", {}).values(), *record.get("outputs", {}).values()):
            del file["ctime_ns"]
        lines.append(f"{json.dumps(record)}\n")
    manifest.write_text("".join(lines))
    assert done_again(jobs) == []
    (jobs.parent / "in" / "0001.npy").touch()
    assert done_again(jobs) == ["0001"]


def test_other_arguments(jobs: Path) -> None:
    save_jobs(jobs.parent, [best("0000"), best("0001", k=4), best("0002", attrs={"k": 3, "axis": 0}), best("0003")])
    assert done_again(jobs) == ["0001", "0002"]
    assert_best(jobs.parent, "0001", 4)
    save_jobs(jobs.parent, [best(name, output=f"out/{name}-b.npz") for name in ALL])
    assert done_again(jobs) == ALL


def test_other_order_other_jobs_other_spelling(jobs: Path) -> None:
    new = best("new", inputs={"x": "in/0000.npy"})
    spelled = best("0001", op="top-k", output="./out/0001.npz")
    save_jobs(jobs.parent, [best("0003"), new, spelled, best("0000")])
    assert done_again(jobs) == ["new"]
    assert sorted(records(jobs)) == [*ALL, "new"]  # one that is not in the file may be again
    save_jobs(jobs.parent, each_best(COUNT))
    assert done_again(jobs) == []


def test_not_a_number_is_equal_to_itself(jobs: Path) -> None:
    save_jobs(jobs.parent, [best("0000", attrs={"k": [2] * 8, "fill_value": float("nan")})])
    assert done_again(jobs) == ["0000"]
    assert done_again(jobs) == []


def test_a_folder_that_was_moved(jobs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    moved = tmp_path_factory.mktemp("else") / "moved"
    shutil.move(jobs.parent, moved)
    assert done_again(moved / jobs.name) == []


def test_jobs_in_toml_for_jobs_in_lines(jobs: Path) -> None:
    text = '[[job]]\nglob = "in/*.npy"\nid = "{stem}"\nop = "top_k"\nattrs.k = 3\noutput = "out/{stem}.npz"\n'
    (jobs.parent / "jobs.toml").write_text(text)
    manifest = f"{jobs}.manifest.jsonl"
    assert done_again(jobs.parent / "jobs.toml", manifest=manifest) == ALL  # x is not named
    assert done_again(jobs.parent / "jobs.toml", manifest=manifest) == []


def test_another_version_of_the_operator(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operators = {"top_k": dataclasses.replace(OPERATORS["top_k"], version=OPERATORS["top_k"].version + 1)}
    monkeypatch.setattr("dmlcpu.jobs.operations.OPERATORS", operators)
    assert done_again(jobs) == ALL
    assert done_again(jobs) == []


def test_only_what_failed(jobs: Path) -> None:
    forget(jobs, "0000")
    os.replace(jobs.parent / "in" / "0001.npy", jobs.parent / "kept.npy")
    forget(jobs, "0001")
    assert sorted(done_again(jobs)) == ["0000", "0001"]
    assert outcomes(jobs)["0001"] == "failed"
    forget(jobs, "0000")
    os.replace(jobs.parent / "kept.npy", jobs.parent / "in" / "0001.npy")
    assert done_again(jobs, retry_failed=True) == ["0001"]
    assert sorted(outcomes(jobs)) == ALL[1:]
    assert done_again(jobs, retry_failed=True) == []
    assert done_again(jobs) == ["0000"]


def test_a_failure_is_tried_again(jobs: Path) -> None:
    (jobs.parent / "in" / "0001.npy").write_bytes(b"")
    assert done_again(jobs) == ["0001"]
    assert done_again(jobs) == ["0001"]
    save_inputs(jobs.parent, 2)
    (jobs.parent / "in" / "0000.npy").touch()
    assert sorted(done_again(jobs)) == ["0000", "0001"]
    assert outcomes(jobs) == dict.fromkeys(ALL, "done")


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": None},
        {"outputs": {}},
        {"inputs": {"in/0001.npy": {}}},
        {"inputs": [1]},
        {"inputs": {"in/0001.npy": None}},
        {"job": None},
        {"outcome": "don"},
        {"version": None},
    ],
)
def test_an_edited_record_counts_as_no_record(jobs: Path, change: dict[str, Any]) -> None:
    manifest = Path(f"{jobs}.manifest.jsonl")
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if line.get("id") == "0001":
            line.update(change)
    manifest.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert done_again(jobs) == ["0001"]
    assert outcomes(jobs) == dict.fromkeys(ALL, "done")


def test_two_jobs_are_done_apart(tmp_path: Path) -> None:
    """Faults of one do not reach the others, wherever it stands."""
    save_inputs(tmp_path, 2)
    jobs = save_jobs(tmp_path, [best("0000"), {"op": 3}, best("0001"), best("0001"), best("0000", output="out/1.npz")])
    result = run_jobs(jobs, keep_going=True)
    assert (result.jobs, result.done, [failure.place for failure in result.failures]) == (
        5,
        2,
        [f"{jobs}:2", f"{jobs}:4", f"{jobs}:5"],
    )
    assert done_again(jobs) == ["", "0001", "0000"]
