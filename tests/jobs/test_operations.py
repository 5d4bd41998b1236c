"""Operators and models as jobs: results equal to the functions', whole or in blocks."""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_files import outcomes, save_jobs
from samples import as_tuple, large_calls

import dmlcpu
from dmlcpu.batch import JobsError, plan_jobs, run_jobs
from dmlcpu.errors import DmlError
from dmlcpu.jobs import operations
from dmlcpu.jobs.operations import is_path, operation_of, version_of
from dmlcpu.jobs.progress import Progress
from dmlcpu.models.operation import ModelOperation
from dmlcpu.operators import OPERATORS


@pytest.mark.parametrize(("op", "arguments"), large_calls())
def test_in_one_piece_and_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, arguments: dict[str, Any]
) -> None:
    """The results' files are the same, byte for byte, and hold the function's results; progress counts all blocks."""
    told: list[int] = []
    monkeypatch.setattr(Progress, "read", lambda self, nbytes: told.append(nbytes))
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    attrs = {name: value for name, value in arguments.items() if name not in arrays}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    operator = OPERATORS[op]
    results = dict(zip(operator.results, as_tuple(operator.function(**arguments)), strict=True))
    inputs = {name: f"{name}.npy" for name in arrays}
    for memory in ("1G", "2M"):
        output = {result: f"{memory}/{result}.npy" for result in results}
        job = {"op": op, "inputs": inputs, "attrs": attrs, "output": output}
        (plan,) = plan_jobs([job], directory=tmp_path, max_memory=memory).jobs
        assert (plan.in_blocks, plan.peak_bytes <= 2 << 20) == ((memory == "2M"),) * 2
        assert plan.outputs == {result: f"{array.shape} {array.dtype}" for result, array in results.items()}
        done = run_jobs([job], directory=tmp_path, max_memory=memory)
        assert (done.done, done.failures) == (1, [])
        assert sum(told) == (plan.read_bytes if plan.in_blocks else 0)
    assert len(told) > 2
    for result, array in results.items():
        np.testing.assert_array_equal(np.load(tmp_path / "1G" / f"{result}.npy"), array, strict=True)
        assert (tmp_path / "1G" / f"{result}.npy").read_bytes() == (tmp_path / "2M" / f"{result}.npy").read_bytes()


def test_some_of_the_results(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(3).random((300, 2000), np.float32))
    for memory in ("1G", "1M"):
        job = {"op": "top_k", "inputs": {"x": "x.npy"}, "attrs": {"k": 2}, "output": {"indices": f"{memory}/i.npy"}}
        assert run_jobs([job], directory=tmp_path, max_memory=memory).done == 1
        assert [path.name for path in (tmp_path / memory).iterdir()] == ["i.npy"]
        np.testing.assert_array_equal(
            np.load(tmp_path / memory / "i.npy"), dmlcpu.top_k(np.load(tmp_path / "x.npy"), 2)[1]
        )


def test_results_that_share_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(9.0))
    output = {"values": "both.npz", "indices": "both.npz"}
    job = {"op": "top_k", "inputs": {"x": "x.npy"}, "attrs": {"k": 2}, "output": output}
    assert run_jobs([job], directory=tmp_path).done == 1
    with np.load(tmp_path / "both.npz") as both:
        assert {name: both[name].tolist() for name in both} == {"values": [8.0, 7.0], "indices": [8, 7]}


def test_what_toml_cannot_say(tmp_path: Path) -> None:
    """Zero points that may be None need not be given; numbers may stand among the inputs."""
    (tmp_path / "jobs.toml").write_text(
        """
        [[job]]
        op = "matmul-integer"
        inputs = { a = [[1, -2]], b = [[3], [4]] }
        output = "y.npy"
        """
    )
    with pytest.raises(JobsError, match=r"attrs\.a\.dtype: int64"):
        run_jobs(tmp_path / "jobs.toml")
    np.save(tmp_path / "a.npy", np.array([[1, -2]], np.int8))
    np.save(tmp_path / "b.npy", np.array([[3], [4]], np.int8))
    text = (tmp_path / "jobs.toml").read_text().replace("[[1, -2]]", '"a.npy"').replace("[[3], [4]]", '"b.npy"')
    (tmp_path / "jobs.toml").write_text(text)
    assert run_jobs(tmp_path / "jobs.toml").done == 1
    assert np.load(tmp_path / "y.npy").tolist() == [[-5]]


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert version_of("top-k") == version_of("top_k") == f"top_k {OPERATORS['top_k'].version}"
    assert is_path("model.json")
    assert not is_path("top_k")
    before = version_of("in/model.JSON")
    assert before == version_of("model.json")
    for name, operator in OPERATORS.items():  # any of which a model may run
        changed = {**OPERATORS, name: dataclasses.replace(operator, version=operator.version + 1)}
        for module in ("jobs.operations", "models.operation"):
            monkeypatch.setattr(f"dmlcpu.{module}.OPERATORS", changed)
        assert version_of("model.json") != before


