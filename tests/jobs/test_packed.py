"""Jobs and tasks in few bytes."""

import enum
import gc
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from job_files import best, save_inputs

from dmlcpu.common.regions import Tensor
from dmlcpu.jobs.job import FileInput, Job, Task, Work
from dmlcpu.jobs.limits import Settings
from dmlcpu.jobs.packed import Tasks
from dmlcpu.jobs.prepare import Prepared, prepare
from dmlcpu.jobs.progress import Progress


class Word(enum.StrEnum):
    """A program may give such a value."""

    LARGEST = "largest"


def job(number: int, **attrs: object) -> Job:
    inputs = {"x": FileInput(f"in/\udcff{number}.npy"), "k": FileInput("k.npz", "k", "int64")}
    return Job("top_k", inputs, attrs, {"values": f"{number}.npy"} if number % 2 else f"{number}.npz")


JOBS = [job(0), job(1, k=[1, [2.5, None, True]], nan="é"), job(2, k=2**80), job(3, mode=Word.LARGEST)]


def wrong(where: str) -> Task:
    task = Task(where)
    task.refuse("op", "missing", "an operator")
    return task


def test_jobs_are_what_they_were() -> None:
    given = [Task(f"jobs:{number}", f"id {number}", [], each) for number, each in enumerate(JOBS)]
    packed = Tasks([*given, wrong("jobs:9")])
    assert len(packed) == 5
    assert list(packed) == list(packed) == [*given, wrong("jobs:9")]
    assert list(packed.taken()) == [*given, wrong("jobs:9")]


def test_tasks_are_what_they_were() -> None:
    tasks = Tasks()
    known = {"values": Tensor((2, 3), np.dtype(np.float32)), "indices": None}
    inputs = {"x": {"size": 3, "mtime_ns": 2**61}}
    work = ({"x": (2, 9)}, known, "kernel", 72, 99, 5)
    given = [Task("jobs:1", "id", [], each, inputs, Work(*work), {"y.npy": "/z.npy"}) for each in JOBS]
    given.append(wrong("jobs:2"))
    for task in given:
        tasks.append(task)
    assert list(tasks) == given
    assert tasks[-1] == given[-1]
    assert tasks.refused == given[-1:]
    assert list(tasks.without_errors()) == given[:-1]
    assert tasks.read_bytes == 4 * 72
    assert tasks[0].work is tasks[1].work


def prepared(jobs: Path) -> Prepared:
    return prepare(jobs, Settings(threads=1, max_memory="1G"), Progress(shown=False), lock=False)


@pytest.mark.parametrize("form", ["lines", "glob"])
def test_jobs_take_less_than_a_kilobyte_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    save_inputs(tmp_path, 400, (2, 4))
    monkeypatch.chdir(tmp_path)
    path = Path("jobs.jsonl")  # each job has it: how long the folder's name is differs
    if form == "lines":
        path.write_text("".join(json.dumps(best(f"{number:04}")) + "\n" for number in range(400)))
    else:
        path.write_text(json.dumps({"op": "top_k", "attrs": {"k": 3}, "glob": "in/*.npy", "output": "out/{stem}.npz"}))
    measured = []
    for _ in range(4):  # neither what the process keeps once nor what another thread allocates meanwhile is counted
        tracemalloc.start()
        try:
            found = prepared(path)
            gc.collect()
            measured.append(tracemalloc.get_traced_memory())
        finally:
            tracemalloc.stop()
        assert len(found.todo) == 400
    kept, peak = map(min, zip(*measured, strict=True))
    assert kept / 400 < 500
    assert peak / 400 < 1000
