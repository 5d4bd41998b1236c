import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlcpu.batch import run_jobs
from dmlcpu.jobs.entries import read_jobs
from dmlcpu.jobs.job import FileInput, Job, _may_match, tasks_of

MEMBERS = {"op": "top_k", "inputs": {"x": "a.npy"}, "attrs": {"k": 2}, "output": "b.npz"}


def jobs(folder: Path, *entries: dict[str, Any]) -> list[Job]:
    tasks = list(tasks_of(read_jobs(entries, folder)))
    assert [str(fault) for task in tasks for fault in task.errors] == []
    return [task.job for task in tasks if task.job]


def ids(folder: Path, *entries: dict[str, Any]) -> list[str]:
    return [task.id for task in tasks_of(read_jobs(entries, folder))]


def faults(folder: Path, **members: Any) -> list[str]:
    tasks = list(tasks_of(read_jobs([{name: value for name, value in members.items() if value is not None}], folder)))
    assert all(bool(task.errors) == (task.job is None) for task in tasks)
    return [fault.reason for task in tasks for fault in task.errors]


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_one_job(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, MEMBERS)
    assert job == Job("top_k", {"x": FileInput("a.npy")}, {"k": 2}, "b.npz")
    assert job.description == MEMBERS
    assert job.targets == {"b.npz": None}
    assert ids(tmp_path, MEMBERS) == ["b.npz"]


def test_however_it_is_written_it_is_the_same_job(tmp_path: Path) -> None:
    spelled = MEMBERS | {"op": "top-k", "id": "b", "output": "./b.npz", "inputs": {"k": 2, "x": "a.npy"}, "attrs": {}}
    one, other = jobs(tmp_path, MEMBERS, spelled)
    assert one.description == other.description
    assert ids(tmp_path, MEMBERS, spelled) == ["b.npz", "b"]


def test_web_addresses_have_names_without_their_queries(tmp_path: Path) -> None:
    files = ["https://host/in/a.npz?key=1/2.3::x", "s3://bucket/in/b?.npy", "file:///in/c.npy"]
    found = jobs(tmp_path, {"op": "top_k", "files": files, "output": "out/{number}-{stem}-{array}.npz"})
    assert [job.output for job in found] == ["out/0-a-x.npz", "out/1-b?-.npz", "out/2-c-.npz"]
    assert [job.inputs[""].path for job in found] == [files[0].removesuffix("::x"), *files[1:]]


def test_arrays_in_files(tmp_path: Path) -> None:
    inputs = {
        "x": "a.npz::x",
        "k": {"path": "b.npy", "dtype": "int64"},
        "fill_value": {"path": "c.npz", "name": "c", "dtype": "bfloat16"},
    }
    (job,) = jobs(tmp_path, MEMBERS | {"inputs": inputs, "attrs": {}})
    assert job.inputs == {
        "x": FileInput("a.npz", "x"),
        "k": FileInput("b.npy", None, "int64"),
        "fill_value": FileInput("c.npz", "c", "bfloat16"),
    }
    assert job.description["inputs"] == inputs


