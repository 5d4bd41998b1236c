"""Dispatchables of type onnx: what runs, and what is refused before it does."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dx_models import add_command, add_resource, buffer, change_binding, remove, replace, top_k, zeros

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from dmlcpu.batch import ModelError, RunError, Timing, load_model, run_model  # noqa: E402
from dmlcpu.batch.faults import MissingExtraError  # noqa: E402
from dmlcpu.cli import main  # noqa: E402

Save = Callable[[Any], Path]
FLOAT = TensorProto.FLOAT


def save_onnx(
    path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], initializers: tuple[Any, ...] = ()
) -> None:
    """Save a model. inputs, outputs: name -> (type, shape), or a type of another kind."""

    def infos(tensors: dict[str, Any]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, *kind)
            if isinstance(kind, tuple)
            else helper.make_value_info(name, kind)
            for name, kind in tensors.items()
        ]

    graph = helper.make_graph(nodes, "model", infos(inputs), infos(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)


def gemm(folder: Path) -> dict[str, Any]:
    """Two products and their sum: all shapes are fixed."""
    nodes = [
        helper.make_node("Gemm", ["A0", "B0"], ["gemm_0"]),
        helper.make_node("Gemm", ["A1", "B1"], ["gemm_1"]),
        helper.make_node("Add", ["gemm_0", "gemm_1"], ["add"]),
    ]
    inputs = {f"{name}{i}": (FLOAT, shape) for i in (0, 1) for name, shape in (("A", [3, 2]), ("B", [2, 4]))}
    save_onnx(folder / "gemm.onnx", nodes, inputs, {"add": (FLOAT, [3, 4])})
    a, b = buffer("FLOAT32", [1, 2, 3, 4, 5, 6]), buffer("FLOAT32", [1, 2, 3, 4, 5, 6, 7, 8])
    return {
        "resources": {"A0": a, "B0": b, "A1": a, "B1": b, "Out": zeros("FLOAT32", 12)},
        "dispatchables": {"gemm": {"type": "onnx", "sourcePath": "gemm.onnx"}},
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "gemm",
                "bindings": {"A0": "A0", "B0": "B0", "A1": "A1", "B1": "B1", "add": "Out"},
            },
            {"type": "print", "resource": "Out"},
        ],
    }


def concat(folder: Path) -> dict[str, Any]:
    """Inputs of free sizes, and an output whose shape the model leaves open."""
    node = helper.make_node("Concat", ["x0", "x1"], ["y"], axis=0)
    save_onnx(
        folder / "concat.onnx",
        [node],
        {"x0": (FLOAT, ["N", 2]), "x1": (FLOAT, ["N", 2])},
        {"y": (FLOAT, [None, None])},
    )

    def dispatch(rows: int, y: Any) -> dict[str, Any]:
        x0, x1 = ({"name": name, "shape": [rows, 2]} for name in ("a", "b"))
        return {"type": "dispatch", "dispatchable": "concat", "bindings": {"x0": x0, "x1": x1, "y": y}}

    return {
        "resources": {
            "a": buffer("FLOAT32", [1, 2, 3, 4, 5, 6]),
            "b": buffer("FLOAT32", [7, 8, 9, 10, 11, 12]),
            "c": zeros("FLOAT32", 12),
            "later": buffer("FLOAT32", "deferred"),
        },
        "dispatchables": {"concat": {"type": "onnx", "sourcePath": "concat.onnx"}},
        "commands": [
            dispatch(1, {"name": "c", "shape": [2, 2]}),
            {"type": "print", "resource": "c"},
            dispatch(3, {"name": "c", "shape": [6, 2]}),
            {"type": "print", "resource": "c"},
            dispatch(3, {"name": "later"}),
            {"type": "print", "resource": "later"},
        ],
    }


@pytest.fixture
def folder(save: Save) -> Path:
    """Where models are saved, and ONNX models beside them."""
    return save({}).parent


def run(path: Path, timing: Timing | None = None) -> tuple[list[str], dict[str, np.ndarray]]:
    lines: list[str] = []
    buffers = run_model(load_model(path), timing=timing, emit=lines.append)
    return [re.sub(r"\d+\.\d{4}", "#", line) for line in lines], buffers


def faults(path: Path) -> list[str]:
    with pytest.raises(ModelError) as caught:
        load_model(path)
    return [str(fault) for fault in caught.value.faults]


SUMS = "22, 28, 34, 40, 46, 60, 74, 88, 70, 92, 114, 136"


def test_fixed_shapes(save: Save, folder: Path) -> None:
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


def test_what_is_deferred_is_kept_apart_from_what_it_came_of(save: Save, folder: Path) -> None:
    """The evaluator may give an input as a result; and a run starts anew."""
    save_onnx(
        folder / "same.onnx", [helper.make_node("Identity", ["x"], ["y"])], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}
    )
    model = {
        "resources": {"x": buffer("FLOAT32", [1, 2]), "o": zeros("FLOAT32", 2), "y": buffer("UNKNOWN", "deferred")},
        "dispatchables": {"same": {"type": "ONNX", "sourcePath": "same.onnx"}},
        "commands": [
            {"type": "dispatch", "dispatchable": "same", "bindings": {"x": "x", "y": "y"}},
            {"type": "dispatch", "dispatchable": "same", "bindings": {"x": "o", "y": "x"}},
        ],
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
        f"allowed: a file, relative to {folder} or the current directory"
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


def test_sizes_of_free_dimensions(save: Save, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
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
        "commands": [{"type": "dispatch", "dispatchable": "free", "bindings": {"x": "x", "y": "y"}}],
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
        "commands": [
            {"type": "dispatch", "dispatchable": "sum", "bindings": {}},
            {"type": "dispatch", "dispatchable": "sum", "bindings": {"x": "x", "y": "y"}},
        ],
    }
    _, buffers = run(save(model))
    assert buffers["y"].tolist() == [11, 22]
    assert caplog.messages == [
        f"$.commands[{i}].bindings.{name} is missing; zeros are taken" for i, name in ((0, "x"), (0, "z"), (1, "z"))
    ]


def test_how_long_it_took_to_prepare_is_told(save: Save, folder: Path) -> None:
    lines, _ = run(save(gemm(folder)), Timing(verbosity=1))
    assert lines[:2] == ["Initialize 'gemm': # ms", "Dispatch 'gemm': 1 iterations"]


FAULTS = [
    (
        remove("dispatchables", "gemm", "sourcePath"),
        ["$.dispatchables.gemm.sourcePath: missing; allowed: the path of a .onnx file"],
    ),
    (
        replace("dispatchables", "gemm", "freeDimensionNameOverrides", by={"N": 0}),
        ["$.dispatchables.gemm.freeDimensionNameOverrides.N: 0; allowed: a positive integer"],
    ),
    (
        change_binding("A2", "A0"),
        ["$.commands[0].bindings.A2: unknown; allowed: the tensors add, A0, B0, A1, B1"],
    ),
    (
        change_binding("A0", "A2"),
        ["$.commands[0].bindings.A0: 'A2'; allowed: a resource: A0, B0, A1, B1, Out"],
    ),
    (
        change_binding("A0", ["A0", "A1"]),
        ["$.commands[0].bindings.A0: a list of 2; allowed: one resource"],
    ),
    (
        add_resource("A0", zeros("FLOAT64", 6)),
        ["$.commands[0].bindings.A0: 'A0' of FLOAT64; allowed: FLOAT32 (the type of A0)"],
    ),
    (
        add_resource("A0", zeros("INT32", 6)),
        ["$.commands[0].bindings.A0: 'A0' of INT32; allowed: FLOAT32 (the type of A0)"],
    ),
    (
        add_resource("A0", zeros("FLOAT32", 5)),
        ["$.commands[0].bindings.A0: 'A0' of 20 bytes; allowed: at least 24 bytes, for FLOAT32 of shape [3, 2]"],
    ),
    (
        change_binding("B0", {"name": "B0", "elementOffset": 4}),
        [
            "$.commands[0].bindings.B0: 'B0' of 32 bytes, from byte 16 on; "
            "allowed: at least 32 bytes, for FLOAT32 of shape [2, 4]"
        ],
    ),
    (
        change_binding("A0", {"name": "A0", "shape": [2, 3]}),
        ["$.commands[0].bindings.A0.shape: [2, 3]; allowed: [3, 2] (A0 of 'gemm')"],
    ),
    (
        change_binding("A0", {"name": "A0", "shape": [0]}),
        ["$.commands[0].bindings.A0.shape[0]: 0; allowed: a positive integer"],
    ),
    (
        add_resource("A0", buffer("FLOAT32", "deferred")),
        ["$.commands[0].bindings.A0: 'A0', which is deferred; allowed: a resource that has values"],
    ),
    (
        add_resource("Out", buffer("FLOAT64", "deferred")),
        ["$.commands[0].bindings.add: 'Out' of FLOAT64; allowed: FLOAT32 (the type of add)"],
    ),
    (
        lambda model: (
            model["resources"].update(B0=zeros("FLOAT32", 12)),
            model["commands"][0]["bindings"].update(add="B0"),
        ),
        ["$.commands[0].bindings.add: 'B0', which overlaps B0; allowed: memory of its own"],
    ),
    (
        lambda model: (
            model["resources"].update(later=buffer("FLOAT32", "deferred")),
            model["commands"].insert(0, {"type": "print", "resource": "later"}),
            model["commands"].append({"type": "writeFile", "resource": "later", "targetPath": "y.npy"}),
        ),
        [
            f"$.commands[{i}].resource: 'later', which is deferred and has nothing yet; "
            "allowed: a resource that a dispatch before has written to"
            for i in (0, 3)
        ],
    ),
    (
        lambda model: (
            model["resources"].update(later=buffer("FLOAT32", "deferred")),
            model["dispatchables"].update(topk=top_k()["dispatchables"]["topk"]),
            add_command(
                type="dispatch",
                dispatchable="topk",
                bindings={"InputTensor": "later", "OutputValueTensor": "A0", "OutputIndexTensor": "B0"},
            )(model),
        ),
        [
            "$.commands[2].bindings.InputTensor: 'later' of 0 bytes; "
            "allowed: at least 48 bytes, for FLOAT32 of sizes {1, 1, 3, 4}"
        ],
    ),
]


@pytest.mark.parametrize(("change", "expected"), FAULTS)
def test_faults(save: Save, folder: Path, change: Callable[[dict[str, Any]], object], expected: list[str]) -> None:
    model = gemm(folder)
    change(model)
    assert faults(save(model)) == expected


def test_an_output_of_open_shape_needs_one(save: Save, folder: Path) -> None:
    model = concat(folder)
    model["commands"][0]["bindings"]["y"] = "c"
    assert faults(save(model)) == [
        "$.commands[0].bindings.y: 'c'; "
        "allowed: a binding with a shape, or a deferred resource: of y the model says [?, ?]"
    ]


def test_models_that_cannot_run(save: Save, folder: Path) -> None:
    model = gemm(folder)
    (folder / "gemm.onnx").write_bytes(b"no model")
    (fault,) = faults(save(model))
    assert fault.startswith("$.dispatchables.gemm.sourcePath: 'gemm.onnx', which cannot be run: ")
    assert fault.endswith("; allowed: a valid ONNX model of known operators")
    save_onnx(folder / "gemm.onnx", [helper.make_node("Foo", ["x"], ["y"])], {"x": (FLOAT, [1])}, {"y": (FLOAT, [1])})
    (fault,) = faults(save(model))
    assert "No Op registered for Foo" in fault


def test_what_is_no_tensor_of_directml(save: Save, folder: Path) -> None:
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    nodes = [
        helper.make_node("SequenceAt", ["s", "i"], ["y"]),
        helper.make_node("Identity", ["t"], ["u"]),
    ]
    inputs = {"s": sequence, "i": (TensorProto.INT64, []), "t": (TensorProto.STRING, [1])}
    save_onnx(folder / "s.onnx", nodes, inputs, {"y": (FLOAT, [2]), "u": (TensorProto.STRING, [1])})
    model = {
        "resources": {"a": zeros("INT64", 1)},
        "dispatchables": {"s": {"type": "onnx", "sourcePath": "s.onnx"}},
        "commands": [{"type": "dispatch", "dispatchable": "s", "bindings": {"s": "a", "i": "a"}}],
    }
    assert faults(save(model)) == [
        "$.commands[0].bindings.s: a resource; allowed: nothing: s is no tensor of a type that DirectML has",
        "$.commands[0].bindings.t: missing; allowed: the name of a resource",
    ]


def test_a_result_of_another_shape_writes_nothing(save: Save, folder: Path) -> None:
    model = concat(folder)
    model["commands"][0]["bindings"]["y"]["shape"] = [3, 2]
    model["resources"]["c"] = buffer("FLOAT32", [5] * 12)
    loaded = load_model(save(model))
    with pytest.raises(RunError) as caught:
        run_model(loaded, emit=lambda line: None)
    assert str(caught.value) == "$.commands[0]: y of 'concat' has the shape [2, 2]; it is bound with [3, 2]"


def test_a_node_that_fails(save: Save, folder: Path) -> None:
    model = gemm(folder)
    node = helper.make_node("Gather", ["A0", "i"], ["add"])
    index = helper.make_tensor("i", TensorProto.INT64, [1], [7])
    save_onnx(folder / "gemm.onnx", [node], {"A0": (FLOAT, [3, 2])}, {"add": (FLOAT, [1, 2])}, (index,))
    model["commands"][0]["bindings"] = {"A0": "A0", "add": "Out"}
    with pytest.raises(RunError, match=r"\$\.commands\[0\]: 'gemm' failed: index 7 is out of bounds"):
        run(save(model))


def test_names_with_brackets_are_no_arrays_and_deferred_resources_have_no_place(save: Save, folder: Path) -> None:
    node = helper.make_node("Add", ["x", "x[0]"], ["y"])
    sizes = {"x": (FLOAT, [2]), "x[0]": (FLOAT, [2])}
    save_onnx(folder / "add.onnx", [node], sizes, {"y": (FLOAT, [2])})
    bindings: dict[str, Any] = {"x": "a", "x[0]": "b", "y": "c"}
    model = {
        "resources": {
            "a": buffer("FLOAT32", [1, 2]),
            "b": buffer("FLOAT32", [10, 20]),
            "c": zeros("FLOAT32", 2),
            "later": buffer("FLOAT32", "deferred"),
        },
        "dispatchables": {"add": {"type": "onnx", "sourcePath": "add.onnx"}},
        "commands": [{"type": "dispatch", "dispatchable": "add", "bindings": bindings}],
    }
    assert run(save(model))[1]["c"].tolist() == [11, 22]
    bindings["y"] = {"name": "later", "shape": [2]}
    assert faults(save(model)) == ["$.commands[0].bindings.y.shape: [2]; allowed: nothing: 'later' is deferred"]


@pytest.mark.parametrize("missing", ["onnx", "dmlcpu.interop.onnx"])
def test_names_the_missing_extra(
    save: Save, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    path = save(gemm(folder))
    monkeypatch.setitem(sys.modules, missing, None)
    message = "a dispatchable of type onnx needs the package onnx: pip install 'dmlcpu[cli,onnx]'"
    with pytest.raises(MissingExtraError) as caught:
        load_model(path)
    assert str(caught.value) == message
    assert main(["run", str(path)]) == 2
    assert capsys.readouterr().err == f"dmlcpu: {message}\n"


def test_comments_and_the_schema_member_are_no_matter(save: Save, folder: Path) -> None:
    model = {"$schema": "./_schema.json", **gemm(folder)}
    path = save("// a comment\n" + json.dumps(model).replace('"commands"', '/* and */ "commands"'))
    assert main(["run", str(path)]) == 0
