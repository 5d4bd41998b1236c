"""What is found wrong before anything runs."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_files import best, contents, save_inputs

from dmlcpu.batch import JobsError, plan_jobs, run_jobs
from dmlcpu.operators import OPERATORS

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where jobs are: with files of arrays, of bad ones and of others."""
    save_inputs(tmp_path, 1)
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    np.save(tmp_path / "complex.npy", np.zeros(3, np.complex64))
    np.save(tmp_path / "one.npy", np.float32(1))
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.ones(3))
    whole = (tmp_path / "in" / "0000.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(whole[:-1])
    (tmp_path / "long.npy").write_bytes(whole + b"x")
    (tmp_path / "half.npy").write_bytes(whole[:50])
    (tmp_path / "empty.npy").touch()
    (tmp_path / "magic.npy").write_bytes(b"NUMPY" + whole[5:])
    (tmp_path / "text.npy").write_text("a,b,c\n")
    (tmp_path / "zip.npz").write_bytes(whole)
    (tmp_path / "folder.npy").mkdir()
    return tmp_path


def faults(folder: Path, *jobs: dict[str, Any]) -> list[str]:
    """Return what is wrong with jobs; nothing is run or written of it."""
    before = contents(folder)
    with pytest.raises(JobsError) as error:
        run_jobs(jobs, directory=folder)
    assert contents(folder) == before
    found = [fault.reason for fault in error.value.faults]
    assert [fault.reason for fault in plan_jobs(jobs, directory=folder).faults] == found
    assert all(str(fault).startswith(f"{fault.place} ({fault.id}): ") for fault in error.value.faults)
    return found


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("no.npy", "'no.npy', which does not exist; allowed: a file"),
        ("no/no.npy", "'no/no.npy', which does not exist; allowed: a file"),
        ("one.npy/x.npy", "'one.npy/x.npy': Not a directory; allowed: a file that can be read"),
        ("folder.npy", "'folder.npy': Is a directory; allowed: a file that can be read"),
        ("x.txt", "'x.txt': the suffix '.txt'; allowed: .npy, .npz, .safetensors, .zarr, .pb"),
        ("x", "'x': no suffix; allowed: .npy, .npz, .safetensors, .zarr, .pb"),
        ("short.npy", "'short.npy': 511 bytes of elements; allowed: 512, as its header says"),
        ("long.npy", "'long.npy': 513 bytes of elements; allowed: 512, as its header says"),
        ("half.npy", "'half.npy': "),
        ("empty.npy", "'empty.npy': "),
        ("magic.npy", "'magic.npy': "),
        ("text.npy", "'text.npy': "),
        ("zip.npz", "'zip.npz': "),
        ("objects.npy", "'objects.npy': Python objects; allowed: elements of fixed size (nothing is unpickled)"),
        ("two.npz", "'two.npz': a file of 2 arrays and no name; allowed: a name: a, b"),
        ("two.npz::c", "'two.npz': the name 'c'; allowed: a, b"),
        ("in/0000.npy::x", "'in/0000.npy': the name 'x'; allowed: none (.npy files hold one array)"),
    ],
)
def test_inputs(folder: Path, path: str, fault: str) -> None:
    (found,) = faults(folder, best("0000", inputs={"x": path}))
    assert found.startswith(f"inputs.x: {fault}")
    assert "; allowed: " in found
    assert "\n" not in found