MODEL: dict[str, Any] = {
    "resources": {
        "x": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 9, 5, 7]},
        "values": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 2, "value": 0}},
        "indices": {"initialValuesDataType": "UINT32", "initialValues": {"valueCount": 2, "value": 0}},
    },
    "dispatchables": {
        "topk": {
            "type": "TOP_K1",
            "desc": {
                "InputTensor": {"DataType": "FLOAT32", "Sizes": [4]},
                "OutputValueTensor": {"DataType": "FLOAT32", "Sizes": [2]},
                "OutputIndexTensor": {"DataType": "UINT32", "Sizes": [2]},
                "Axis": 0,
                "K": 2,
                "AxisDirection": "DML_AXIS_DIRECTION_DECREASING",
            },
        }
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "topk",
            "bindings": {"InputTensor": "x", "OutputValueTensor": "values", "OutputIndexTensor": "indices"},
        },
        {"type": "print", "resource": "values"},
    ],
}


@pytest.fixture
def model(tmp_path: Path) -> dict[str, Any]:
    """A model that can be changed, its file, and a file for x."""
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    np.save(tmp_path / "x.npy", np.array([[4, 3], [2, 8]], np.float32))
    return json.loads(json.dumps(MODEL))


def model_job(**more: Any) -> dict[str, Any]:
    return {"op": "model.json", "inputs": {"x": "x.npy"}, "output": "out.npz"} | more


def loaded(path: Path) -> dict[str, list[Any]]:
    with np.load(path) as file:
        return {name: file[name].tolist() for name in sorted(file)}


@pytest.mark.usefixtures("model")
def test_a_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [model_job(), model_job(inputs={}, output="own.npz"), model_job(output={"indices": "i.npy"})]
    assert run_jobs(jobs, directory=tmp_path).done == 3
    assert loaded(tmp_path / "out.npz") == {"values": [8.0, 4.0], "indices": [3, 0]}
    assert loaded(tmp_path / "own.npz") == {"values": [9.0, 7.0], "indices": [1, 3]}
    assert np.load(tmp_path / "i.npy").tolist() == [3, 0]
    assert capfd.readouterr() == ("", "")  # what the model prints would be among the results


def test_no_data_of_a_model_are_overwritten(
    tmp_path: Path, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "data.npy", np.array([1, 9, 5, 7], np.float32))
    model["resources"]["x"]["initialValues"] = {"sourcePath": "data.npy"}
    (tmp_path / "model.json").write_text(json.dumps(model))
    jobs = [{"op": "model.json", "output": {"values": "data.npy"}}]
    monkeypatch.chdir(tmp_path.parent)
    for directory in (tmp_path, tmp_path.name):
        with pytest.raises(JobsError, match=r"an input at the op model\.json; allowed: a file that no job reads"):
            run_jobs(jobs, directory=directory)


