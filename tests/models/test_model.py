import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dx_models import BOUND, OPERATOR_TYPES, Save, buffer, check_faults, faults, matmul, scatter, top_k

from dmlcpu.batch import ModelError, load_model
from dmlcpu.common.imports import MissingExtraError

B, COUNT, NAME = "$.resources.b", "an integer from 1 to 4294967295", "the name of a resource"
TOPK, INPUT = "$.dispatchables.topk", f"{BOUND}.InputTensor"
VALUES = "a list, an object that describes the values, or 'deferred'"


@pytest.mark.parametrize("make", [top_k, scatter, matmul, lambda: matmul(owned=True)])
def test_good_models_load(save: Save, make: Callable[[], dict[str, Any]]) -> None:
    made = make()
    model = load_model(str(save(made)))
    assert list(model.buffers) == list(made["resources"])
    assert list(model.dispatchables) == list(made["dispatchables"])
    assert len(model.commands) == len(made["commands"])


def test_an_empty_model_loads(save: Save) -> None:
    model = load_model(save({"resources": {}, "dispatchables": {}, "commands": []}))
    assert (model.buffers, model.dispatchables, model.commands) == ({}, {}, [])


def test_suffixes_and_full_names_load_the_same_desc(save: Save, caplog: pytest.LogCaptureFixture) -> None:
    """Wrapped tensors, too, and members that only DxDispatch uses."""
    model = top_k()
    entry = model["dispatchables"]["topk"]
    entry["type"] = "TOP_K1"
    entry["dmlCompileType"] = "DmlCompileGraph"
    entry["executionFlags"] = ["NONE"]
    entry["desc"]["AxisDirection"] = "DECREASING"
    entry["desc"]["InputTensor"] = {
        "Type": "DML_TENSOR_TYPE_BUFFER",
        "Desc": {
            "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
            "Flags": "DML_TENSOR_FLAG_NONE",
            "DimensionCount": 4,
            "Sizes": [1, 1, 3, 4],
            "Strides": None,
            "TotalTensorSizeInBytes": 48,
            "GuaranteedBaseOffsetAlignment": 0,
        },
    }
    plain = load_model(save(top_k())).dispatchables["topk"].desc
    assert load_model(save(model)).dispatchables["topk"].desc == plain
    entry["Desc"] = entry.pop("desc")
    assert load_model(save(model)).dispatchables["topk"].desc == plain
    assert caplog.messages == []


def test_a_byte_order_mark_is_skipped(save: Save) -> None:
    path = save(top_k())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    load_model(path)


def values(**members: Any) -> dict[str, Any]:
    return buffer("INT8", members)