@pytest.mark.skipif(AS_ROOT or sys.platform == "win32", reason="root may do everything")
def test_without_permission(folder: Path) -> None:
    (folder / "secret.npy").touch(mode=0)
    (folder / "locked").mkdir(mode=0o500)
    assert faults(
        folder,
        best("0000", inputs={"x": "secret.npy"}),
        best("other", inputs={"x": "in/0000.npy"}, output="locked/new/a.npz"),
    ) == [
        "inputs.x: 'secret.npy': Permission denied; allowed: a file that can be read",
        f"output: 'locked/new/a.npz': {folder / 'locked'} is read-only; "
        "allowed: a file in a folder that can be written to",
    ]


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        ({"op": "topk"}, f"op: 'topk'; allowed: {', '.join(OPERATORS)}, a DxDispatch"),
        ({"op": "no.json"}, "op: 'no.json': No such file or directory; allowed: a file or a folder that can be read"),
        ({"attrs": {}}, "attrs.k: missing; allowed: a value"),
        ({"inputs": {}}, "inputs.x: missing; allowed: a file"),
        ({"attrs": {"k": 3, "out": 1}}, "attrs.out: unknown; allowed: x, k, axis, "),
        ({"inputs": {"x": "in/0000.npy", "y": "one.npy"}}, "inputs.y: unknown; allowed: x, k, axis, "),
        ({"attrs": {"k": 17}}, "attrs.k: 17; allowed: 0 to 16 (the elements along axis 1)"),
        ({"attrs": {"k": -1}}, "attrs.k: -1; allowed: 0 to 16"),
        ({"attrs": {"k": 10**40}}, "attrs.k: 1000"),
        ({"attrs": {"k": 1.5}}, "attrs.k: 1.5; allowed: an integer"),
        ({"attrs": {"k": None}}, "attrs.k: None; allowed: an integer"),
        ({"attrs": {"k": [1, 2]}}, "attrs.k.shape: (2,); allowed: a shape that broadcasts to (8,)"),
        ({"attrs": {"k": [[1], [1, 2]]}}, "attrs.k: "),
        ({"attrs": {"k": 3, "axis": 2}}, "attrs.axis: 2; allowed: -2 to 1 (x has 2 dimensions)"),
        ({"attrs": {"k": 3, "mode": "most"}}, "attrs.mode: "),
        ({"attrs": {"k": 3, "index_dtype": "int8"}}, "attrs.index_dtype: "),
        ({"inputs": {"x": "complex.npy"}}, "inputs.x.dtype: complex64; allowed: "),
        ({"inputs": {"x": "one.npy"}}, "inputs.x"),
        (
            {"inputs": {"x": {"path": "in/0000.npy", "dtype": "float16"}}},
            "inputs.x: 'in/0000.npy': elements of float32",
        ),
        ({"inputs": {"x": {"path": "in/0000.npy", "dtype": "real"}}}, "inputs.x: 'in/0000.npy': the dtype 'real'"),
        ({"output": "out"}, "output: 'out'; allowed: a file with one of the suffixes .npz, "),
        ({"output": "out.npy"}, "output: 'out.npy', which holds one array; allowed: a file for several arrays (.npz, "),
        ({"output": {"value": "out.npy"}}, "output.value: unknown; allowed: values, indices"),
        ({"output": "one.npy/a.npz"}, "output: 'one.npy/a.npz': "),
        ({"output": {"values": "folder.npy"}}, "output: 'folder.npy': there is a folder; allowed: a file in"),
        ({"output": 300 * "a" + ".npz"}, "output: 'aaa"),
        ({"output": 300 * "a" + "/a.npz"}, "output: 'aaa"),
    ],
)
def test_members(folder: Path, job: dict[str, Any], fault: str) -> None:
    (found,) = faults(folder, best("0000") | job)
    assert found.startswith(fault)
    assert found.count("; allowed: ") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    jobs, files = [best("0000")], {"directory": folder, "manifest": folder / "manifest.jsonl", "content_hash": True}
    assert run_jobs(jobs, **files).done == 1
    (folder / "in" / "0000.npy").unlink()
    os.mkfifo(folder / "in" / "0000.npy")
    with pytest.raises(JobsError, match=r"inputs\.x: 'in/0000\.npy': no regular file; allowed: a file on disk"):
        run_jobs(jobs, **files)


def test_everything_at_once(folder: Path) -> None:
    """Each fault of each job is found; one that is right has none."""
    job = {"id": "bad", "op": "top_k", "inputs": {"x": "no.npy", "k": "empty.npy", "y": "one.npy"}}
    job |= {"attrs": {"z": 1}, "output": {"a": "a.npy", "values": "b"}}
    found = faults(folder, best("0000"), job)
    assert [fault.partition(":")[0] for fault in found] == [
        "inputs.y",
        "attrs.z",
        "output.a",
        "output",
        "inputs.x",
        "inputs.k",
    ]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "fault"),
    [
        (
            "scatter_nd",
            {"x": np.zeros((3, 2)), "indices": np.array([[0], [3]]), "updates": np.zeros((2, 2))},
            {},
            "inputs.indices[1, 0]: 3; allowed: -3 to 2",
        ),
        (
            "scatter_nd",
            {"x": np.zeros((3, 2)), "indices": np.array([[0], [2]]), "updates": np.zeros((2, 3))},
            {},
            "inputs.updates.shape: (2, 3); allowed: ",
        ),
        (
            "quantized_matmul",
            {"a": np.zeros((2, 3), np.int8), "b": np.zeros((3, 2), np.int8)},
            {"a_scale": float("nan"), "b_scale": 1.0, "y_scale": 1.0},
            "attrs.a_scale: nan; allowed: ",
        ),
        (
            "quantized_matmul",
            {"a": np.zeros((2, 3), np.int8), "b": np.zeros((4, 2), np.int8)},
            {"a_scale": 1.0, "b_scale": 1.0, "y_scale": 1.0},
            "inputs.b.shape: (4, 2); allowed: ",
        ),
        (
            "matmul_integer",
            {"a": np.zeros((2, 3), np.int16), "b": np.zeros((3, 2), np.int8)},
            {},
            "inputs.a.dtype: int16; allowed: ",
        ),
    ],
)
def test_what_operators_refuse(
    tmp_path: Path, op: str, arrays: dict[str, np.ndarray], attrs: dict[str, Any], fault: str
) -> None:
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    inputs = {name: f"{name}.npy" for name in arrays}
    (found,) = faults(tmp_path, {"op": op, "inputs": inputs, "attrs": attrs, "output": "out/y.npy"})
    assert found.startswith(fault)


