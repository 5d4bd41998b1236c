"""Dispatchables of type onnx that run."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dx_models import Save, buffer, dispatch, faults, run, top_k, zeros

onnx = pytest.importorskip("onnx")
from dx_onnx import FLOAT, SUMS, concat, gemm, save_onnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

from dmlcpu.batch import Timing, load_model, run_model  # noqa: E402
from dmlcpu.cli import main  # noqa: E402
from dmlcpu.common.imports import MissingExtraError  # noqa: E402


def test_a_model_of_fixed_shapes_runs_as_often_as_asked(save: Save, folder: Path) -> None:
    lines, buffers = run(save(gemm(folder)), Timing(iterations=3))
    assert lines == ["Dispatch 'gemm': 3 iterations, # ms median (CPU)", f"Resource 'Out': {SUMS}"]
    assert buffers["Out"].dtype == np.float32


def test_shapes_of_bindings_and_deferred_resources(save: Save, folder: Path) -> None:
    model = concat(folder)
    model["commands"] += [
        {"type": "writeFile", "resource": "later", "targetPath": "y.npy"},
        {"type": "writeFile", "resource": "later", "targetPath": "z.npy", "dimensions": [3, 4]},
        {"type": "writeFile", "resource": "later", "targetPath": "y.bin"},
    ]
    lines, buffers = run(save(model))
    assert lines[1::2][:2] == [
        "Resource 'c': 1, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0",
        "Resource 'c': 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
    ]
    assert lines[5] == "Resource 'later': 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"
    right = np.arange(1, 13, dtype=np.float32)
    np.testing.assert_array_equal(buffers["later"], right, strict=True)
    np.testing.assert_array_equal(np.load("y.npy"), right.reshape(6, 2), strict=True)
    np.testing.assert_array_equal(np.load("z.npy"), right.reshape(3, 4), strict=True)
    assert Path("y.bin").read_bytes() == right.tobytes()


def test_a_deferred_resource_does_not_share_memory_with_the_input_it_came_from(save: Save, folder: Path) -> None:
    """The evaluator may give an input as a result; and a run starts anew."""
    save_onnx(
        folder / "same.onnx", [helper.make_node("Identity", ["x"], ["y"])], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}
    )
    model = {
        "resources": {"x": buffer("FLOAT32", [1, 2]), "o": zeros("FLOAT32", 2), "y": buffer("UNKNOWN", "deferred")},
        "dispatchables": {"same": {"type": "ONNX", "sourcePath": "same.onnx"}},
        "commands": [dispatch("same", x="x", y="y"), dispatch("same", x="o", y="x")],
    }
    loaded = load_model(save(model))
    for _ in range(2):
        buffers = run_model(loaded, emit=lambda line: None)
        assert (buffers["y"].tolist(), buffers["x"].tolist()) == ([1, 2], [0, 0])
    del model["commands"][0]
    assert run_model(load_model(save(model)), emit=lambda line: None)["y"].size == 0


def test_files_are_found_beside_the_model_then_in_the_current_directory(save: Save, folder: Path) -> None:
    model = gemm(folder)
    (folder / "gemm.onnx").rename("gemm.onnx")
    assert run(save(model))[0][1] == f"Resource 'Out': {SUMS}"
    Path("gemm.onnx").unlink()
    assert faults(save(model)) == [
        f"$.dispatchables.gemm.sourcePath: 'gemm.onnx', no such file; "
        f"allowed: a file, relative to the model's folder {folder} or the current directory"
    ]


def test_an_operator_and_an_onnx_model_share_resources(save: Save, folder: Path) -> None:
    node = helper.make_node("Cast", ["i"], ["j"], to=TensorProto.BOOL)
    save_onnx(folder / "cast.onnx", [node], {"i": (TensorProto.UINT32, [3, 2])}, {"j": (TensorProto.BOOL, [3, 2])})
    model = top_k()
    model["resources"] |= {"j": zeros("INT8", 6), "later": buffer("UINT8", "deferred")}
    model["dispatchables"]["cast"] = {"type": "onnx", "sourcePath": "cast.onnx"}
    model["commands"] += [
        {"type": "dispatch", "dispatchable": "cast", "bindings": {"i": "indices", "j": to}} for to in ("j", "later")
    ]
    model["commands"].append({"type": "print", "resource": "later", "verbose": True})
    lines, buffers = run(save(model))
    assert buffers["indices"].tolist() == [3, 2, 2, 3, 3, 2]
    assert buffers["j"].tolist() == [1] * 6
    assert lines[-1].endswith("[5] 1 (0x01)")


def test_overrides_set_free_dimensions_by_name_and_denotation(
    save: Save, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    save_onnx(folder / "free.onnx", [node], {"x": (FLOAT, ["N", "C"])}, {"y": (FLOAT, ["N", 4])})
    proto = onnx.load(folder / "free.onnx")
    proto.graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    onnx.save(proto, folder / "free.onnx")
    model: dict[str, Any] = {
        "resources": {"x": buffer("FLOAT32", [1, 2, 3, 4]), "y": zeros("FLOAT32", 8)},
        "dispatchables": {
            "free": {
                "type": "onnx",
                "sourcePath": "free.onnx",
                "freeDimensionNameOverrides": {"N": 2, "M": 3},
                "freeDimensionDenotationOverrides": {"DATA_CHANNEL": 2},
                "sessionOptionsConfigEntries": {"a": "b"},
                "graphOptimizationLevel": 0,
                "loggingLevel": 2,
                "desc": {},
            }
        },
        "commands": [dispatch("free", x="x", y="y")],
    }
    _, buffers = run(save(model))
    assert buffers["y"].tolist() == [1, 2, 1, 2, 3, 4, 3, 4]
    assert caplog.messages == [
        "$.dispatchables.free.desc is unknown and ignored; known: type, sourcePath, freeDimensionNameOverrides, "
        "freeDimensionDenotationOverrides, sessionOptionsConfigEntries, graphOptimizationLevel, loggingLevel",
        "$.dispatchables.free.freeDimensionNameOverrides.M is unknown and ignored: no input or output has it",
    ]


def test_inputs_that_are_not_bound_are_zeros_or_their_defaults(
    save: Save, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = helper.make_node("Sum", ["x", "d", "z"], ["y"])
    inputs = {"x": (FLOAT, ["n", 2]), "d": (FLOAT, [2]), "z": (FLOAT, ["n", 2])}
    default = helper.make_tensor("d", FLOAT, [2], [10, 20])
    save_onnx(folder / "sum.onnx", [node], inputs, {"y": (FLOAT, ["n", 2])}, (default,))
    model = {
        "resources": {"x": buffer("FLOAT32", [1, 2]), "y": buffer("FLOAT32", "deferred")},
        "dispatchables": {"sum": {"type": "onnx", "sourcePath": "sum.onnx"}},
        "commands": [dispatch("sum"), dispatch("sum", x="x", y="y")],
    }
    _, buffers = run(save(model))
    assert buffers["y"].tolist() == [11, 22]
    assert caplog.messages == [
        f"$.commands[{i}].bindings.{name} is missing; zeros are used" for i, name in ((0, "x"), (0, "z"), (1, "z"))
    ]


def test_the_time_of_preparation_is_printed_at_verbosity_1(save: Save, folder: Path) -> None:
    lines, _ = run(save(gemm(folder)), Timing(verbosity=1))
    assert lines[:2] == ["Initialize 'gemm': # ms", "Dispatch 'gemm': 1 iterations"]


@pytest.mark.parametrize("missing", ["onnx", "dmlcpu.interop.onnx"])
def test_a_missing_extra_is_named(
    save: Save, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    path = save(gemm(folder))
    monkeypatch.setitem(sys.modules, missing, None)
    message = "a dispatchable of type onnx needs the package onnx: pip install '.[cli,onnx]' in a clone of dmlcpu"
    with pytest.raises(MissingExtraError) as caught:
        load_model(path)
    assert str(caught.value) == message
    assert main(["run", str(path)]) == 2
    assert capsys.readouterr().err == f"dmlcpu: {message}\n"


def test_comments_and_the_schema_member_are_ignored(save: Save, folder: Path) -> None:
    model = {"$schema": "./_schema.json", **gemm(folder)}
    path = save("// a comment\n" + json.dumps(model).replace('"commands"', '/* and */ "commands"'))
    assert main(["run", str(path)]) == 0
