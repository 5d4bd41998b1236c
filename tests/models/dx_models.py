"""DxDispatch models as dictionaries: one for each operator, to be changed and saved by the tests."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlcpu.batch import ModelError, Timing, load_model, run_model
from dmlcpu.operators import OPERATORS

Save = Callable[[Any], Path]

OPERATOR_TYPES = ", ".join(f"DML_OPERATOR_{each.name}" for row in OPERATORS.values() for each in row.descs)
BOUND = "$.commands[0].bindings"  # in the faults' paths
ROWS = [0, 1, 10, 11, 3, 2, 9, 8, 4, 5, 6, 7]


def run(path: Path, timing: Timing | None = None) -> tuple[list[str], dict[str, np.ndarray]]:
    """Run a model; return its output, with # for times, and the buffers it leaves."""
    lines: list[str] = []
    buffers = run_model(load_model(path), timing=timing, emit=lines.append)
    return [re.sub(r"\d+\.\d{4} ms", "# ms", line) for line in lines], buffers


def faults(path: Path) -> list[str]:
    """Load a model that is at fault; return its faults as text."""
    with pytest.raises(ModelError) as caught:
        load_model(path)
    return [str(fault) for fault in caught.value.faults]


def buffer(data_type: str, values: Any, **more: Any) -> dict[str, Any]:
    return {"initialValuesDataType": data_type, "initialValues": values, **more}


def zeros(data_type: str, count: int, **more: Any) -> dict[str, Any]:
    return buffer(data_type, {"valueCount": count, "value": 0}, **more)


def tensor(data_type: str, *sizes: int, **more: Any) -> dict[str, Any]:
    return {"DataType": data_type, "Sizes": list(sizes), **more}


def dispatch(dispatchable: str, **bindings: Any) -> dict[str, Any]:
    return {"type": "dispatch", "dispatchable": dispatchable, "bindings": bindings}


def printed(*resources: str) -> list[dict[str, Any]]:
    return [{"type": "print", "resource": name} for name in resources]


def scatter_nd(data_type: str, x: list[int], at: list[int], updates: list[int]) -> dict[str, Any]:
    """A scatter of these sizes."""
    desc = {
        "InputTensor": tensor(data_type, *x),
        "IndicesTensor": tensor("UINT32", *at),
        "UpdatesTensor": tensor(data_type, *updates),
        "OutputTensor": tensor(data_type, *x),
        "InputDimensionCount": 1,
        "IndicesDimensionCount": len(at),
    }
    return {"type": "SCATTER_ND", "desc": desc}


def scattering(x: str, at: str, updates: str, y: str) -> dict[str, str]:
    return {"InputTensor": x, "IndicesTensor": at, "UpdatesTensor": updates, "OutputTensor": y}


def top_k() -> dict[str, Any]:
    """The two largest of each of three rows."""
    desc = {
        "InputTensor": tensor("FLOAT32", 1, 1, 3, 4),
        "OutputValueTensor": tensor("FLOAT32", 1, 1, 3, 2),
        "OutputIndexTensor": tensor("UINT32", 1, 1, 3, 2),
        "Axis": 3,
        "K": 2,
        "AxisDirection": "DML_AXIS_DIRECTION_DECREASING",
    }
    return {
        "resources": {"x": buffer("FLOAT32", list(ROWS)), "values": zeros("FLOAT32", 6), "indices": zeros("UINT32", 6)},
        "dispatchables": {"topk": {"type": "DML_OPERATOR_TOP_K1", "desc": desc}},
        "commands": [
            dispatch("topk", InputTensor="x", OutputValueTensor="values", OutputIndexTensor="indices"),
            *printed("values", "indices"),
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
        "dispatchables": {"scatter": scatter_nd("FLOAT32", [1, 8], [4, 1], [1, 4])},
        "commands": [dispatch("scatter", **scattering("x", "at", "updates", "y")), *printed("y")],
    }


def matmul(*, owned: bool = False) -> dict[str, Any]:
    """[[1, 2, 3], [4, 5, 6]] times [[1, 0], [0, 1], [-1, 10]], all scales 1."""
    scales = ("AScaleTensor", "BScaleTensor", "OutputScaleTensor")
    desc = {
        "ATensor": tensor("UINT8", 1, 1, 2, 3),
        "BTensor": tensor("INT8", 1, 1, 3, 2, **({"Flags": "DML_TENSOR_FLAG_OWNED_BY_DML"} if owned else {})),
        **dict.fromkeys(scales, tensor("FLOAT32", 1, 1, 1, 1)),
        "OutputTensor": tensor("INT8", 1, 1, 2, 2),
    }
    made = {
        "resources": {
            "a": buffer("UINT8", [1, 2, 3, 4, 5, 6]),
            "b": buffer("INT8", [1, 0, 0, 1, -1, 10]),
            "one": buffer("FLOAT32", [1]),
            "y": zeros("INT8", 4),
        },
        "dispatchables": {"matmul": {"type": "QUANTIZED_LINEAR_MATRIX_MULTIPLY", "desc": desc}},
        "commands": [
            dispatch("matmul", ATensor="a", BTensor="b", OutputTensor="y", **dict.fromkeys(scales, "one")),
            *printed("y"),
        ],
    }
    if owned:
        del made["commands"][0]["bindings"]["BTensor"]
        made["dispatchables"]["matmul"]["bindings"] = {"BTensor": "b"}
    return made


def everything() -> dict[str, Any]:
    """A model with three operators and every kind of initializer and command."""
    model: dict[str, Any] = {"resources": {}, "dispatchables": {}, "commands": []}
    for number, part in enumerate((top_k(), scatter(), matmul(owned=True))):
        names = {name: f"{name}{number}" for name in part["resources"]}
        model["resources"] |= {names[name]: value for name, value in part["resources"].items()}
        model["dispatchables"] |= renamed(part["dispatchables"], names)
        model["commands"] += renamed(part["commands"], names)
    model["resources"]["mixed"] = buffer("UNKNOWN", [{"name": "n", "type": "INT8", "value": 1}], sizeInBytes=8)
    model["resources"]["file"] = buffer("INT8", {"sourcePath": "none.npy"})
    model["commands"][0]["bindings"]["InputTensor"] = [{"name": "x0", "elementOffset": 0}]
    model["commands"].append({"type": "writeFile", "resource": "y2", "targetPath": "y.npy", "dimensions": [2, 2]})
    return model


def renamed(data: Any, names: dict[str, str]) -> Any:
    """Return data with other strings in the place of some."""
    if isinstance(data, dict):
        return {key: renamed(value, names) for key, value in data.items()}
    if isinstance(data, list):
        return [renamed(value, names) for value in data]
    return names.get(data, data) if isinstance(data, str) else data


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for name, value in data.items() if isinstance(data, dict) else enumerate(data if isinstance(data, list) else []):
        yield from places(value, (*path, name))


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    parent = data
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    return data


def changed(model: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Put values at places of a model, by their JSON paths; an ellipsis removes what stands there."""
    for path, value in changes.items():
        _, *parents, last = [int(part) if part.isdigit() else part for part in re.findall(r"[$\w]+", path)]
        place: Any = model
        for part in parents:
            place = place[part]
        if value is ...:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return model


def check_faults(save: Save, model: dict[str, Any], case: tuple[Any, ...]) -> None:
    """Check a case: changes, then the faults that the changed model has, without a path at the first change's place."""
    changes, *expected = case
    path = save(changed(model, changes))
    if expected:
        assert faults(path) == [each if each.startswith("$") else f"{next(iter(changes))}: {each}" for each in expected]
    else:
        load_model(path)