@pytest.mark.skipif(not hasattr(os, "pathconf"), reason="the longest name is not known")
@pytest.mark.parametrize("new", ["", "new/"])
def test_names_whose_temporary_names_are_too_long(folder: Path, new: str) -> None:
    most = os.pathconf(folder, "PC_NAME_MAX") - 19
    name = f"{(most - 4) % 2 * 'x'}{(most - 4) // 2 * 'é'}.npz"
    assert run_jobs([best("0000", output=new + name)], directory=folder).done == 1
    (found,) = faults(folder, best("0000", output=f"{new}x{name}"))
    assert found.endswith(f", a name of {most + 1} bytes; allowed: at most {most}, as its temporary name is 19 longer")


def test_results_that_the_outputs_format_cannot_hold(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1), np.complex128))
    np.save(tmp_path / "indices.npy", np.zeros((1, 1), np.int64))
    inputs = {"x": "x.npy", "indices": "indices.npy", "updates": "x.npy"}
    (found,) = faults(tmp_path, {"op": "scatter_nd", "inputs": inputs, "output": "y.safetensors"})
    assert found.startswith("output: 'y.safetensors': elements of complex128 for a safetensors file; allowed: bool, ")


@pytest.mark.parametrize(
    "spelled", ["in/0000.npy", "./in/../in/0000.npy", "{folder}/in/0000.npy", "link.npy", "there/0000.npy"]
)
def test_no_input_is_overwritten(folder: Path, spelled: str) -> None:
    if sys.platform != "win32":
        (folder / "link.npy").symlink_to("in/0000.npy")
        (folder / "there").symlink_to("in")
    job = best("0000", output={"values": spelled.replace("{folder}", str(folder))})
    (found,) = faults(folder, job)
    assert found.endswith("an input at jobs[0]; allowed: a file that no job reads")


def test_no_result_is_overwritten(folder: Path) -> None:
    jobs = [best("0000"), best("1", inputs={"x": "in/0000.npy"}, output=f"{folder}/in/../out/0000.npz")]
    assert faults(folder, *jobs) == [f"output: '{folder}/in/../out/0000.npz', as at jobs[0]; allowed: another file"]


@pytest.mark.parametrize(
    ("x", "output", "fault"),
    [
        ("x.zarr", "x.zarr/y.npz", "'x.zarr/y.npz', within an input or an output; allowed: a file outside of it"),
        ("in/0000.npy", "out.zarr/y.zarr", "'out.zarr/y.zarr', within an input or an output"),
        ("old.zarr/x.npy", "old.zarr", "'old.zarr', which an input is within; allowed: a folder without inputs"),
    ],
)
def test_nothing_is_written_into_or_over_the_folders_of_others(folder: Path, x: str, output: str, fault: str) -> None:
    (folder / "x.zarr").mkdir()
    jobs = [best("0000", output="out.zarr"), best("1", inputs={"x": x}, output=output)]
    assert [found for found in faults(folder, *jobs) if found.startswith(f"output: {fault}")]


def test_an_unforeseen_error_is_a_fault_of_its_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def estimate(_self: object, arguments: dict[str, Any]) -> None:
        raise RuntimeError("not\nmore than 32")

    monkeypatch.setattr("dmlcpu.jobs.operations.OperatorOperation.estimate", estimate)
    assert faults(folder, best("0000")) == ["RuntimeError: not more than 32; allowed: what the operator's page says"]


def test_ids_are_told_apart(folder: Path) -> None:
    (found,) = faults(folder, best("0000"), best("0000", output="out/b.npz"))
    assert found == "id: '0000', as at jobs[0]; allowed: a unique id; by default it is the output"


