"""DxDispatch models as dictionaries: one for each operator, to be changed and saved by the tests."""

from collections.abc import Callable
from typing import Any

from dmlcpu.operators import OPERATORS

Change = Callable[[dict[str, Any]], object]

OPERATOR_TYPES = ", ".join(f"DML_OPERATOR_{each.name}" for row in OPERATORS.values() for each in row.descs)
ROWS = [0, 1, 10, 11, 3, 2, 9, 8, 4, 5, 6, 7]


def buffer(data_type: str, values: Any, **more: Any) -> dict[str, Any]:
    return {"initialValuesDataType": data_type, "initialValues": values, **more}


def zeros(data_type: str, count: int, **more: Any) -> dict[str, Any]:
    return buffer(data_type, {"valueCount": count, "value": 0}, **more)


def tensor(data_type: str, *sizes: int, **more: Any) -> dict[str, Any]:
    return {"DataType": data_type, "Sizes": list(sizes), **more}


def top_k() -> dict[str, Any]:
    """The two largest of each of three rows."""
    return {
        "resources": {"x": buffer("FLOAT32", list(ROWS)), "values": zeros("FLOAT32", 6), "indices": zeros("UINT32", 6)},
        "dispatchables": {
            "topk": {
                "type": "DML_OPERATOR_TOP_K1",
                "desc": {
                    "InputTensor": tensor("FLOAT32", 1, 1, 3, 4),
                    "OutputValueTensor": tensor("FLOAT32", 1, 1, 3, 2),
                    "OutputIndexTensor": tensor("UINT32", 1, 1, 3, 2),
                    "Axis": 3,
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
            {"type": "print", "resource": "indices"},
        ],
    }


def scatter() -> dict[str, Any]:
    """The spec page's example: [1, ..., 8] with 9, 10, 11, 12 at 4, 3, 1, 7."""
    return {
        "resources": {
            "x": buffer("FLOAT32", {"valueCount": 8, "valueStart": 1, "valueDelta": 1}),
            "at": buffer("UINT32", [4, 3, 1, 7]),
            "updates": buffer("FLOAT32", [9, 10, 11, 12]),
            "y": zeros("FLOAT32", 8),
        },
        "dispatchables": {
            "scatter": {
                "type": "SCATTER_ND",
                "desc": {
                    "InputTensor": tensor("FLOAT32", 1, 8),
                    "IndicesTensor": tensor("UINT32", 4, 1),
                    "UpdatesTensor": tensor("FLOAT32", 1, 4),
                    "OutputTensor": tensor("FLOAT32", 1, 8),
                    "InputDimensionCount": 1,
                    "IndicesDimensionCount": 2,
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "scatter",
                "bindings": {
                    "InputTensor": "x",
                    "IndicesTensor": "at",
                    "UpdatesTensor": "updates",
                    "OutputTensor": "y",
                },
            },
            {"type": "print", "resource": "y"},
        ],
    }


def matmul(*, owned: bool = False) -> dict[str, Any]:
    """[[1, 2, 3], [4, 5, 6]] times [[1, 0], [0, 1], [-1, 10]], all scales 1."""
    weights = tensor("INT8", 1, 1, 3, 2, **({"Flags": "DML_TENSOR_FLAG_OWNED_BY_DML"} if owned else {}))
    one = tensor("FLOAT32", 1, 1, 1, 1)
    model = {
        "resources": {
            "a": buffer("UINT8", [1, 2, 3, 4, 5, 6]),
            "b": buffer("INT8", [1, 0, 0, 1, -1, 10]),
            "one": buffer("FLOAT32", [1]),
            "y": zeros("INT8", 4),
        },
        "dispatchables": {
            "matmul": {
                "type": "QUANTIZED_LINEAR_MATRIX_MULTIPLY",
                "desc": {
                    "ATensor": tensor("UINT8", 1, 1, 2, 3),
                    "AScaleTensor": one,
                    "BTensor": weights,
                    "BScaleTensor": one,
                    "OutputScaleTensor": one,
                    "OutputTensor": tensor("INT8", 1, 1, 2, 2),
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "matmul",
                "bindings": {
                    "ATensor": "a",
                    "AScaleTensor": "one",
                    "BTensor": "b",
                    "BScaleTensor": "one",
                    "OutputScaleTensor": "one",
                    "OutputTensor": "y",
                },
            },
            {"type": "print", "resource": "y"},
        ],
    }
    if owned:
        del model["commands"][0]["bindings"]["BTensor"]
        model["dispatchables"]["matmul"]["bindings"] = {"BTensor": "b"}
    return model


def change_binding(tensor_name: str, source: Any) -> Change:
    return lambda model: model["commands"][0]["bindings"].update({tensor_name: source})


def change_desc(**fields: Any) -> Change:
    return lambda model: next(iter(model["dispatchables"].values()))["desc"].update(fields)


def change_command(i: int, **members: Any) -> Change:
    return lambda model: model["commands"][i].update(members)


def add_command(**members: Any) -> Change:
    return lambda model: model["commands"].append(members)


def add_resource(name: str, entry: Any) -> Change:
    return lambda model: model["resources"].update({name: entry})


def remove(*path: Any) -> Change:
    def change(model: Any) -> None:
        for part in path[:-1]:
            model = model[part]
        del model[path[-1]]

    return change


def replace(*path: Any, by: Any) -> Change:
    def change(model: Any) -> None:
        for part in path[:-1]:
            model = model[part]
        model[path[-1]] = by

    return change
