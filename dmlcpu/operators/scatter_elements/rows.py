"""Updates that are rows: all elements of a row share an index, which scatter_nd takes as a tuple."""

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form, Shape
from dmlcpu.operators.scatter_elements.call import Call
from dmlcpu.runtime.memory import Workspace
from dmlcpu.runtime.threads import Budget

Run = Callable[[Array, Array, Array, Array], Any]


class Rows(NamedTuple):
    """How one index for each row is passed to scatter_nd."""

    run: Run  # on x, indices, updates and out; returns None if no index is refused
    kernel: str
    is_single: bool
    length: int  # elements of a row
    workspace: Workspace


def row_length(call: Call) -> int:
    """Return how many elements the dimensions after the axis have; 0 if rows are not whole or have one element."""
    rest = call.axis + 1
    others = zip(call.indices.shape, call.x.shape, strict=True)
    is_whole = all(mine == n for d, (mine, n) in enumerate(others) if d != call.axis)
    length = math.prod(call.x.shape[rest:])
    is_line = len(call.x.shape) == 1 or math.prod(call.x.shape) == call.x.shape[call.axis]
    return length if is_whole and (length > 1 or is_line) else 0


def is_expanded(call: Call) -> bool:
    """Return whether all elements of a row have the same index in memory, or a row is one element."""
    pairs = list(zip(call.indices.shape, call.indices.steps, strict=True))
    return all(step == 0 or n == 1 for n, step in pairs[call.axis + 1 :])


def by_rows(call: Call, budget: Budget) -> Rows:
    """Return how scatter_nd runs a call in which all elements of a row have the index of the first."""
    before, rest = call.indices.shape[: call.axis], call.axis + 1
    drops = 1 if all(n == 1 for n in before) else 0  # sizes before the axis need no coordinates
    start = call.axis if drops else 0
    x, updates, out = (_without(form, start) for form in (call.x, call.updates, call.out))
    if drops:
        tuples = Form((call.indices.shape[call.axis], 1), call.indices.dtype, (call.indices.steps[call.axis], 0))
    else:
        kind = np.dtype(np.uint64 if call.indices.dtype.kind == "u" else np.int64)
        tuples = Form((*call.indices.shape[:rest], rest), kind)
    forms = (x, tuples, updates, out.steps)
    options = (call.reduction, call.mode, call.in_place, call.width)
    # Imported here, because the table imports all operators for type checkers.
    table = importlib.import_module("dmlcpu.operators.table")
    prepared = table.OPERATORS["scatter_nd"].calls.prepare(forms, options, budget)

    def run(x: Array, indices: Array, updates: Array, out: Array) -> Any:
        return prepared.run(x, indices if drops else _tuples(indices, rest, tuples.dtype), updates, out)

    return Rows(run, prepared.kernel, prepared.is_single, row_length(call), prepared.workspace)


def _without(form: Form, leading: int) -> Form:
    """Return the form of an array without its first dimensions, which have one element each."""
    return Form(form.shape[leading:], form.dtype, form.steps[leading:])


def _tuples(indices: Array, coordinates: int, dtype: Any) -> Array:
    """Return index tuples: the places before the axis, and the index."""
    rows: tuple[Any, ...] = (..., *(0,) * (indices.ndim - coordinates))
    first = indices[rows]
    tuples = np.empty((*first.shape, coordinates), dtype)
    shape: Shape = first.shape
    for d, n in enumerate(shape[:-1]):
        tuples[..., d] = np.arange(n, dtype=dtype).reshape(n, *(1,) * (len(shape) - d - 1))
    tuples[..., -1] = first
    return tuples