SHAPE_FAULTS = [
    ({"$.commands": ...}, "missing; allowed: a list of commands"),
    (
        {"$.resources": ..., "$.dispatchables": ...},
        "missing; allowed: an object of buffers by name",
        "$.dispatchables: missing; allowed: an object of operators by name",
    ),
    ({"$.resources": []}, "a list of 0; allowed: an object of buffers by name"),
    ({"$.commands": {}}, "an object; allowed: a list of commands"),
    ({B: [1]}, "a list of 1; allowed: a buffer: an object with initialValuesDataType and initialValues"),
    ({B: {"initialValuesDataType": "INT8"}}, f"{B}.initialValues: missing; allowed: {VALUES}"),
    ({B: buffer("INT8", "later")}, f"{B}.initialValues: 'later'; allowed: {VALUES}"),
    (
        {B: buffer(8, [1], sizeInBytes=0, type="texture")},
        f"{B}.initialValuesDataType: 8; allowed: the name of a data type",
        f"{B}.sizeInBytes: 0; allowed: an integer from 1 to 34359738368",
        f"{B}.type: 'texture'; allowed: 'buffer'",
    ),
    ({B: values(valueCount=0, value=1)}, f"{B}.initialValues.valueCount: 0; allowed: {COUNT}"),
    (
        {B: values(valueCount=1.5, valueStart=1)},
        f"{B}.initialValues.valueCount: 1.5; allowed: {COUNT}",
        f"{B}.initialValues.valueDelta: missing; allowed: the difference between two values",
    ),
    (
        {B: values()},
        f"{B}.initialValues.valueCount: missing; allowed: {COUNT}",
        f"{B}.initialValues.value: missing; allowed: the value of every element",
    ),
    ({B: values(sourcePath="a.npy", value=1)}, f"{B}.initialValues: an object; allowed: sourcePath alone"),
    (
        {B: values(sourcePath=5)},
        f"{B}.initialValues.sourcePath: 5; allowed: the path of a .npy, .dat or .bin file",
    ),
    ({TOPK: {"desc": {}}}, f"{TOPK}.type: missing; allowed: the name of an operator"),
    ({f"{TOPK}.desc": None}, "null; allowed: an object of the operator's fields"),
    ({"$.commands[1].type": "sing"}, "'sing'; allowed: 'dispatch', 'print' or 'writeFile'"),
    ({"$.commands[1].type": ...}, "missing; allowed: 'dispatch', 'print' or 'writeFile'"),
    ({"$.commands[1].resource": ...}, f"missing; allowed: {NAME}"),
    ({"$.commands[1].verbose": "yes"}, "'yes'; allowed: true or false"),
    ({BOUND: ...}, "missing; allowed: an object of resources by tensor"),
    ({INPUT: None}, f"null; allowed: {NAME}"),
    ({INPUT: ["x", "x"]}, "a list of 2; allowed: one resource"),
    (
        {INPUT: {"elementOffset": -1}},
        f"{INPUT}.elementOffset: -1; allowed: an integer of at least 0",
        f"{INPUT}.name: missing; allowed: {NAME}",
    ),
    (
        {"$.commands[3]": {"type": "writeFile", "resource": "x", "targetPath": "x.npy", "dimensions": [3, 0]}},
        "$.commands[3].dimensions[1]: 0; allowed: a positive integer",
    ),
]


@pytest.mark.parametrize("case", SHAPE_FAULTS)
def test_a_changed_model_has_these_faults(save: Save, case: tuple[Any, ...]) -> None:
    check_faults(save, top_k(), case)


def test_a_root_that_is_no_object_is_a_fault(save: Save) -> None:
    expected = "an object with resources, dispatchables and commands"
    assert faults(save("[]")) == [f"$: a list of 0; allowed: {expected}"]
    assert faults(save("null")) == [f"$: null; allowed: {expected}"]


def test_text_that_is_not_utf_8_is_a_fault(save: Save) -> None:
    path = save("")
    path.write_bytes(b'{"\xff')
    assert faults(path) == ["$: not UTF-8 at byte 2; allowed: UTF-8 text"]


def test_all_faults_at_once_in_the_order_of_the_file(save: Save) -> None:
    model = top_k()
    model["resources"]["x"]["initialValues"][1] = "one"
    model["resources"]["x"]["initialValues"][10] = None
    model["resources"]["extra"] = buffer("INT9", [1])
    model["dispatchables"]["shade"] = {"type": "hlsl"}
    model["dispatchables"]["scatter"] = {"type": "SCATTER_ND", "desc": {}}
    model["commands"].insert(
        0, {"type": "dispatch", "dispatchable": "shade", "bindings": {"in": "nowhere", "out": "x"}}
    )
    model["commands"][1]["bindings"] = {"OutputValueTensor": "indices", "InputTensor": "x", "Output": "values"}
    model["commands"][2]["resource"] = "nothing"
    path = save(model)
    assert faults(path) == [
        '$.resources.x.initialValues[1]: \'one\'; allowed: numbers in the range of FLOAT32, "nan", "inf" or "-inf"',
        '$.resources.x.initialValues[10]: null; allowed: numbers in the range of FLOAT32, "nan", "inf" or "-inf"',
        "$.resources.extra.initialValuesDataType: 'INT9'; allowed: FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, "
        "INT16, INT8, FLOAT64, UINT64, INT64, UNKNOWN",
        f"$.dispatchables.shade.type: 'hlsl'; allowed: {OPERATOR_TYPES}, onnx",
        "$.dispatchables.scatter.desc.InputTensor: missing, and so are IndicesTensor, UpdatesTensor, OutputTensor, "
        "InputDimensionCount, IndicesDimensionCount; allowed: a value: it has no default",
        "$.commands[0].bindings.in: 'nowhere'; allowed: a resource: x, values, indices, extra",
        "$.commands[1].bindings.Output: unknown; "
        "allowed: the tensors InputTensor, OutputValueTensor, OutputIndexTensor",
        "$.commands[1].bindings.OutputIndexTensor: missing; allowed: the name of a resource",
        "$.commands[2].resource: 'nothing'; allowed: a resource: x, values, indices, extra",
    ]
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}: 9 errors\n  $.resources.x.initialValues[1]: 'one'; allowed: ")


