"""Faults in the meaning of a model: names, operators, bindings, printing and writing."""

from typing import Any

import pytest
from dx_models import BOUND, OPERATOR_TYPES, Save, buffer, check_faults, matmul, scatter, tensor, top_k, zeros

from dmlcpu.batch import ModelError, load_model

ALL, TENSORS = "a resource: x, values, indices", "the tensors InputTensor, OutputValueTensor, OutputIndexTensor"
TOPK, OWN = "$.dispatchables.topk", "its own memory"
INPUT, OUTPUT, INDICES = f"{BOUND}.InputTensor", f"{BOUND}.OutputTensor", f"{BOUND}.OutputIndexTensor"
MATMUL = "$.dispatchables.matmul.bindings"


def owning() -> dict[str, Any]:
    return matmul(owned=True)


def write(resource: str, path: str, **more: Any) -> dict[str, Any]:
    return {"type": "writeFile", "resource": resource, "targetPath": path, **more}


def in_one_buffer(count: int, offset: int) -> dict[str, Any]:
    both = {"name": "both", "elementOffset": offset}
    return {OUTPUT: both, INPUT: "both", "$.resources.both": zeros("FLOAT32", count)}


TOP_K_FAULTS = [
    # Names.
    ({"$.commands[0].dispatchable": "topp"}, "'topp'; allowed: a dispatchable: topk"),
    ({"$.commands[1].resource": "value"}, f"'value'; allowed: {ALL}"),
    ({INPUT: "X"}, f"'X'; allowed: {ALL}"),
    ({"$.commands[3]": write("y", "y.bin")}, f"$.commands[3].resource: 'y'; allowed: {ALL}"),
    # Operators.
    *(
        (
            {"$.dispatchables.shade": {"type": name, "sourcePath": "a.hlsl"}},
            f"$.dispatchables.shade.type: {name!r}; allowed: {OPERATOR_TYPES}, onnx",
        )
        for name in ("hlsl", "dmlSerializedGraph", "DML_OPERATOR_GEMM", "top_k1", "DML_OPERATOR_DML_OPERATOR_TOP_K")
    ),
    ({f"{TOPK}.desc": ...}, "missing; allowed: an object of the operator's fields"),
    ({f"{TOPK}.Desc": {}}, "another desc; allowed: desc or Desc, not both"),
    ({TOPK: {"type": "TOP_K", "Desc": 5}}, f"{TOPK}.Desc: 5; allowed: an object of the operator's fields"),
    ({f"{TOPK}.desc.K": 5}, "5; allowed: 1 to 4 (InputTensor.Sizes[3])"),
    (
        {f"{TOPK}.desc": {"Axis": 3, "AxisDirection": "DECREASING"}},
        f"{TOPK}.desc.InputTensor: missing, and so are OutputValueTensor, OutputIndexTensor, K; "
        "allowed: a value: it has no default",
    ),
    ({f"{TOPK}.desc.AxisDirection": "SIDEWAYS"}, "'SIDEWAYS'; allowed: INCREASING, DECREASING"),
    ({f"{TOPK}.desc.InputTensor.Sizes[2]": 0}, "0; allowed: an integer from 1 to 4294967295"),
    (
        {f"{TOPK}.desc.InputTensor": {"Type": "BUFFER", "Desc": tensor("FLOAT31", 1, 1, 3, 4)}},
        f"{TOPK}.desc.InputTensor.Desc.DataType: 'FLOAT31'; "
        "allowed: FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64, UINT4, INT4",
    ),
    (
        {f"{TOPK}.desc.OutputIndexTensor.DataType": "INT32"},
        "INT32; allowed: UINT64, UINT32 at DML_FEATURE_LEVEL_6_4 (INT32 at no feature level)",
    ),
    # Bindings.
    ({INDICES: ...}, "missing; allowed: the name of a resource"),
    ({f"{BOUND}.Axis": "x"}, f"unknown; allowed: {TENSORS}"),
    (
        {f"{TOPK}.bindings": {"InputTensor": "x"}},
        f"{TOPK}.bindings.InputTensor: 'x'; "
        "allowed: nothing: a tensor that is not flagged OWNED_BY_DML is bound by each dispatch",
    ),
    (
        {"$.resources.x": zeros("UINT8", 41)},
        f"{INPUT}: 'x' of 44 bytes; allowed: at least 48 bytes, for FLOAT32 of sizes {{1, 1, 3, 4}}",
    ),
    (
        {INPUT: {"name": "x", "elementOffset": 4}},
        "'x' of 48 bytes, from byte 16 on; allowed: at least 48 bytes, for FLOAT32 of sizes {1, 1, 3, 4}",
    ),
    ({INPUT: {"name": "x", "elementOffset": 3}}, "an offset of 12 bytes; allowed: a multiple of 16 bytes"),
    ({f"{BOUND}.OutputValueTensor": "x"}, f"'x', which overlaps InputTensor; allowed: {OWN}"),
    ({INDICES: "values"}, f"'values', which overlaps OutputValueTensor; allowed: {OWN}"),
    # Printing and writing.
    (
        {"$.commands[3]": write("x", "x.png")},
        "$.commands[3].targetPath: 'x.png'; allowed: a .npy, .dat or .bin file",
    ),
    (
        {"$.commands[3]": write("x", "x.npy", dimensions=[3, 5])},
        "$.commands[3].dimensions: [3, 5], 15 elements; allowed: 12 elements, as many as 'x' has",
    ),
    (
        {
            "$.resources.big": zeros("INT16", 3, sizeInBytes=64),
            "$.commands[3]": write("big", "x.npy", dimensions=[4]),
        },
        "$.commands[3].dimensions: [4], 4 elements; allowed: 3 or 32 elements, as many as 'big' has",
    ),
    (
        {
            "$.resources.mixed": buffer("UNKNOWN", [{"type": "INT8", "value": 1}]),
            "$.commands[3]": {"type": "print", "resource": "mixed"},
            "$.commands[4]": write("mixed", "x.npy"),
            "$.commands[5]": write("mixed", "x.bin"),
        },
        *(
            f"$.commands[{i}].resource: 'mixed' of type UNKNOWN; allowed: a resource whose initial values have one type"
            for i in (3, 4)
        ),
    ),
]

