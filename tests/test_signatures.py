"""What `help` and editors show of the public functions."""

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import get_args, get_type_hints

import numpy as np
import pytest

import dmlcpu
from dmlcpu import annotations

MODULES = ["dmlcpu", "dmlcpu.batch", "dmlcpu.models", "dmlcpu.reference", "dmlcpu.search"] + [
    f"dmlcpu.interop.{name}" for name in ("dask", "onnx", "torch") if find_spec(name)
]


LONGEST = {"matmul_top_k": 350, "plan_jobs": 340, "run_jobs": 570}  # 13, 11 and 19 parameters, most with a default


def functions(module):
    """Return the public functions of a module, and the methods of its classes."""
    values = {name: getattr(import_module(module), name) for name in import_module(module).__all__}
    found = {name: value for name, value in values.items() if inspect.isroutine(value)}
    for name, value in values.items():
        if inspect.isclass(value) and not hasattr(value, "__dataclass_fields__"):
            methods = {each: method for each, method in vars(value).items() if inspect.isfunction(method)}
            found |= {f"{name}.{each}": method for each, method in methods.items() if not each.startswith("_")}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_signatures_are_short(module):
    found = functions(module)
    assert found
    for name, function in found.items():
        assert len(str(inspect.signature(function))) <= LONGEST.get(name, 300), name


@pytest.mark.parametrize("module", MODULES)
def test_annotations_are_those_of_the_code(module):
    """Names in quotes are not looked up when a module is imported."""
    for name, function in functions(module).items():
        assert set(get_type_hints(function)) == set(getattr(function, "__annotations__", ())), name


def test_help_shows_names():
    assert "x: 'ArrayLike', k: 'int | ArrayLike', *, axis: int = -1, mode: 'Mode | None'" in str(
        inspect.signature(dmlcpu.top_k)
    )


WORDS = {
    "mode": (annotations.Mode, lambda word: dmlcpu.top_k([1, 2], 1, mode=word)),
    "nan": (annotations.Nan, lambda word: dmlcpu.top_k([1, 2], 1, nan=word)),
    "reduction": (annotations.Reduction, lambda word: dmlcpu.scatter_nd([1], [[0]], [2], reduction=word)),
    "out of range": (annotations.OutOfRange, lambda word: dmlcpu.scatter_nd([1], [[0]], [2], mode=word)),
    "metric": (annotations.Metric, lambda word: dmlcpu.search.knn(np.eye(2), np.eye(2), 1, metric=word)),
}


@pytest.mark.parametrize("what", WORDS)
def test_the_words_of_annotations_are_all_that_functions_take(what):
    literal, call = WORDS[what]
    for word in get_args(literal):
        call(word)
    with pytest.raises(dmlcpu.DmlError) as caught:
        call("other")
    allowed = caught.value.allowed
    assert [word.strip("' ") for word in allowed.split(",")] == list(get_args(literal))


def test_named_tuples_can_be_annotated_with_types_of_arrays():
    dask_like = dmlcpu.TopK[list, list]([1], [2])
    assert type(dask_like) is dmlcpu.TopK
    assert dask_like == ([1], [2])
