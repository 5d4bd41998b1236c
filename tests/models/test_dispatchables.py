"""Faults in the meaning of a model: names, operators, bindings, printing and writing."""

from typing import Any

import pytest
from dx_models import (
    BOUND,
    OPERATOR_TYPES,
    Change,
    Save,
    add_command,
    add_resource,
    all_of,
    buffer,
    change_binding,
    change_command,
    change_desc,
    faults,
    matmul,
    remove,
    replace,
    scatter,
    tensor,
    top_k,
    zeros,
)

from dmlcpu.batch import load_model

ALL, TENSORS = "a resource: x, values, indices", "the tensors InputTensor, OutputValueTensor, OutputIndexTensor"
TOPK, OWN = "$.dispatchables.topk", "memory of its own"
MATMUL = "$.dispatchables.matmul.bindings.BTensor"


def owning() -> dict[str, Any]:
    return matmul(owned=True)


def in_one_buffer(count: int, offset: int) -> Change:
    return all_of(
        add_resource("both", zeros("FLOAT32", count)),
        change_binding("InputTensor", "both"),
        change_binding("OutputTensor", {"name": "both", "elementOffset": offset}),
    )


def change_input(**members: Any) -> Change:
    return lambda model: model["dispatchables"]["scatter"]["desc"]["InputTensor"].update(members)


TOP_K_FAULTS = [
    # Names.
    (change_command(0, dispatchable="topp"), "$.commands[0].dispatchable: 'topp'; allowed: a dispatchable: topk"),
    (change_command(1, resource="value"), f"$.commands[1].resource: 'value'; allowed: {ALL}"),
    (change_binding("InputTensor", "X"), f"{BOUND}.InputTensor: 'X'; allowed: {ALL}"),
    (add_command(type="writeFile", resource="y", targetPath="y.bin"), f"$.commands[3].resource: 'y'; allowed: {ALL}"),
    # Operators.
    *(
        (
            replace("dispatchables", "shade", by={"type": name, "sourcePath": "a.hlsl"}),
            f"$.dispatchables.shade.type: {name!r}; allowed: {OPERATOR_TYPES}, onnx",
        )
        for name in ("hlsl", "dmlSerializedGraph", "DML_OPERATOR_GEMM", "top_k1", "DML_OPERATOR_DML_OPERATOR_TOP_K")
    ),
    (remove("dispatchables", "topk", "desc"), f"{TOPK}.desc: missing; allowed: an object of the operator's fields"),
    (replace("dispatchables", "topk", "Desc", by={}), f"{TOPK}.Desc: another desc; allowed: desc or Desc, not both"),
    (
        replace("dispatchables", "topk", by={"type": "TOP_K", "Desc": 5}),
        f"{TOPK}.Desc: 5; allowed: an object of the operator's fields",
    ),
    (change_desc(K=5), f"{TOPK}.desc.K: 5; allowed: 1 to 4 (InputTensor.Sizes[3])"),
    (change_desc(AxisDirection="SIDEWAYS"), f"{TOPK}.desc.AxisDirection: 'SIDEWAYS'; allowed: INCREASING, DECREASING"),
    (
        change_desc(InputTensor=tensor("FLOAT32", 1, 1, 0, 4)),
        f"{TOPK}.desc.InputTensor.Sizes[2]: 0; allowed: 1 to 4294967295",
    ),
    (
        change_desc(InputTensor={"Type": "BUFFER", "Desc": tensor("FLOAT31", 1, 1, 3, 4)}),
        f"{TOPK}.desc.InputTensor.Desc.DataType: 'FLOAT31'; "
        "allowed: UNKNOWN, FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64, "
        "UINT4, INT4",
    ),
    (
        change_desc(OutputIndexTensor=tensor("INT32", 1, 1, 3, 2)),
        f"{TOPK}.desc.OutputIndexTensor.DataType: INT32; "
        "allowed: UINT64, UINT32 at DML_FEATURE_LEVEL_6_4 (INT32 at no feature level)",
    ),
    # Bindings.
    (
        remove("commands", 0, "bindings", "OutputIndexTensor"),
        f"{BOUND}.OutputIndexTensor: missing; allowed: the name of a resource",
    ),
    (change_binding("Axis", "x"), f"{BOUND}.Axis: unknown; allowed: {TENSORS}"),
    (
        replace("dispatchables", "topk", "bindings", by={"InputTensor": "x"}),
        f"{TOPK}.bindings.InputTensor: 'x'; "
        "allowed: nothing: a tensor that is not flagged OWNED_BY_DML is bound by each dispatch",
    ),
    (
        add_resource("x", zeros("UINT8", 41)),
        f"{BOUND}.InputTensor: 'x' of 44 bytes; allowed: at least 48 bytes, for FLOAT32 of sizes {{1, 1, 3, 4}}",
    ),
    (
        change_binding("InputTensor", {"name": "x", "elementOffset": 4}),
        f"{BOUND}.InputTensor: 'x' of 48 bytes, from byte 16 on; "
        f"allowed: at least 48 bytes, for FLOAT32 of sizes {{1, 1, 3, 4}}",
    ),
    (
        change_binding("InputTensor", {"name": "x", "elementOffset": 3}),
        f"{BOUND}.InputTensor: an offset of 12 bytes; allowed: a multiple of 16 bytes",
    ),
    (
        change_binding("OutputValueTensor", "x"),
        f"{BOUND}.OutputValueTensor: 'x', which overlaps InputTensor; allowed: {OWN}",
    ),
    (
        change_binding("OutputIndexTensor", "values"),
        f"{BOUND}.OutputIndexTensor: 'values', which overlaps OutputValueTensor; allowed: {OWN}",
    ),
    # Printing and writing.
    (
        add_command(type="writeFile", resource="x", targetPath="x.png"),
        "$.commands[3].targetPath: 'x.png'; allowed: a .npy, .dat or .bin file",
    ),
    (
        add_command(type="writeFile", resource="x", targetPath="x.npy", dimensions=[3, 5]),
        "$.commands[3].dimensions: [3, 5], 15 elements; allowed: 12 elements, as many as 'x' has",
    ),
    (
        all_of(
            add_resource("big", zeros("INT16", 3, sizeInBytes=64)),
            add_command(type="writeFile", resource="big", targetPath="x.npy", dimensions=[4]),
        ),
        "$.commands[3].dimensions: [4], 4 elements; allowed: 3 or 32 elements, as many as 'big' has",
    ),
    (
        all_of(
            add_resource("mixed", buffer("UNKNOWN", [{"type": "INT8", "value": 1}])),
            add_command(type="print", resource="mixed"),
            add_command(type="writeFile", resource="mixed", targetPath="x.npy"),
            add_command(type="writeFile", resource="mixed", targetPath="x.bin"),
        ),
        *(
            f"$.commands[{i}].resource: 'mixed' of type UNKNOWN; allowed: a resource whose initial values have one type"
            for i in (3, 4)
        ),
    ),
]