APART = f"allowed: {OWN}, or exactly InputTensor's, with the same strides"
STRIDES = "$.dispatchables.scatter.desc.InputTensor.Strides"
SCATTER_FAULTS = [
    ({OUTPUT: "x"},),
    (
        {OUTPUT: "updates"},
        "'updates' of 16 bytes; allowed: at least 32 bytes, for FLOAT32 of sizes {1, 8}",
        f"'updates', which overlaps UpdatesTensor; allowed: {OWN}",
    ),
    (in_one_buffer(12, offset=4), f"'both', which overlaps InputTensor; {APART}"),
    (in_one_buffer(16, offset=8),),
    (
        {OUTPUT: "x", STRIDES: [16, 2], "$.resources.x": zeros("FLOAT32", 16)},
        f"'x', which overlaps InputTensor; {APART}",
    ),
    ({OUTPUT: "x", STRIDES: [8, 1]},),
]

OWNED_FAULTS = [
    ({MATMUL: ...}, f"{MATMUL}.BTensor: missing; allowed: the name of a resource"),
    (
        {f"{BOUND}.BTensor": "b"},
        "'b'; allowed: nothing: a tensor flagged OWNED_BY_DML is bound in the dispatchable's bindings",
    ),
    ({f"{MATMUL}.BTensor": "c"}, "'c'; allowed: a resource: a, b, one, y"),
    ({f"{MATMUL}.BTensor": "y"}, "'y' of 4 bytes; allowed: at least 8 bytes, for INT8 of sizes {1, 1, 3, 2}"),
    (
        {f"{BOUND}.AZeroPointTensor": "a"},
        "unknown; allowed: the tensors ATensor, AScaleTensor, BScaleTensor, OutputScaleTensor, OutputTensor",
    ),
]

CASES = [
    *((top_k, case) for case in TOP_K_FAULTS),
    *((scatter, case) for case in SCATTER_FAULTS),
    *((owning, case) for case in OWNED_FAULTS),
]


@pytest.mark.parametrize(("make", "case"), CASES)
def test_a_changed_model_has_these_faults_or_loads(save: Save, make: Any, case: tuple[Any, ...]) -> None:
    check_faults(save, make(), case)


def test_an_owned_tensor_may_be_written_over_later(save: Save) -> None:
    model = scatter()
    model["dispatchables"]["scatter"]["desc"]["InputTensor"]["Flags"] = "OWNED_BY_DML"
    model["dispatchables"]["scatter"]["bindings"] = {"InputTensor": "x"}
    del model["commands"][0]["bindings"]["InputTensor"]
    model["commands"][0]["bindings"]["OutputTensor"] = "x"  # the operator has a copy
    load_model(save(model))


def test_each_field_of_a_desc_has_its_own_fault(save: Save) -> None:
    model = top_k()
    desc = model["dispatchables"]["topk"]["desc"]
    desc |= {"K": "five", "Axes": 3}
    desc["InputTensor"]["Sizes"] = [1, "a"]
    desc["OutputIndexTensor"]["DataType"] = "UINT"
    with pytest.raises(ModelError) as caught:
        load_model(save(model))
    place = f"{TOPK}.desc."
    assert [fault.path.removeprefix(place) for fault in caught.value.faults] == [
        "InputTensor.Sizes[1]",
        "OutputIndexTensor.DataType",
        "K",
        "Axes",
    ]
