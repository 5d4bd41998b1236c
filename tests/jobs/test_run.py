"""Runs as a whole: what is told of them, and what is written."""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import commands
import numba
import numpy as np
import pytest
import serving
from job_files import (
    assert_best,
    best,
    contents,
    each_best,
    outcomes,
    records,
    run_after,
    save_inputs,
    save_jobs,
    start,
    until,
)

import dmlcpu
from dmlcpu.batch import JobsError, ManifestError, WorkerError, run_jobs
from dmlcpu.jobs.check import Checker
from dmlcpu.jobs.job import Task
from dmlcpu.jobs.progress import COMPILING
from dmlcpu.jobs.run import JobsRun
from dmlcpu.jobs.step import Step
from dmlcpu.runtime import threads

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
SHAPES = [(16,), (8, 16), (3, 5, 7), (64, 64), (2, 1000), (1, 12), (30, 4)]
GOOD, BAD = 580, 20


def bad_inputs(folder: Path) -> list[dict[str, Any]]:
    """Make ten kinds of bad jobs, with what is wrong with each as its id; no file is read of those that are right."""
    whole = (folder / "in" / "0001.npy").read_bytes()
    made = folder / "bad"
    made.mkdir()
    (made / "truncated.npy").write_bytes(whole[:-1])
    (made / "magic.npy").write_bytes(b"PK\3\4" + whole[4:])
    (made / "empty.npy").touch()
    (made / "folder.npy").mkdir()
    np.save(made / "objects.npy", np.array([None, {}]), allow_pickle=True)
    np.save(made / "indices.npy", np.array([[0], [9]]))
    np.save(made / "updates.npy", np.zeros((2, 4), np.float32))
    np.save(made / "x.npy", np.zeros((9, 4), np.float32))
    np.save(made / "a.npy", np.zeros((3, 3), np.int8))

    def on(name: str, reason: str) -> dict[str, Any]:
        return best(reason, inputs={"x": f"bad/{name}.npy"}, output=f"out/{name}.npz")

    scatter = {"op": "scatter_nd", "inputs": {n: f"bad/{n}.npy" for n in ("x", "indices", "updates")}}
    product = {"op": "quantized_matmul", "inputs": {"a": "bad/a.npy", "b": "bad/a.npy"}, "output": "out/y.npy"}
    scales = {"a_scale": float("nan"), "b_scale": 1.0, "y_scale": 1.0}
    return [
        on("truncated", "511 bytes of elements; allowed: 512, as its header says"),
        on("magic", "'bad/magic.npy': "),
        on("empty", "'bad/empty.npy': "),
        on("folder", "'bad/folder.npy': Is a directory"),
        on("objects", "Python objects; allowed: elements of fixed size (nothing is unpickled)"),
        on("missing", "'bad/missing.npy', which does not exist"),
        scatter | {"id": "inputs.indices[1, 0]: 9; allowed: -9 to 8", "output": "out/s.npy"},
        product | {"id": "attrs.a_scale: nan", "attrs": scales},
        best("attrs.k: 17; allowed: 0 to 16", k=17, inputs={"x": "in/0001.npy"}, output="out/k.npz"),
        best("bad/x.npy is no folder", inputs={"x": "in/0001.npy"}, output="bad/x.npy/o.npz"),
    ]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """2,000 jobs, 20 of them bad in ten ways, and what is wrong with these."""
    folder = tmp_path_factory.mktemp("night")
    generator = np.random.default_rng(1)
    (folder / "in").mkdir()
    for number in range(GOOD):
        np.save(folder / "in" / f"{number:04}.npy", generator.standard_normal(SHAPES[number % 7]).astype(np.float32))
    bad = bad_inputs(folder)
    again = [job | {"id": f"{job['id']} ", "output": f"out/again{n}{job['output'][-4:]}"} for n, job in enumerate(bad)]
    again[-1]["output"] = "bad/x.npy/again.npz"
    return folder, [*bad, *again]