APART = f"allowed: {OWN}, or exactly InputTensor's, with the same strides"
SCATTER_FAULTS = [
    (change_binding("OutputTensor", "x"),),
    (
        change_binding("OutputTensor", "updates"),
        f"{BOUND}.OutputTensor: 'updates' of 16 bytes; allowed: at least 32 bytes, for FLOAT32 of sizes {{1, 8}}",
        f"{BOUND}.OutputTensor: 'updates', which overlaps UpdatesTensor; allowed: {OWN}",
    ),
    (in_one_buffer(12, offset=4), f"{BOUND}.OutputTensor: 'both', which overlaps InputTensor; {APART}"),
    (in_one_buffer(16, offset=8),),
    (
        all_of(
            add_resource("x", zeros("FLOAT32", 16)), change_input(Strides=[16, 2]), change_binding("OutputTensor", "x")
        ),
        f"{BOUND}.OutputTensor: 'x', which overlaps InputTensor; {APART}",
    ),
    (all_of(change_input(Strides=[8, 1]), change_binding("OutputTensor", "x")),),
]

OWNED_FAULTS = [
    (remove("dispatchables", "matmul", "bindings"), f"{MATMUL}: missing; allowed: the name of a resource"),
    (
        change_binding("BTensor", "b"),
        f"{BOUND}.BTensor: 'b'; allowed: nothing: a tensor flagged OWNED_BY_DML is bound in the dispatchable's "
        "bindings",
    ),
    (
        replace("dispatchables", "matmul", "bindings", "BTensor", by="c"),
        f"{MATMUL}: 'c'; allowed: a resource: a, b, one, y",
    ),
    (
        replace("dispatchables", "matmul", "bindings", "BTensor", by="y"),
        f"{MATMUL}: 'y' of 4 bytes; allowed: at least 8 bytes, for INT8 of sizes {{1, 1, 3, 2}}",
    ),
    (
        change_binding("AZeroPointTensor", "a"),
        f"{BOUND}.AZeroPointTensor: unknown; "
        "allowed: the tensors ATensor, AScaleTensor, BScaleTensor, OutputScaleTensor, OutputTensor",
    ),
]


CASES = [
    *((top_k, *case) for case in TOP_K_FAULTS),
    *((scatter, *case) for case in SCATTER_FAULTS),
    *((owning, *case) for case in OWNED_FAULTS),
]


@pytest.mark.parametrize("case", CASES)
def test_a_changed_model_has_these_faults_or_loads(save: Save, case: tuple[Any, ...]) -> None:
    make, change, *expected = case
    model = make()
    change(model)
    path = save(model)
    if expected:
        assert faults(path) == expected
    else:
        load_model(path)


def test_an_owned_tensor_may_be_written_over_later(save: Save) -> None:
    model = scatter()
    model["dispatchables"]["scatter"]["desc"]["InputTensor"]["Flags"] = "OWNED_BY_DML"
    model["dispatchables"]["scatter"]["bindings"] = {"InputTensor": "x"}
    del model["commands"][0]["bindings"]["InputTensor"]
    model["commands"][0]["bindings"]["OutputTensor"] = "x"  # the operator has a copy
    load_model(save(model))