@pytest.mark.parametrize("content_hash", [False, True])
def test_elements_that_an_onnx_model_has_in_a_file_of_their_own(tmp_path: Path, content_hash: bool) -> None:
    """They are a part of the model: a job with others is not done; and they are not overwritten."""
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    weights = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    graph = onnx.helper.make_graph([node], "model", infos[:1], infos[1:], [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.npy", size_threshold=0)
    x = {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4]}
    model = {
        "resources": {"x": x, "y": {**x, "initialValues": [0, 0, 0, 0]}},
        "dispatchables": {"m": {"type": "onnx", "sourcePath": "m.onnx"}},
        "commands": [{"type": "dispatch", "dispatchable": "m", "bindings": {"x": "x", "y": "y"}}],
    }
    (tmp_path / "model.json").write_text(json.dumps(model))
    jobs = save_jobs(tmp_path, [{"op": "model.json", "output": "y.npy"}])
    assert [run_jobs(jobs, content_hash=content_hash).done for _ in range(2)] == [1, 0]
    assert np.load(tmp_path / "y.npy").tolist() == [2, 3, 4, 5]
    (tmp_path / "w.npy").write_bytes(np.full(4, 5, np.float32).tobytes())
    assert run_jobs(jobs, content_hash=content_hash).done == 1
    assert np.load(tmp_path / "y.npy").tolist() == [6, 7, 8, 9]
    with pytest.raises(JobsError, match=r"an input at the op model\.json"):
        run_jobs([{"op": "model.json", "output": "w.npy"}], directory=tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("while_read", [False, True])
def test_a_link_to_a_model_that_leads_elsewhere_for_a_moment(
    tmp_path: Path, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch, while_read: bool
) -> None:
    """What is read is compared, not only what the path leads to before and after."""
    model["resources"]["x"]["initialValues"] = {"sourcePath": "data.npy"}
    for version, values in (("v1", [1, 9, 5, 7]), ("v2", [1, 2, 3, 4])):
        (tmp_path / version).mkdir()
        (tmp_path / version / "model.json").write_text(json.dumps(model))
        np.save(tmp_path / version / "data.npy", np.array(values, np.float32))
    (tmp_path / "link").symlink_to("v1")

    def elsewhere(*arguments: Any) -> Any:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("v2")
        found = real(*arguments)
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("v1")
        return found

    if while_read:
        real: Any = ModelOperation
        elsewhere.version = ModelOperation.version  # type: ignore[attr-defined]
        monkeypatch.setattr("dmlcpu.models.operation.ModelOperation", elsewhere)
    else:
        real = operation_of
        monkeypatch.setattr("dmlcpu.jobs.step.operation_of", elsewhere)
    result = run_jobs([{"op": "link/model.json", "output": {"values": "y.npy"}}], directory=tmp_path)
    if while_read:
        assert result.done == 1
        assert np.load(tmp_path / "y.npy").tolist() == [9, 7]
    else:
        found = [failure.error for failure in result.failures]
        assert found == ["inputs: 'link/model.json' has changed since it was checked"]
        assert not (tmp_path / "y.npy").exists()


def test_a_model_that_breaks_while_it_is_checked(tmp_path: Path, model: dict[str, Any], monkeypatch: Any) -> None:
    """Its jobs are invalid; the other jobs run."""
    (tmp_path / "model.json").write_text(json.dumps(model))
    np.save(tmp_path / "x.npy", np.arange(9.0))

    def broken(op: str, directory: Path) -> Any:
        raise DmlError("model.json", "resources", "missing", "an object")

    monkeypatch.setattr("dmlcpu.jobs.job.operation_of", broken)
    jobs = [{"op": "model.json", "output": {"values": "y.npy"}}]
    jobs.append({"op": "top_k", "inputs": {"x": "x.npy"}, "attrs": {"k": 2}, "output": "best.npz"})
    result = run_jobs(jobs, directory=tmp_path, keep_going=True)
    assert (result.done, result.failed) == (1, 1)
    assert (
        result.failures[0].error
        == "inputs: model.json: resources is missing; allowed: an object; allowed: files that can be read"
    )


def ticks_of_2_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of the file system tick each 2 s; a tick is at its beginning."""
    real = os.stat

    def stat(*arguments: Any, **options: Any) -> os.stat_result:
        status = real(*arguments, **options)
        when = {name: getattr(status, name) // (2 * 10**9) * 2 * 10**9 for name in ("st_mtime_ns", "st_ctime_ns")}
        return os.stat_result(status[:10], when)

    monkeypatch.setattr(os, "stat", stat)
    time.sleep((0.1 - time.time()) % 2)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("content_hash", [False, True])
def test_data_of_a_model_that_a_link_leads_to(tmp_path: Path, model: dict[str, Any], content_hash: bool) -> None:
    """`link/../data.npy` is next to where the link leads, not next to the link: there is another file of this name."""
    model["resources"]["x"]["initialValues"] = {"sourcePath": "../data.npy"}
    (tmp_path / "jobs").mkdir()
    (tmp_path / "else" / "v1").mkdir(parents=True)
    (tmp_path / "else" / "v1" / "model.json").write_text(json.dumps(model))
    (tmp_path / "jobs" / "link").symlink_to(tmp_path / "else" / "v1")
    np.save(tmp_path / "jobs" / "data.npy", np.zeros(4, np.float32))
    job = {"op": "link/model.json", "output": {"values": "y.npy"}}
    jobs = save_jobs(tmp_path / "jobs", [job])
    for values, best in (([1, 9, 5, 7], [9, 7]), ([1, 2, 3, 4], [4, 3])):
        np.save(tmp_path / "else" / "data.npy", np.array(values, np.float32))
        assert run_jobs(jobs, content_hash=content_hash).done == 1
        assert np.load(tmp_path / "jobs" / "y.npy").tolist() == best
    np.save(tmp_path / "jobs" / "data.npy", np.ones(4, np.float32))
    assert run_jobs(jobs, content_hash=content_hash).done_before == 1
    with pytest.raises(JobsError, match=r"an input at the op link/model\.json"):
        run_jobs([{**job, "output": {"values": "../else/data.npy"}}], directory=tmp_path / "jobs")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_model_outside_of_a_directory_that_a_link_leads_to(tmp_path: Path, model: dict[str, Any]) -> None:
    model["resources"]["x"]["initialValues"] = {"sourcePath": "data.npy"}
    (tmp_path / "model.json").write_text(json.dumps(model))
    np.save(tmp_path / "data.npy", np.array([1, 9, 5, 7], np.float32))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    job = {"op": str(tmp_path / "model.json"), "output": {"values": "y.npy"}}
    assert run_jobs([job], directory=tmp_path / "link").done == 1
    assert np.load(tmp_path / "deep" / "er" / "y.npy").tolist() == [9, 7]


@pytest.mark.parametrize("while_read", ["", "ticks of milliseconds", "ticks of 2 s"])
def test_data_of_a_model_that_change(
    tmp_path: Path, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch, while_read: str
) -> None:
    """The model is read again, in the same process; also if they change while it is read, or before the check."""
    if while_read == "ticks of 2 s":  # size, inode and times stay
        ticks_of_2_seconds(monkeypatch)
    np.save(tmp_path / "data.npy", np.array([1, 9, 5, 7], np.float32))
    model["resources"]["x"]["initialValues"] = {"sourcePath": "data.npy"}
    jobs = save_jobs(tmp_path, [{"op": "model.json", "output": {"values": "y.npy"}}])
    (tmp_path / "model.json").write_text(json.dumps(model))
    reads = []

    def read_and_change(path: Path) -> operations.Operation:
        found = ModelOperation(path)
        reads.append(path)
        if len(reads) == 1:
            np.save(tmp_path / "data.npy", np.array([1, 2, 3, 4], np.float32))
        return found

    if while_read:
        monkeypatch.setattr("dmlcpu.models.operation.ModelOperation", read_and_change)
        read_and_change.version = ModelOperation.version
    else:
        assert run_jobs(jobs).done == 1
        assert np.load(tmp_path / "y.npy").tolist() == [9, 7]
        np.save(tmp_path / "data.npy", np.array([1, 2, 3, 4], np.float32))
    assert run_jobs(jobs).done == 1
    assert np.load(tmp_path / "y.npy").tolist() == [4, 3]
    assert len(reads) == (2 if while_read else 0)
    assert run_jobs(jobs).done_before == 1


def test_files_that_a_model_writes_are_its_results(tmp_path: Path, model: dict[str, Any]) -> None:
    write = {
        "type": "writeFile",
        "resource": "values",
        "targetPath": str(tmp_path / "by_model.npy"),
        "dimensions": [2, 1],
    }
    model["commands"].append(write)
    (tmp_path / "model.json").write_text(json.dumps(model))
    assert run_jobs([model_job(output="v.npy")], directory=tmp_path).done == 1
    assert np.load(tmp_path / "v.npy").tolist() == [[8.0], [4.0]]
    assert not (tmp_path / "by_model.npy").exists()


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("job", "fault"),
    [
        ({"inputs": {"y": "x.npy"}}, "inputs.y: unknown; allowed: x, values, indices"),
        (
            {"inputs": {"x": "five.npy"}},
            "inputs.x.shape: (5,); allowed: 4 elements in all, as the resource in the model",
        ),
        ({"inputs": {"x": "wide.npy"}}, "inputs.x.dtype: float64; allowed: float32, as the resource in the model"),
        ({"inputs": {}, "attrs": {"x": 3}}, "attrs.x: 3; allowed: a file"),
        ({"output": {"value": "v.npy"}}, "output.value: unknown; allowed: values, indices"),
        ({"output": "v.npy"}, "output: 'v.npy', which holds one array; allowed: "),
        ({"output": "model.json"}, "output: 'model.json', an input at jobs[0]; allowed: a file that no job reads"),
    ],
)
def test_what_does_not_fit_a_model(tmp_path: Path, job: dict[str, Any], fault: str) -> None:
    np.save(tmp_path / "five.npy", np.zeros(5, np.float32))
    np.save(tmp_path / "wide.npy", np.zeros(4))
    with pytest.raises(JobsError) as error:
        run_jobs([model_job(**job)], directory=tmp_path)
    assert error.value.faults[0].reason.startswith(fault)


def test_a_model_that_was_changed_is_run_again(tmp_path: Path, model: dict[str, Any]) -> None:
    jobs = save_jobs(tmp_path, [model_job(id="m")])
    assert run_jobs(jobs).done == 1
    assert run_jobs(jobs).done_before == 1
    model["dispatchables"]["topk"]["desc"]["AxisDirection"] = "DML_AXIS_DIRECTION_INCREASING"
    (tmp_path / "model.json").write_text(json.dumps(model))
    assert run_jobs(jobs).done == 1
    assert loaded(tmp_path / "out.npz")["indices"] == [2, 1]
    assert outcomes(jobs) == {"m": "done"}


def test_an_operation_is_made_once() -> None:
    assert operation_of("top-k", Path()) is operation_of("top_k", Path("else"))