def test_results_share_files_or_have_their_own(tmp_path: Path) -> None:
    output = {"values": "v.npz", "other": "./v.npz", "indices": "i.npy"}
    (job,) = jobs(tmp_path, MEMBERS | {"output": output})
    assert job.targets == {"v.npz": ("values", "other"), "i.npy": ("indices",)}
    assert ids(tmp_path, MEMBERS | {"output": output}) == ["v.npz, v.npz, i.npy"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_what_a_pattern_matches_is_a_file_whatever_its_name(tmp_path: Path) -> None:
    touch(tmp_path, "in/a::b.npy")
    members = {"op": "top_k", "attrs": {"k": 2}, "output": "{stem}{array}.npz"}
    (job,) = jobs(tmp_path, members | {"glob": "in/*.npy"})
    assert job.inputs[""] == FileInput("in/a::b.npy")
    assert ids(tmp_path, members | {"glob": "in/*.npy"}) == ["a::b.npz"]
    for spelled in ("in/a::b.npy", f"file://{tmp_path}/in/a::b.npy"):
        (job,) = jobs(tmp_path, {"op": "top_k", "inputs": {"x": spelled}, "attrs": {"k": 2}, "output": "b.npz"})
        assert job.inputs["x"] == FileInput(spelled)
    (job,) = jobs(tmp_path, members | {"files": ["a.npz::b"]})
    assert job.inputs[""] == FileInput("a.npz", "b")
    assert ids(tmp_path, members | {"files": ["a.npz::b"]}) == ["ab.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_a_file_whose_name_begins_as_a_chained_url_does(tmp_path: Path) -> None:
    """It is read, and not the file that the URL would lead to."""
    for name, sign in (("x.npy", 1), ("simplecache::x.npy", -1)):
        np.save(tmp_path / name, sign * np.arange(9.0))
    job = {"op": "top_k", "attrs": {"k": 1}, "output": "out/{stem}.npz"}
    for members in (job | {"glob": "*.npy"}, job | {"files": ["x.npy", "simplecache::x.npy"]}):
        assert run_jobs([members], directory=tmp_path).done == 2
        found = {name: np.load(tmp_path / "out" / f"{name}.npz")["values"].tolist() for name in ("x", "simplecache::x")}
        assert found == {"x": [8], "simplecache::x": [0]}
        for name in found:
            (tmp_path / "out" / f"{name}.npz").unlink()


def test_a_job_for_each_file(tmp_path: Path) -> None:
    touch(tmp_path, "in/b.npy", "in/deep/er/c.npy", "in/a.npy", "in/.hidden.npy", "in/a.txt")
    entry = MEMBERS | {"inputs": {"k": "k/{folder}/{stem}.npy"}, "attrs": {}}
    entry |= {"glob": "in/**/*.npy", "id": "{number}: {path}", "output": "out/{folder}/{stem}-{{}}-{name}.npz"}
    found = jobs(tmp_path, entry)
    assert ids(tmp_path, entry) == ["0: in/a.npy", "1: in/b.npy", "2: in/deep/er/c.npy"]
    assert [job.output for job in found] == [
        "out/a-{}-a.npy.npz",
        "out/b-{}-b.npy.npz",
        "out/deep/er/c-{}-c.npy.npz",
    ]
    assert found[2].inputs == {"": FileInput("in/deep/er/c.npy"), "k": FileInput("k/deep/er/c.npy")}


def test_files_that_are_listed(tmp_path: Path) -> None:
    found = jobs(tmp_path, MEMBERS | {"files": ["q/b.npy", "a.npy"], "output": "{number}-{stem}.npz"})
    assert [(job.inputs[""].path, job.output) for job in found] == [("q/b.npy", "0-b.npz"), ("a.npy", "1-a.npz")]


def test_arrays_in_files_that_hold_several(tmp_path: Path) -> None:
    found = jobs(tmp_path, MEMBERS | {"files": ["q/b.npz::v", "b.npz::w"], "output": "{stem}-{array}.npz"})
    assert [job.inputs[""] for job in found] == [FileInput("q/b.npz", "v"), FileInput("b.npz", "w")]
    assert [job.output for job in found] == ["b-v.npz", "b-w.npz"]


def test_a_glob_does_not_match_what_its_jobs_write(tmp_path: Path) -> None:
    touch(tmp_path, "a.npy", "b.npy")
    entry = MEMBERS | {"glob": "*.npy", "output": "{stem}_best.npy"}
    first = ids(tmp_path, entry)
    touch(tmp_path, "a_best.npy")
    assert ids(tmp_path, entry) == first == ["a_best.npy", "b_best.npy"]


def test_patterns_may_be_urls_of_this_machine(tmp_path: Path) -> None:
    touch(tmp_path, "in/a.npy", "in/night/b.npy", "in/best-b.npy")
    members = {"op": "top_k", "glob": f"file://{tmp_path}/in/**/*.npy", "output": f"{tmp_path}/in/best-{{stem}}.npy"}
    assert [job.inputs[""].path for job in jobs(tmp_path, members)] == [
        f"{tmp_path}/in/a.npy",
        f"{tmp_path}/in/night/b.npy",
    ]
    assert [job.output for job in jobs(tmp_path, members | {"output": "out/{folder}/{stem}.npz"})] == [
        "out/a.npz",
        "out/best-b.npz",
        "out/night/b.npz",
    ]


def test_braces_are_plain_where_there_is_no_glob(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, MEMBERS | {"output": "{stem}.npz", "inputs": {"x": "{}.npy"}})
    assert (job.output, job.inputs["x"].path) == ("{stem}.npz", "{}.npy")


def test_a_glob_starts_from_the_directory_of_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "jobs/a.npy", "else/b.npy")
    monkeypatch.chdir(tmp_path / "else")
    (job,) = jobs(tmp_path / "jobs", MEMBERS | {"glob": "*.npy"})
    assert job.inputs[""].path == "a.npy"
    (job,) = jobs(tmp_path, MEMBERS | {"glob": f"{tmp_path}/else/*.npy", "output": "{folder}/{stem}.npz"})
    assert (job.inputs[""].path, job.output) == (str(tmp_path / "else" / "b.npy"), "b.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")
def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xe9")
    touch(tmp_path, f"{name}.npy")
    (job,) = jobs(tmp_path, MEMBERS | {"glob": "*.npy", "output": "{stem}.npz"})
    assert job.output == f"{name}.npz"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"op": None}, ["op: missing; allowed: the name of an operator, a DxDispatch model or a saved index"]),
        (
            {"op": None, "output": None},
            [
                "op: missing; allowed: the name of an operator, a DxDispatch model or a saved index",
                "output: missing; allowed: a file to write",
            ],
        ),
        ({"attrs": {"x": 1}}, ["attrs.x: also given in inputs; allowed: one of the two"]),
        ({"glob": "*", "files": ["a.npy"]}, ["files: given together with glob; allowed: one of the two"]),
        ({"inputs": {"x": {"name": "x"}}}, ["inputs.x.path: missing; allowed: a file"]),
        (
            {"inputs": {"x": {"path": "a", "nam": "x"}}},
            ["inputs.x.nam: unknown; allowed: path, name, dtype"],
        ),
        ({"inputs": {"x": {"path": 3}}}, ["inputs.x.path: 3; allowed: text"]),
        (
            {"attrs": {"k": {"a": 1}}},
            ["attrs.k: {'a': 1}; allowed: numbers, text, true, false, null, or lists of them"],
        ),
        (
            {"files": ["a.npy"], "output": "{stm}.npz"},
            ["output: {stm}; allowed: {path}, {name}, {stem}, {array}, {folder}, {number}"],
        ),
        (
            {"files": ["a.npy"], "output": "{stem.npz"},
            [
                "output: '{stem.npz': expected '}' before end of string; "
                "allowed: {{ and }} for braces that stand for themselves"
            ],
        ),
        ({"output": "a\0.npz"}, ["output: 'a\\x00.npz'; allowed: a name that a file can have"]),
        ({"inputs": {"x": "a\0.npy"}}, ["inputs.x: 'a\\x00.npy'; allowed: a name that a file can have"]),
        ({"inputs": {"x": {"path": "\ud800"}}}, ["inputs.x: '\\ud800'; allowed: a name that a file can have"]),
        ({"files": ["\0"], "output": "a.npz"}, ["files: '\\x00'; allowed: a name that a file can have"]),
        ({"op": "\0.json"}, ["op: '\\x00.json'; allowed: a name that a file can have"]),
    ],
)
def test_faults(tmp_path: Path, members: dict[str, Any], expected: list[str]) -> None:
    touch(tmp_path, "a.npy")
    assert faults(tmp_path, **MEMBERS | members) == expected


