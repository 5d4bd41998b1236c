"""The modes and reductions of scatters, and the element types that kernels see."""

import functools
from typing import Any

import numpy as np

from dmlcpu.common.arguments import type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.errors import UnsupportedError
from dmlcpu.kernels.scatter_nd import reduction as reductions
from dmlcpu.kernels.scatter_nd.work import CLIP, DROP, RAISE

MODES = {"raise": RAISE, "drop": DROP, "clip": CLIP}
REDUCTIONS = {
    "none": reductions.OVERWRITE,
    "add": reductions.ADD,
    "mul": reductions.MULTIPLY,
    "min": reductions.MINIMUM,
    "max": reductions.MAXIMUM,
}
# On bytes that are 0 or 1, "or" is the maximum, and "and" is the minimum.
_BOOL_REDUCTIONS = {**REDUCTIONS, "add": reductions.MAXIMUM, "mul": reductions.MINIMUM}
# Sums and products of integers wrap to the same bits with and without a sign, so kernels see one type for both.
_SIGNED_REDUCTIONS = {**REDUCTIONS, "min": reductions.SIGNED_MINIMUM, "max": reductions.SIGNED_MAXIMUM}
_COMPLEX_REDUCTIONS = {"add": reductions.ADD, "mul": reductions.MULTIPLY_COMPLEX}
_BY_KIND = {"b": _BOOL_REDUCTIONS, "i": _SIGNED_REDUCTIONS, "c": _COMPLEX_REDUCTIONS}
# The types of elements in kernels that reduce; a type that is not listed can be overwritten but not reduced.
COMPUTED_AS = {row.name: row.computed_as for row in DATA_TYPES.values() if row.computed_as}
HALVES = {"float16": reductions.FLOAT16, "bfloat16": reductions.BFLOAT16}

INDEX_WORD = np.dtype(np.uint32)  # the type in which kernels read indices
ANY_SIZE = frozenset(np.dtype(kind).num for kind in "SUV")  # bytes, text and records
_WORDS = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}


def reduction_of(operator: str, dtype: np.dtype[Any], reduction: str) -> int:
    """Return the kernels' operation for a reduction on a type."""
    if reduction == "none":
        return reductions.OVERWRITE
    name = type_name(dtype)
    known = _BY_KIND.get(dtype.kind, REDUCTIONS)
    if name in COMPUTED_AS and reduction in known:
        return known[reduction]
    allowed = "a type whose values are ordered" if name in COMPUTED_AS else ", ".join(COMPUTED_AS)
    raise UnsupportedError(operator, f"x.dtype with reduction {reduction!r}", str(dtype), allowed)


def element_type(dtype: np.dtype[Any], reduction: str, width: int = 0) -> np.dtype[Any]:
    """Return the type that kernels see: numbers to compute with, else words; width: their bytes if not the type's."""
    return _WORDS[width or min(dtype.alignment, 8)] if reduction == "none" else np.dtype(COMPUTED_AS[type_name(dtype)])


def word_bytes(dtype: np.dtype[Any], *values: Any) -> int:
    """Return the bytes of the widest words that the arrays' alignment allows; 0: the type decides."""
    if dtype.num not in ANY_SIZE:
        return 0
    arrays = [each for each in values if isinstance(each, np.ndarray)]
    places = (dtype.itemsize, 8, *(place for array in arrays for place in (array.ctypes.data, *array.strides)))
    multiple = functools.reduce(lambda a, b: a | b, map(abs, places))
    return multiple & -multiple  # the lowest bit set anywhere
