"""Jobs on small files, run in this process or as a command, and what came of them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlcpu
from dmlcpu.batch import BatchResult, run_jobs
from dmlcpu.jobs.manifest import Manifest
from dmlcpu.jobs.run import JobsRun

ROOT = Path(dmlcpu.__file__).parents[1]
COUNT = 6
ALL = [f"{number:04}" for number in range(COUNT)]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


def save_inputs(folder: Path, count: int, shape: tuple[int, ...] = (8, 16), seed: int = 0) -> list[Path]:
    """Save float32 arrays in FOLDER/in; return the files."""
    generator = np.random.default_rng(seed)
    (folder / "in").mkdir(parents=True, exist_ok=True)
    paths = [folder / "in" / f"{number:04}.npy" for number in range(count)]
    for path in paths:
        np.save(path, generator.standard_normal(shape).astype(np.float32))
    return paths


def best(name: str, k: int = 3, **more: Any) -> dict[str, Any]:
    """A job: top_k of in/NAME.npy to out/NAME.npz."""
    job = {"id": name, "op": "top_k", "inputs": {"x": f"in/{name}.npy"}, "attrs": {"k": k}, "output": f"out/{name}.npz"}
    return job | more


def each_best(count: int, k: int = 3) -> list[dict[str, Any]]:
    """Jobs for all that `save_inputs` has saved."""
    return [best(f"{number:04}", k) for number in range(count)]


def save_jobs(folder: Path, jobs: Iterable[Mapping[str, Any]], name: str = "jobs.jsonl") -> Path:
    """Save jobs as JSON Lines."""
    path = folder / name
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs), "utf-8")
    return path


def toml(value: Any) -> str:
    """Write a value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(name)} = {toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f") if value.isascii() else f'"{"".join(map(escaped, value))}"'
    return "true" if value is True else "false" if value is False else repr(value)


def escaped(character: str) -> str:
    return f"\\U{ord(character):08X}"


def records(jobs: Path) -> dict[str, dict[str, Any]]:
    """Return what the last line of each job in a manifest says; none of a job that has only started.

    A run that was killed after it created the manifest and before it wrote the first line leaves an empty file.
    """
    content = Path(f"{jobs}.manifest.jsonl").read_bytes()
    if not content:
        return {}
    header, *lines = content.splitlines()
    assert json.loads(header) == {"dmlcpu": "manifest", "version": 1}
    found = {record["id"]: record for record in map(json.loads, lines)}
    return {id_: record for id_, record in found.items() if record["outcome"] != "started"}


def outcomes(jobs: Path) -> dict[str, str]:
    """Return each recorded job's outcome."""
    return {id_: record["outcome"] for id_, record in records(jobs).items()}


def forget(jobs: Path, *ids: str) -> None:
    """Take jobs out of the manifest."""
    manifest = Manifest(Path(f"{jobs}.manifest.jsonl"))
    manifest.begin(set(ids))
    manifest.close()


def run_after(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], jobs: Any, **options: Any) -> BatchResult:
    """Run jobs, with something that happens after they were checked."""

    def change_and_run(*args: Any) -> Iterator[Any]:
        change()
        yield from real(*args)

    real = JobsRun.outcomes
    with monkeypatch.context() as patch:
        patch.setattr(JobsRun, "outcomes", change_and_run)
        return run_jobs(jobs, **options)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, hidden ones too."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_best(folder: Path, name: str, k: int = 3) -> None:
    """Check that a job's file holds what the function returns."""
    expected = dmlcpu.top_k(np.load(folder / "in" / f"{name}.npy"), k)
    with np.load(folder / "out" / f"{name}.npz") as found:
        assert sorted(found) == ["indices", "values"]
        for result in found:
            np.testing.assert_array_equal(found[result], getattr(expected, result), strict=True)


def environment(**more: str) -> dict[str, str]:
    """Return the environment in which the command is found."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def start(*argv: object, **options: Any) -> "subprocess.Popen[str]":
    """Start the command line in a process, and a process group, of its own."""
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    settings |= {"env": environment(), "start_new_session": True}
    return subprocess.Popen([sys.executable, "-m", "dmlcpu", *map(str, argv)], **settings | options)


def eventually(true: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for something: a first job may compile for a minute before."""
    began = time.monotonic()
    while not true():
        waited = time.monotonic() - began
        assert waited < seconds, "it did not happen in time"
        time.sleep(min(0.005 + waited / 50, 0.1))  # the longer it takes, the less it matters when it is noticed


def until(true: Callable[[], bool], process: Any) -> None:
    """Wait for something that a process does."""
    eventually(lambda: true() or process.poll() is not None)
    assert true(), process.communicate()


def errors(result: BatchResult) -> dict[str, str]:
    return {failure.id: failure.error for failure in result.failures}


def assert_all_but(jobs: Path, *failed: str) -> None:
    """Check that all jobs are done but these, of which there is nothing."""
    for name in ALL:
        if name not in failed:
            assert_best(jobs.parent, name)
    assert outcomes(jobs) == {name: "failed" if name in failed else "done" for name in ALL}
    assert sorted(contents(jobs.parent / "out")) == [f"{name}.npz" for name in ALL if name not in failed]
