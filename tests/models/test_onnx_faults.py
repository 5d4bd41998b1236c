"""Dispatchables of type onnx that are refused before anything runs, or fail and write nothing."""

from pathlib import Path
from typing import Any

import pytest
from dx_models import BOUND, Save, buffer, check_faults, dispatch, faults, run, top_k, zeros

onnx = pytest.importorskip("onnx")
from dx_onnx import FLOAT, concat, gemm, save_onnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

from dmlcpu.batch import RunError, load_model, run_model  # noqa: E402

GEMM = "$.dispatchables.gemm"
LATER = buffer("FLOAT32", "deferred")
FAULTS = [
    ({f"{GEMM}.sourcePath": ...}, "missing; allowed: the path of a .onnx file"),
    (
        {f"{GEMM}.freeDimensionNameOverrides": {"N": 0}},
        f"{GEMM}.freeDimensionNameOverrides.N: 0; allowed: a positive integer",
    ),
    ({f"{BOUND}.A2": "A0"}, "unknown; allowed: the tensors add, A0, B0, A1, B1"),
    ({f"{BOUND}.A0": "A2"}, "'A2'; allowed: a resource: A0, B0, A1, B1, Out"),
    ({f"{BOUND}.A0": ["A0", "A1"]}, "a list of 2; allowed: one resource"),
    ({"$.resources.A0": zeros("FLOAT64", 6)}, f"{BOUND}.A0: 'A0' of FLOAT64; allowed: FLOAT32 (the type of A0)"),
    ({"$.resources.A0": zeros("INT32", 6)}, f"{BOUND}.A0: 'A0' of INT32; allowed: FLOAT32 (the type of A0)"),
    (
        {"$.resources.A0": zeros("FLOAT32", 5)},
        f"{BOUND}.A0: 'A0' of 20 bytes; allowed: at least 24 bytes, for FLOAT32 of shape [3, 2]",
    ),
    (
        {f"{BOUND}.B0": {"name": "B0", "elementOffset": 4}},
        "'B0' of 32 bytes, from byte 16 on; allowed: at least 32 bytes, for FLOAT32 of shape [2, 4]",
    ),
    (
        {f"{BOUND}.A0": {"name": "A0", "shape": [2, 3]}},
        f"{BOUND}.A0.shape: [2, 3]; allowed: [3, 2] (A0 of 'gemm')",
    ),
    ({f"{BOUND}.A0": {"name": "A0", "shape": [0]}}, f"{BOUND}.A0.shape[0]: 0; allowed: a positive integer"),
    ({"$.resources.A0": LATER}, f"{BOUND}.A0: 'A0', which is deferred; allowed: a resource that has values"),
    (
        {"$.resources.Out": buffer("FLOAT64", "deferred")},
        f"{BOUND}.add: 'Out' of FLOAT64; allowed: FLOAT32 (the type of add)",
    ),
    (
        {f"{BOUND}.add": "B0", "$.resources.B0": zeros("FLOAT32", 12)},
        "'B0', which overlaps B0; allowed: its own memory",
    ),
    (
        {
            "$.resources.later": LATER,
            "$.commands[1]": {"type": "print", "resource": "later"},
            "$.commands[2]": {"type": "writeFile", "resource": "later", "targetPath": "y.npy"},
        },
        *(
            f"$.commands[{i}].resource: 'later', which is deferred and still empty; "
            "allowed: a resource that an earlier dispatch has written to"
            for i in (1, 2)
        ),
    ),
    (
        {
            "$.resources.later": LATER,
            "$.dispatchables.topk": top_k()["dispatchables"]["topk"],
            "$.commands[2]": dispatch("topk", InputTensor="later", OutputValueTensor="A0", OutputIndexTensor="B0"),
        },
        "$.commands[2].bindings.InputTensor: 'later' of 0 bytes; "
        "allowed: at least 48 bytes, for FLOAT32 of sizes {1, 1, 3, 4}",
    ),
]


@pytest.mark.parametrize("case", FAULTS)
def test_a_changed_model_has_these_faults(save: Save, folder: Path, case: tuple[Any, ...]) -> None:
    check_faults(save, gemm(folder), case)


def test_an_output_of_open_shape_needs_one(save: Save, folder: Path) -> None:
    model = concat(folder)
    model["commands"][0]["bindings"]["y"] = "c"
    assert faults(save(model)) == [
        "$.commands[0].bindings.y: 'c'; "
        "allowed: a binding with a shape, or a deferred resource: of y the model says [?, ?]"
    ]


def test_an_invalid_model_is_a_fault(save: Save, folder: Path) -> None:
    model = gemm(folder)
    (folder / "gemm.onnx").write_bytes(b"no model")
    (fault,) = faults(save(model))
    assert fault.startswith("$.dispatchables.gemm.sourcePath: 'gemm.onnx', which cannot be run: ")
    assert fault.endswith("; allowed: an ONNX model of known operators")
    save_onnx(folder / "gemm.onnx", [helper.make_node("Foo", ["x"], ["y"])], {"x": (FLOAT, [1])}, {"y": (FLOAT, [1])})
    (fault,) = faults(save(model))
    assert "Foo" in fault


def test_sequences_and_strings_cannot_be_bound(save: Save, folder: Path) -> None:
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    nodes = [helper.make_node("SequenceAt", ["s", "i"], ["y"]), helper.make_node("Identity", ["t"], ["u"])]
    inputs = {"s": sequence, "i": (TensorProto.INT64, []), "t": (TensorProto.STRING, [1])}
    save_onnx(folder / "s.onnx", nodes, inputs, {"y": (FLOAT, [2]), "u": (TensorProto.STRING, [1])})
    model = {
        "resources": {"a": zeros("INT64", 1)},
        "dispatchables": {"s": {"type": "onnx", "sourcePath": "s.onnx"}},
        "commands": [dispatch("s", s="a", i="a")],
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


def test_a_node_that_fails_names_the_dispatch(save: Save, folder: Path) -> None:
    model = gemm(folder)
    node = helper.make_node("Gather", ["A0", "i"], ["add"], "the node")
    index = helper.make_tensor("i", TensorProto.INT64, [1], [7])
    save_onnx(folder / "gemm.onnx", [node], {"A0": (FLOAT, [3, 2])}, {"add": (FLOAT, [1, 2])}, (index,))
    model["commands"][0]["bindings"] = {"A0": "A0", "add": "Out"}
    with pytest.raises(RunError, match=r"(?s)\$\.commands\[0\]: 'gemm' failed: .*\b7\b.*'the node'|'the node'.*=7\b"):
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