def test_files_of_a_pattern_with_the_same_id_are_named(folder: Path) -> None:
    save_inputs(folder, 2)
    job = {"id": "one", "op": "top_k", "glob": "in/*.npy", "attrs": {"k": 1}, "output": "{stem}.npz"}
    (found,) = faults(folder, job)
    allowed = "a text with {path} or {number}, which differ"
    assert found == f"id: 'one' for 'in/0000.npy' and for 'in/0001.npy'; allowed: {allowed}"
    np.savez(folder / "in" / "several.npz", a=np.ones(4), b=np.ones(4))
    job = {
        "op": "top_k",
        "files": ["in/several.npz::a", "in/several.npz::b"],
        "attrs": {"k": 1},
        "output": "{stem}.npz",
    }
    (found,) = faults(folder, job)
    assert f"'several.npz' for 'in/several.npz::a' and for 'in/several.npz::b'; allowed: {allowed}" in found


def test_a_model_that_is_not_right(folder: Path) -> None:
    (folder / "model.json").write_text(
        json.dumps({"resources": {}, "dispatchables": {}, "commands": [{"type": "prin"}]})
    )
    found = faults(folder, {"op": "model.json", "output": "out.npz"})
    assert all(fault.startswith("op: 'model.json' at $.commands[0]") for fault in found)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_model_is_not_read_from_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "model.json")
    (fault,) = plan_jobs([{"op": "model.json", "output": "out.npz"}], directory=folder).faults
    assert fault.reason == "op: 'model.json': a pipe or a device; allowed: a file or a folder that can be read"


@pytest.mark.parametrize(("suffix", "least"), [(".npy", 0), (".npz", 13), (".safetensors", 39), (".pb", 52)])
def test_files_that_are_written_whole_take_memory(folder: Path, suffix: str, least: int) -> None:
    """The least: as many MB as the copies of results have, with some for the blocks."""
    np.save(folder / "large.npy", np.zeros((1700, 1000), np.float32))
    results = {"values": f"v{suffix}", "indices": f"i{suffix}"}
    jobs = [best("large", 1000, inputs={"x": "large.npy"}, output=results, attrs={"k": 1000, "index_dtype": "uint32"})]
    pytest.importorskip({".safetensors": "safetensors", ".pb": "onnx"}.get(suffix, "numpy"))
    for memory, fits in [(least + 7, True), (least - 2, False)]:
        if memory > 0:
            (job,) = plan_jobs(jobs, directory=folder, max_memory=f"{memory}M").jobs
            assert (not job.faults) == fits, (memory, job)


def test_large_chunks_take_memory(folder: Path) -> None:
    zarr = pytest.importorskip("zarr")
    for name, rows in [("small", 10), ("large", 9000)]:
        settings = {"shape": (9000, 1000), "chunks": (rows, 1000), "dtype": "f4", "zarr_format": 3}
        zarr.create_array(folder / f"{name}.zarr", **settings)
    jobs = [best(name, inputs={"x": f"{name}.zarr"}) for name in ("small", "large")]
    assert [bool(job.faults) for job in plan_jobs(jobs, directory=folder, max_memory="50M").jobs] == [False, True]
    assert [bool(job.faults) for job in plan_jobs(jobs, directory=folder, max_memory="80M").jobs] == [False, False]


def test_inputs_that_are_read_whole_share_the_memory(folder: Path) -> None:
    """Operators read scales and a bias whole, when jobs are checked."""
    np.save(folder / "a.npy", np.ones((2, 3), np.int8))
    np.save(folder / "b.npy", np.ones((3, 90_000), np.int8))
    np.save(folder / "scale.npy", np.ones(90_000, np.float32))
    np.save(folder / "bias.npy", np.ones((2, 90_000), np.float32))
    inputs = {"a": "a.npy", "b": "b.npy", "b_scale": "scale.npy", "bias": "bias.npy"}
    job = {"op": "matmul_integer_to_float", "inputs": inputs, "attrs": {"a_scale": 1.0}, "output": "y.npy"}
    (fault,) = plan_jobs([job], directory=folder, max_memory="1M").faults
    found = "'bias.npy': 703 KB, which are read whole; allowed: 672 KB (what is left of the maximal memory)"
    assert fault.reason == f"inputs.bias: {found}"


def test_too_little_memory(folder: Path) -> None:
    np.savez(folder / "large.npz", x=np.zeros((1000, 1000), np.float32))
    np.save(folder / "large.npy", np.zeros((1000, 1000), np.float32))
    jobs = [best(name, inputs={"x": name}, output=f"out/{name}.npz") for name in ("large.npz", "large.npy")]
    plan = plan_jobs(jobs, directory=folder, max_memory="1M")
    (fault,) = plan.faults
    assert fault.id == "large.npz"
    assert fault.reason.startswith("a job that needs 3.8")
    assert "for files that are read or written whole; allowed: 1 MB (the maximal memory" in fault.reason
    assert [job.in_blocks for job in plan.jobs] == [False, True]