@pytest.mark.slow
def test_many_files_and_twenty_bad_ones(night: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, bad = night
    jobs = each_best(GOOD)
    for number, job in enumerate(bad):
        jobs.insert(29 * number + 5, job)
    path = save_jobs(folder, jobs)
    before = contents(folder)
    refused = commands.run("batch", path)
    assert (refused.returncode, refused.stdout) == (2, "")
    head, *lines = refused.stderr.splitlines()
    assert head == f"dmlcpu: {path}: {BAD} errors"
    for number, (line, job) in enumerate(zip(lines, bad, strict=True)):
        assert line.startswith(f"  {path}:{29 * number + 6} ({job['id']}): ")
        assert job["id"].strip() in line.partition("): ")[2]
    assert contents(folder) == before

    done = commands.run("batch", path, "--keep-going", "--json")
    assert done.returncode == 1
    *lines, last = done.stderr.splitlines()
    assert last.startswith(f"dmlcpu: {GOOD} done, {BAD} failed, in ")
    for line, job in zip(lines, bad, strict=True):
        assert line.startswith(f"dmlcpu: failed: {path}:")
        assert job["id"].strip() in line.partition("): ")[2]
    summary = json.loads(done.stdout)
    assert (summary["jobs"], summary["done"], summary["done_before"], summary["interrupted"]) == (
        GOOD + BAD,
        GOOD,
        0,
        False,
    )
    assert [failure["id"] for failure in summary["failures"]] == [job["id"] for job in bad]
    for number in range(GOOD):
        assert_best(folder, f"{number:04}")
    assert sorted(contents(folder / "out")) == [f"{number:04}.npz" for number in range(GOOD)]
    assert sorted(outcomes(path).values()) == ["done"] * GOOD + ["failed"] * BAD

    after = contents(folder)
    again = commands.run("batch", path, "--keep-going")
    assert again.returncode == 1
    first, *lines, last = again.stderr.splitlines()
    assert first == f"dmlcpu: resuming: {GOOD} of {GOOD + BAD} done, {BAD} to do"
    assert (len(lines), last.partition(", in")[0]) == (BAD, f"dmlcpu: {BAD} failed, {GOOD} done before")
    assert {name: content for name, content in contents(folder).items() if "manifest" not in name} == {
        name: content for name, content in after.items() if "manifest" not in name
    }


def test_what_is_logged(tmp_path: Path) -> None:
    save_inputs(tmp_path, 3)
    (tmp_path / "in" / "0001.npy").write_bytes(b"")
    jobs = save_jobs(tmp_path, [*each_best(3), {"id": "bad", "op": 3}])
    start_time = datetime.now(UTC)
    with threads.use_budget(1):
        result = run_jobs(jobs, log=tmp_path / "logs" / "log", keep_going=True)
    assert result.exit_code == 1
    log = [json.loads(line) for line in (tmp_path / "logs" / "log").read_text().splitlines()]
    by_id = {line["id"]: line for line in log}
    assert len(log) == len(by_id) == 4
    for line in log:
        assert list(line) == ["time", "id", "outcome", "op", "shapes", "kernel", "milliseconds", "bytes", "error"]
        assert start_time.replace(microsecond=0) <= datetime.fromisoformat(line["time"]) <= datetime.now(UTC)
    good, bad, worse = by_id["0002"], by_id["0001"], by_id[""]
    assert (good["outcome"], good["op"], good["shapes"], good["bytes"]) == ("done", "top_k", {"x": [8, 16]}, 512)
    assert good["error"] is None
    assert good["kernel"]
    assert 0 < good["milliseconds"] < 60_000
    assert (bad["outcome"], bad["op"], bad["shapes"], bad["bytes"]) == ("failed", "top_k", None, 0)
    assert "in/0001.npy" in bad["error"]
    assert (worse["outcome"], worse["op"]) == ("failed", None)


@pytest.mark.parametrize(
    ("most", "workers"),
    [(1, 1), (2, 1), (100, 1), (2, 2), *(pytest.param(most, 2, marks=pytest.mark.slow) for most in (1, 100))],
)
def test_a_run_stops_after_max_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, most: int
) -> None:
    def touch() -> None:
        for number in range(0, count, 2):
            (tmp_path / "in" / f"{number:04}.npy").touch()

    count = 60
    save_inputs(tmp_path, count)
    jobs = save_jobs(tmp_path, each_best(count))
    result = run_after(monkeypatch, touch, jobs, workers=workers, max_failures=most)
    assert result.exit_code == 1
    assert result.not_run == count - result.done - len(result.failures)
    if most == 100:
        assert (result.done, len(result.failures)) == (count // 2, count // 2)
    else:  # what had begun is finished
        assert most <= len(result.failures) < most + 12
        assert result.not_run > 0
    assert len(outcomes(jobs)) == result.done + len(result.failures)
    assert run_jobs(jobs).done == count - result.done
    for number in range(count):
        assert_best(tmp_path, f"{number:04}")


def test_refused_jobs_are_failures(tmp_path: Path) -> None:
    save_inputs(tmp_path, 2)
    jobs = save_jobs(tmp_path, [best("0000"), best("no"), best("0001")])
    result = run_jobs(jobs, keep_going=True, max_failures=1)
    assert (result.done, result.not_run, len(result.failures)) == (0, 2, 1)


def test_no_jobs(tmp_path: Path) -> None:
    result = run_jobs([], directory=tmp_path)
    assert (result.jobs, result.exit_code, result.failures) == (0, 0, [])


def test_it_is_told_when_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compute(step: Step, stopping: Callable[[], bool]) -> None:
        numba.njit(lambda number: number)(1)
        real(step, stopping)

    save_inputs(tmp_path, 2)
    real = Step.compute
    dmlcpu.top_k(np.load(tmp_path / "in" / "0000.npy"), 3)
    run_jobs(each_best(2), directory=tmp_path, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(Step, "compute", compute)
    run_jobs(each_best(2), directory=tmp_path, progress=True)
    assert capsys.readouterr().err == f"dmlcpu: {COMPILING}\n"


@pytest.mark.parametrize(("manifest", "force"), [(False, False), (True, False), (True, True)])
def test_it_is_told_what_is_done_when_workers_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: bool, force: bool
) -> None:
    def losing(*args: Any, **more: Any) -> Any:
        yield from itertools.islice(real(*args, **more), 2)
        raise WorkerError("the cluster's scheduler is gone")

    save_inputs(tmp_path, 3)
    real = JobsRun.outcomes
    monkeypatch.setattr(JobsRun, "outcomes", losing)
    jobs = save_jobs(tmp_path, each_best(3))
    with pytest.raises(WorkerError) as error:
        run_jobs(jobs if manifest else each_best(3), directory=tmp_path, force=force)
    how = f"as {jobs}.manifest.jsonl records; the same run again{' without force' if force else ''} does the others"
    how = how if manifest else "without a manifest the same run again runs all"
    sign = "," if manifest else ";"
    assert str(error.value) == f"the cluster's scheduler is gone\n  2 of 3 jobs are done{sign} {how}"


def test_jobs_of_a_program_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_inputs(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run_jobs([best("0000")]).done == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    assert run_jobs((best("0000") for _ in range(1)), manifest="kept").done == 1
    assert run_jobs([best("0000")], manifest="kept").done_before == 1


def test_files_of_names_that_are_not_ascii(tmp_path: Path) -> None:
    names = ["é", "a b", "日本", "'quoted\"", "new\u2028line", "x" * 200]
    if sys.platform == "linux":
        names += [os.fsdecode(b"\xff\xe9"), "a\nb", "{braces}", "[x]*"]
    for name in names:
        save_inputs(tmp_path, 1)[0].rename(tmp_path / "in" / f"{name}.npy")
    entry = {"op": "top_k", "glob": "in/*.npy", "attrs": {"k": 3}, "output": "out/{stem}.npz"}
    jobs = save_jobs(tmp_path, [entry])
    result = run_jobs(jobs, log=tmp_path / "log")
    assert (result.done, result.failures) == (len(names), [])
    for name in names:
        assert_best(tmp_path, name)
    assert sorted(outcomes(jobs)) == sorted(f"out/{name}.npz" for name in names)
    assert len((tmp_path / "log").read_bytes().splitlines()) == len(names)
    assert run_jobs(jobs).done_before == len(names)
    strict = "import sys; sys.stdout.reconfigure(encoding='utf-8', errors='strict')\n"
    planned = commands.run("batch", jobs, "--dry-run", "--force", code=strict + commands.COMMAND)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert planned.stdout.count("; reads ") == len(names)


@LINUX
def test_another_run_at_the_same_time(tmp_path: Path) -> None:
    save_inputs(tmp_path, 300)
    jobs = save_jobs(tmp_path, each_best(300))
    manifest = tmp_path / "jobs.jsonl.manifest.jsonl"
    with start("batch", jobs, "--quiet") as first:
        until(lambda: manifest.exists() and manifest.stat().st_size > 0, first)  # it is locked before it is written
        first.send_signal(signal.SIGSTOP)
        try:
            second = commands.run("batch", jobs)
            with pytest.raises(ManifestError, match="in use by another run"):
                run_jobs(jobs)
        finally:
            first.send_signal(signal.SIGCONT)
        assert first.communicate() == ("", "")
        assert first.returncode == 0
    assert (second.returncode, second.stderr) == (2, f"dmlcpu: {manifest} is in use by another run\n")
    assert sorted(records(jobs)) == [f"{number:04}" for number in range(300)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "jobs.jsonl", manifest.name, "out"]


def test_errors_can_be_pickled(tmp_path: Path) -> None:
    import pickle

    with pytest.raises(JobsError) as error:
        run_jobs([best("no")], directory=tmp_path)
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.faults) == (str(error.value), error.value.faults)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"workers": 0}, "workers is 0; allowed: at least 1"),
        ({"max_memory": "much"}, "max_memory is 'much'; allowed: at least 1M, as in 512M or 4G"),
        ({"max_failures": 0}, "max_failures is 0; allowed: at least 1"),
        ({"retries": -1}, "retries is -1; allowed: at least 0"),
        ({"timeout": 0}, "timeout is 0; allowed: more than 0 seconds"),
        ({"timeout": float("nan")}, "timeout is nan; allowed: more than 0 seconds"),
        (
            {"timeout": 1, "executor": ThreadPoolExecutor()},
            "timeout is given together with executor; allowed: one of the two",
        ),
        (
            {"timeout": 1, "scheduler": "tcp://127.0.0.1:9"},
            "timeout is given together with scheduler; allowed: one of the two",
        ),
        ({"force": True, "retry_failed": True}, "force"),
        ({"executor": ThreadPoolExecutor(), "scheduler": "local"}, "executor is given together with scheduler"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, Any], error: str) -> None:
    save_inputs(tmp_path, 1)
    with pytest.raises(dmlcpu.DmlError, match=error):
        run_jobs([best("0000")], directory=tmp_path, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_may_be_checked_as_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    def check(checker: Checker, task: Task) -> Task:
        checked.append(task.id)
        return real(checker, task)

    checked: list[str] = []
    real = Checker.check
    monkeypatch.setattr(Checker, "check", check)
    save_inputs(tmp_path, 6)
    (tmp_path / "in" / "0002.npy").write_bytes(b"")
    jobs = save_jobs(tmp_path, [*each_best(6), best("bad", k=99, inputs={"x": "in/0000.npy"})])
    result = run_jobs(jobs, workers=workers, check_as_you_go=True, log=tmp_path / "log")
    assert (result.jobs, result.done, result.failed) == (7, 5, 2)
    assert sorted(checked) == [*(f"{number:04}" for number in range(6)), "bad"]  # each once
    reasons = {failure.id: failure.error for failure in result.failures}
    assert reasons["bad"] == "attrs.k: 99; allowed: 0 to 16 (the elements along axis 1)"
    assert reasons["0002"].startswith("inputs.x: 'in/0002.npy': ")
    for number in (0, 1, 3, 4, 5):
        assert_best(tmp_path, f"{number:04}")
    assert all(json.loads(line)["shapes"] for line in (tmp_path / "log").read_text().splitlines() if "done" in line)
    assert run_jobs(jobs, check_as_you_go=True).done_before == 5
    save_jobs(tmp_path, [*each_best(6), best("0005")])
    with pytest.raises(JobsError, match=r"id: '0005'|out/0005\.npz"):
        run_jobs(jobs, check_as_you_go=True)


@pytest.mark.slow
def test_a_job_that_takes_too_long_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others begin in new processes, within the same time."""
    save_inputs(tmp_path, 3)
    jobs = save_jobs(tmp_path, each_best(3))
    monkeypatch.setattr("dmlcpu.jobs.run.serve", serving.hanging)
    result = run_jobs(jobs, timeout=8)
    assert (result.done, list(map(str, result.failures))) == (2, [f"{jobs}:2 (0001): took longer than 8 s"])
    assert sorted(contents(tmp_path / "out")) == ["0000.npz", "0002.npz"]
    assert records(jobs)["0001"]["seconds"] == 8


def test_a_directory_of_its_own(tmp_path: Path) -> None:
    save_inputs(tmp_path / "data", 2)
    jobs = save_jobs(tmp_path, each_best(2))
    with pytest.raises(JobsError):
        run_jobs(jobs)
    assert run_jobs(jobs, directory=tmp_path / "data").done == 2
    assert_best(tmp_path / "data", "0001")
    assert run_jobs(jobs, directory=tmp_path / "data").done_before == 2
