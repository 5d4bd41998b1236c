"""Shared by calls of scatter_nd and scatter_elements: updates given as a list, and the output."""

from typing import Any

import numpy as np

from dmlcpu.annotations import Array
from dmlcpu.common.arguments import as_array_like, check_apart, check_output, same_memory
from dmlcpu.common.prepared import Prepared
from dmlcpu.runtime.memory import OWNS_DATA
from dmlcpu.runtime.results import empty_result


def as_updates(operator: str, updates: Any, dtype: np.dtype[Any]) -> Any:
    """Return updates; a list or a number becomes an array of x's type."""
    return updates if hasattr(updates, "dtype") else as_array_like(operator, "updates", updates, "x", dtype)


def allocate(prepared: Prepared, arrays: tuple[Array, Array, Array], out: Any) -> Array:
    """Return the output: a new array, or `out` if the result can be written to it."""
    x, indices, updates = arrays
    if out is None:  # equal types may differ in alignment and metadata
        return prepared.new[0]() if prepared.results[0].dtype is x.dtype else empty_result(x.shape, x.dtype)
    operator = prepared.operator
    result = check_output(operator, "out", out, x.shape, x.dtype)
    owned = result.flags.num & x.flags.num & indices.flags.num & updates.flags.num & OWNS_DATA
    if not owned or result is indices or result is updates:  # other arrays that own their data share no memory
        check_apart(operator, "out", result, {"indices": indices, "updates": updates})
        if not same_memory(x, result):
            check_apart(operator, "out", result, {"x (it may be x itself, but not a part of it)": x})
    return result
