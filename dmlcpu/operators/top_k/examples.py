"""Small calls of top_k that together compile all its kernels for a type."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import AxisDirection
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.strided_tournament import COLUMNS
from dmlcpu.kernels.top_k.work import Problem
from dmlcpu.operators.table import Example, Workload
from dmlcpu.operators.top_k.call import INT64, Call
from dmlcpu.operators.top_k.descriptor import TopK1OperatorDesc, TopKOperatorDesc
from dmlcpu.operators.top_k.search import Search
from dmlcpu.runtime.threads import REFERENCE, most

_K = 8  # in the plain call
_N = 128
# Calls by axis, because a kernel needs one that it supports.
_PROBLEMS = {1: Problem(rows=_N, n=_N, k=1, step=1, columns=1), 0: Problem(rows=_N, n=_N, k=1, step=_N, columns=_N)}


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, then one for each kernel, along an axis that it supports; last, search blocks."""
    yield Example({"x": _numbers((1, 64), dtype), "k": _K})
    x = _numbers((_N, _N), dtype)
    for entry in registry.available("top_k", "select"):
        axis = min(axis for axis, problem in _PROBLEMS.items() if entry.supports(problem))
        yield Example({"x": x, "k": 1, "axis": axis}, entry.name)
    if most() != REFERENCE:
        lines = _numbers((_N, 2 * COLUMNS), dtype)  # columns for two threads
        search = Search(Call(Form(lines.shape, lines.dtype), 1, 0, INT64, largest=True))
        search.look_at(lines, 0)
        search.look_at(lines, _N)


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as descs, with the input to bind."""
    x = _numbers((1, 64), "float32")
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc.of(x),
        "output_value_tensor": TensorDesc.of(x[:, :_K]),
        "output_index_tensor": TensorDesc.of(np.empty((1, _K), np.uint32)),
        "axis": 1,
        "k": _K,
    }
    yield TopKOperatorDesc(**fields), {"input_tensor": x}
    yield TopK1OperatorDesc(**fields, axis_direction=AxisDirection.DECREASING), {"input_tensor": x}


def workload(nbytes: int) -> Workload:
    """Return the selection of 10 of each 10,000 numbers."""
    x = np.random.default_rng(0).random((-(-nbytes // 40_000), 10_000), np.float32)
    return Workload({"x": x, "k": 10}, "read", x.nbytes)


def _numbers(shape: tuple[int, int], dtype: str) -> Array:
    """Return unordered numbers, some of them repeated."""
    return (np.arange(shape[0] * shape[1]) * 37 % 101).astype(dtype).reshape(shape)