def test_one_output_for_several_inputs(tmp_path: Path) -> None:
    touch(tmp_path, "in/a.npy", "in/b.npy")
    members = {"op": "top_k", "glob": "in/*.npy", "attrs": {"k": 2}}
    for output, field in (("v", "output"), ({"values": "v", "indices": "{stem}.npy"}, "output.values")):
        found = faults(tmp_path, **members, output=output)
        assert [fault.partition(";")[0] for fault in found] == [f"{field}: 'v' for 2 inputs"]


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    (tmp_path / "real" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "folder")
    for folder in (tmp_path, tmp_path / "link" / ".."):
        expected = [f"glob: 'in/*.npy', which matches no file; allowed: a pattern of files in {folder}"]
        assert faults(folder, **MEMBERS, glob="in/*.npy") == expected


def test_lists_in_lists(tmp_path: Path) -> None:
    nested: Any = 1
    for _ in range(64):
        nested = [nested]
    assert faults(tmp_path, **MEMBERS | {"attrs": {"k": nested}}) == []
    for deeper in (1, 835):
        for _ in range(deeper):
            nested = [nested]
        (fault,) = faults(tmp_path, **MEMBERS | {"attrs": {"k": nested}})
        assert fault.startswith("attrs.k: [[[")


@pytest.mark.parametrize(
    ("output", "base", "may"),
    [
        ("out/{stem}.npz", "in", False),
        ("in/{stem}.npz", "in", True),
        ("{folder}/x.npz", "in", True),
        ("./in/{stem}.npz", "in", True),
        ("out/{stem}.npz", ".", True),
        ("i{stem}.npz", "in", True),
        ({"values": "out/{stem}.npy", "indices": "in/{stem}.npy"}, "in", True),
        ({"values": "out/{stem}.npy", "indices": "of/{stem}.npy"}, "in", False),
    ],
)
def test_outputs_that_may_be_inputs(output: str | dict[str, str], base: str, may: bool) -> None:
    assert _may_match(output, base) == may
