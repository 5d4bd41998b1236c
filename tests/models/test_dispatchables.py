"""Faults in what a model means: names, operators, bindings, what is printed and written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dx_models import (
    OPERATOR_TYPES,
    Change,
    add_command,
    add_resource,
    buffer,
    change_binding,
    change_command,
    change_desc,
    matmul,
    remove,
    replace,
    scatter,
    tensor,
    top_k,
    zeros,
)

from dmlcpu.batch import ModelError, load_model

Save = Callable[[Any], Path]


def faults(path: Path) -> list[str]:
    with pytest.raises(ModelError) as caught:
        load_model(path)
    return [str(fault) for fault in caught.value.faults]


MEANING_FAULTS = [
    # Names.
    (
        change_command(0, dispatchable="topp"),
        ["$.commands[0].dispatchable: 'topp'; allowed: a dispatchable: topk"],
    ),
    (
        change_command(1, resource="value"),
        ["$.commands[1].resource: 'value'; allowed: a resource: x, values, indices"],
    ),
    (
        change_binding("InputTensor", "X"),
        ["$.commands[0].bindings.InputTensor: 'X'; allowed: a resource: x, values, indices"],
    ),
    (
        add_command(type="writeFile", resource="y", targetPath="y.bin"),
        ["$.commands[3].resource: 'y'; allowed: a resource: x, values, indices"],
    ),
    # Operators.
    *(
        (
            replace("dispatchables", "shade", by={"type": name, "sourcePath": "a.hlsl"}),
            [f"$.dispatchables.shade.type: {name!r}; allowed: {OPERATOR_TYPES}, onnx"],
        )
        for name in (
            "hlsl",
            "dmlSerializedGraph",
            "DML_OPERATOR_GEMM",
            "top_k1",
            "DML_OPERATOR_DML_OPERATOR_TOP_K",
        )
    ),
    (
        remove("dispatchables", "topk", "desc"),
        ["$.dispatchables.topk.desc: missing; allowed: an object of the operator's fields"],
    ),
    (
        replace("dispatchables", "topk", "Desc", by={}),
        ["$.dispatchables.topk.Desc: another desc; allowed: desc or Desc, not both"],
    ),
    (
        replace("dispatchables", "topk", by={"type": "TOP_K", "Desc": 5}),
        ["$.dispatchables.topk.Desc: 5; allowed: an object of the operator's fields"],
    ),
    (
        change_desc(K=5),
        ["$.dispatchables.topk.desc.K: 5; allowed: 1 to 4 (InputTensor.Sizes[3])"],
    ),
    (
        change_desc(AxisDirection="SIDEWAYS"),
        ["$.dispatchables.topk.desc.AxisDirection: 'SIDEWAYS'; allowed: INCREASING, DECREASING"],
    ),
    (
        change_desc(InputTensor=tensor("FLOAT32", 1, 1, 0, 4)),
        ["$.dispatchables.topk.desc.InputTensor.Sizes[2]: 0; allowed: 1 to 4294967295"],
    ),
    (
        change_desc(InputTensor={"Type": "BUFFER", "Desc": tensor("FLOAT31", 1, 1, 3, 4)}),
        [
            "$.dispatchables.topk.desc.InputTensor.Desc.DataType: 'FLOAT31'; allowed: UNKNOWN, FLOAT32, FLOAT16, "
            "UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64, UINT4, INT4"
        ],
    ),
    (
        change_desc(OutputIndexTensor=tensor("INT32", 1, 1, 3, 2)),
        [
            "$.dispatchables.topk.desc.OutputIndexTensor.DataType: INT32; "
            "allowed: UINT64, UINT32 at DML_FEATURE_LEVEL_6_4 (INT32 at no feature level)"
        ],
    ),
    # Bindings.
    (
        remove("commands", 0, "bindings", "OutputIndexTensor"),
        ["$.commands[0].bindings.OutputIndexTensor: missing; allowed: the name of a resource"],
    ),
    (
        change_binding("Axis", "x"),
        [
            "$.commands[0].bindings.Axis: unknown; "
            "allowed: the tensors InputTensor, OutputValueTensor, OutputIndexTensor"
        ],
    ),
    (
        replace("dispatchables", "topk", "bindings", by={"InputTensor": "x"}),
        [
            "$.dispatchables.topk.bindings.InputTensor: 'x'; "
            "allowed: nothing: a tensor that is not flagged OWNED_BY_DML is bound by each dispatch"
        ],
    ),
    (
        add_resource("x", zeros("UINT8", 41)),
        [
            "$.commands[0].bindings.InputTensor: 'x' of 44 bytes; "
            "allowed: at least 48 bytes, for FLOAT32 of sizes {1, 1, 3, 4}"
        ],
    ),
    (
        change_binding("InputTensor", {"name": "x", "elementOffset": 4}),
        [
            "$.commands[0].bindings.InputTensor: 'x' of 48 bytes, from byte 16 on; "
            "allowed: at least 48 bytes, for FLOAT32 of sizes {1, 1, 3, 4}"
        ],
    ),
    (
        change_binding("InputTensor", {"name": "x", "elementOffset": 3}),
        ["$.commands[0].bindings.InputTensor: an offset of 12 bytes; allowed: a multiple of 16 bytes"],
    ),
    (
        change_binding("OutputValueTensor", "x"),
        ["$.commands[0].bindings.OutputValueTensor: 'x', which overlaps InputTensor; allowed: memory of its own"],
    ),
    (
        change_binding("OutputIndexTensor", "values"),
        [
            "$.commands[0].bindings.OutputIndexTensor: 'values', which overlaps OutputValueTensor; "
            "allowed: memory of its own"
        ],
    ),
    # Printing and writing.
    (
        add_command(type="writeFile", resource="x", targetPath="x.png"),
        ["$.commands[3].targetPath: 'x.png'; allowed: a .npy, .dat or .bin file"],
    ),
    (
        add_command(type="writeFile", resource="x", targetPath="x.npy", dimensions=[3, 5]),
        ["$.commands[3].dimensions: [3, 5], 15 elements; allowed: 12 elements, as many as 'x' has"],
    ),
    (
        lambda model: (
            model["resources"].update(big=zeros("INT16", 3, sizeInBytes=64)),
            model["commands"].append(
                {"type": "writeFile", "resource": "big", "targetPath": "x.npy", "dimensions": [4]}
            ),
        ),
        ["$.commands[3].dimensions: [4], 4 elements; allowed: 3 or 32 elements, as many as 'big' has"],
    ),
    (
        lambda model: (
            model["resources"].update(mixed=buffer("UNKNOWN", [{"type": "INT8", "value": 1}])),
            model["commands"].append({"type": "print", "resource": "mixed"}),
            model["commands"].append({"type": "writeFile", "resource": "mixed", "targetPath": "x.npy"}),
            model["commands"].append({"type": "writeFile", "resource": "mixed", "targetPath": "x.bin"}),
        ),
        [
            f"$.commands[{i}].resource: 'mixed' of type UNKNOWN; allowed: a resource whose initial values have one type"
            for i in (3, 4)
        ],
    ),
]


@pytest.mark.parametrize(("change", "expected"), MEANING_FAULTS)
def test_faults(save: Save, change: Change, expected: list[str]) -> None:
    model = top_k()
    change(model)
    assert faults(save(model)) == expected


SCATTER_FAULTS = [
    (change_binding("OutputTensor", "x"), []),
    (
        change_binding("OutputTensor", "updates"),
        [
            "$.commands[0].bindings.OutputTensor: 'updates' of 16 bytes; "
            "allowed: at least 32 bytes, for FLOAT32 of sizes {1, 8}",
            "$.commands[0].bindings.OutputTensor: 'updates', which overlaps UpdatesTensor; allowed: memory of its own",
        ],
    ),
    (
        lambda model: (
            model["resources"].update(both=zeros("FLOAT32", 12)),
            model["commands"][0]["bindings"].update(
                InputTensor="both", OutputTensor={"name": "both", "elementOffset": 4}
            ),
        ),
        [
            "$.commands[0].bindings.OutputTensor: 'both', which overlaps InputTensor; "
            "allowed: memory of its own, or exactly InputTensor's, with the same strides"
        ],
    ),
    (
        lambda model: (
            model["resources"].update(both=zeros("FLOAT32", 16)),
            model["commands"][0]["bindings"].update(
                InputTensor="both", OutputTensor={"name": "both", "elementOffset": 8}
            ),
        ),
        [],
    ),
    (
        lambda model: (
            model["resources"].update(x=zeros("FLOAT32", 16)),
            model["dispatchables"]["scatter"]["desc"]["InputTensor"].update(Strides=[16, 2]),
            model["commands"][0]["bindings"].update(OutputTensor="x"),
        ),
        [
            "$.commands[0].bindings.OutputTensor: 'x', which overlaps InputTensor; "
            "allowed: memory of its own, or exactly InputTensor's, with the same strides"
        ],
    ),
    (
        lambda model: (
            model["dispatchables"]["scatter"]["desc"]["InputTensor"].update(Strides=[8, 1]),
            model["commands"][0]["bindings"].update(OutputTensor="x"),
        ),
        [],
    ),
]


@pytest.mark.parametrize(("change", "expected"), SCATTER_FAULTS)
def test_scatter_in_place(save: Save, change: Change, expected: list[str]) -> None:
    model = scatter()
    change(model)
    path = save(model)
    if expected:
        assert faults(path) == expected
    else:
        load_model(path)


OWNED_FAULTS = [
    (
        remove("dispatchables", "matmul", "bindings"),
        ["$.dispatchables.matmul.bindings.BTensor: missing; allowed: the name of a resource"],
    ),
    (
        change_binding("BTensor", "b"),
        [
            "$.commands[0].bindings.BTensor: 'b'; "
            "allowed: nothing: a tensor flagged OWNED_BY_DML is bound in the dispatchable's bindings"
        ],
    ),
    (
        replace("dispatchables", "matmul", "bindings", "BTensor", by="c"),
        ["$.dispatchables.matmul.bindings.BTensor: 'c'; allowed: a resource: a, b, one, y"],
    ),
    (
        replace("dispatchables", "matmul", "bindings", "BTensor", by="y"),
        [
            "$.dispatchables.matmul.bindings.BTensor: 'y' of 4 bytes; "
            "allowed: at least 8 bytes, for INT8 of sizes {1, 1, 3, 2}"
        ],
    ),
    (
        change_binding("AZeroPointTensor", "a"),  # optional, and not in the desc
        [
            "$.commands[0].bindings.AZeroPointTensor: unknown; "
            "allowed: the tensors ATensor, AScaleTensor, BScaleTensor, OutputScaleTensor, OutputTensor"
        ],
    ),
]


@pytest.mark.parametrize(("change", "expected"), OWNED_FAULTS)
def test_owned_tensors(save: Save, change: Change, expected: list[str]) -> None:
    model = matmul(owned=True)
    change(model)
    assert faults(save(model)) == expected


def test_an_owned_tensor_may_be_written_over_later(save: Save) -> None:
    model = scatter()
    model["dispatchables"]["scatter"]["desc"]["InputTensor"]["Flags"] = "OWNED_BY_DML"
    model["dispatchables"]["scatter"]["bindings"] = {"InputTensor": "x"}
    del model["commands"][0]["bindings"]["InputTensor"]
    model["commands"][0]["bindings"]["OutputTensor"] = "x"  # the operator has a copy
    load_model(save(model))