def test_faults_of_shape_and_of_meaning_at_once(save: Save) -> None:
    model = top_k()
    model["resources"]["indices"] = {"initialValuesDataType": "UINT32"}
    model["dispatchables"]["bad"] = []
    model["commands"][0]["bindings"]["InputTensor"] = "y"
    model["commands"][1]["verbose"] = 1
    model["commands"] += [{"type": "dispatch", "dispatchable": "bad", "bindings": {"a": "b"}}, 5]
    assert faults(save(model)) == [
        "$.resources.indices.initialValues: missing; allowed: a list, an object that describes the values, "
        "or 'deferred'",
        "$.dispatchables.bad: a list of 0; allowed: an operator: an object with type and desc",
        "$.commands[0].bindings.InputTensor: 'y'; allowed: a resource: x, values, indices",
        "$.commands[1].verbose: 1; allowed: true or false",
        "$.commands[3].bindings.a: 'b'; allowed: a resource: x, values, indices",
        "$.commands[4]: 5; allowed: a command: an object with a type",
    ]


def test_repeated_names_beside_other_faults(save: Save) -> None:
    text = """{
        "resources": {"a": {"initialValuesDataType": "INT8", "initialValues": "x", "initialValues": [1]}},
        "dispatchables": {},
        "commands": [{"type": "print", "resource": "b"}, {"resource": "a", "resource": "a"}],
    }"""
    assert faults(save(text)) == [
        "$.resources.a.initialValues: the name more than once; allowed: each name once in an object",
        "$.commands[0].resource: 'b'; allowed: a resource: a",
        "$.commands[1].resource: the name more than once; allowed: each name once in an object",
        "$.commands[1].type: missing; allowed: 'dispatch', 'print' or 'writeFile'",
    ]
    repeated = '{"commands": [], "commands": []}'
    assert faults(save(repeated))[0] == ("$.commands: the name more than once; allowed: each name once in an object")


def test_unknown_members_are_ignored_with_a_warning(save: Save, caplog: pytest.LogCaptureFixture) -> None:
    model = top_k()
    model["$schema"] = "model_schema.json"
    model["comment"] = "x"
    model["resources"]["x"]["sizeInByte"] = 4
    model["commands"][1]["verbos"] = True
    with caplog.at_level(logging.WARNING, logger="dmlcpu"):
        load_model(save(model))
    assert [record.getMessage().split("; ")[0] for record in caplog.records] == [
        "$.comment is unknown and ignored",
        "$.resources.x.sizeInByte is unknown and ignored",
        "$.commands[1].verbos is unknown and ignored",
    ]
    assert caplog.records[2].getMessage().endswith("; known: type, resource, verbose")


def test_a_missing_model_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "model.json")


def test_a_missing_extra_is_named(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(
        MissingExtraError, match=r"needs the package jsonschema: pip install '\.\[cli\]' in a clone of dmlcpu"
    ):
        load_model(save(top_k()))
