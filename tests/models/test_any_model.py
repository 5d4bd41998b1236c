"""Whatever stands in a model file, it loads or is refused as a ModelError: nothing else gets out."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from dx_models import everything, places, put
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


MODEL = everything()
PLACES = list(places(MODEL))


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
