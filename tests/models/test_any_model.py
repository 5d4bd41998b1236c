"""Whatever stands in a model file, it loads or is refused as a ModelError: nothing else gets out."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dx_models import buffer, matmul, scatter, top_k
from hypothesis import given, settings, strategies as st

from dmlcpu.batch import ModelError, load_model

TYPES = ["INT8", "FLOAT32", "UNKNOWN", "TOP_K"]
WORDS = ["x", "nan", "value", "name", "type", "Desc", "print", "writeFile", "a.npy", *TYPES]
SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 3, 2**31, 2**64, 10**400])
    | st.floats()
    | st.sampled_from(WORDS)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=5,
)


def everything() -> dict[str, Any]:
    """A model with three operators and every kind of initializer and command."""
    model: dict[str, Any] = {"resources": {}, "dispatchables": {}, "commands": []}
    for part in (top_k(), scatter(), matmul(owned=True)):
        model["resources"] |= part["resources"]
        model["dispatchables"] |= part["dispatchables"]
        model["commands"] += part["commands"]
    model["resources"]["mixed"] = buffer("UNKNOWN", [{"name": "n", "type": "INT8", "value": 1}], sizeInBytes=8)
    model["resources"]["file"] = buffer("INT8", {"sourcePath": "none.npy"})
    model["commands"][0]["bindings"]["InputTensor"] = [{"name": "x", "elementOffset": 0}]
    model["commands"].append({"type": "writeFile", "resource": "y", "targetPath": "y.npy", "dimensions": [2, 2]})
    return model


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for name, value in data.items() if isinstance(data, dict) else enumerate(data if isinstance(data, list) else []):
        yield from places(value, (*path, name))


MODEL = everything()
PLACES = list(places(MODEL))


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    parent = data
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    return data


@settings(max_examples=200, deadline=None)
@given(path=st.sampled_from(PLACES), value=VALUES)
def test_any_value_at_any_place(tmp_path_factory: pytest.TempPathFactory, path: tuple[Any, ...], value: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps(put(copy.deepcopy(MODEL), path, value)))
    _load(file)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="{}[]\",:/*\\ \n01.eE-+aNn'", max_size=40))
def test_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(text)
    _load(file)


def _load(file: Path) -> None:
    faults = []
    try:
        load_model(file)
    except ModelError as error:
        faults = error.faults
    for fault in faults:
        assert fault.path.startswith("$")
        assert fault.found
        assert fault.allowed
