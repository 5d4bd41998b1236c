"""Vectors added to others: what has to fit, and arrays with room for more."""

from dataclasses import replace
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.errors import BindingError
from dmlcpu.search.arguments import as_float_vectors, as_new_ids, check_floats
from dmlcpu.search.spaces import Space, as_vectors
from dmlcpu.search.vectors import Stored, stored_of

_GROWTH = 1.5  # of arrays that vectors are added to: so each addition need not copy all


def checked(operator: str, space: Space, before: Stored, vectors: Any, ids: Any, floats: Any) -> tuple[Stored, Stored]:
    """Return the vectors that there are, and those to be added, with the same arrays; or refuse the latter."""
    given = as_vectors(operator, "vectors", vectors)
    if given.shape[1] != space.depth:
        raise BindingError(operator, "vectors.shape", str(given.shape), f"(n, {space.depth})")
    _check_type(operator, before, given)
    later = stored_of(operator, given, space, keeps=before.floats is not None and floats is None)
    if floats is not None or before.floats is not None:
        later = _with_floats(operator, before, later, floats)
    if (ids is None) != (before.ids is None) and len(before):
        found, allowed = ("None", "an id for each vector") if ids is None else ("given", "None: the index has no ids")
        raise BindingError(operator, "ids", found, allowed)
    if ids is None:
        return replace(before, ids=None), later
    numbers = as_new_ids(operator, ids, len(later), before)
    there = np.empty(0, np.int64) if before.ids is None else before.ids
    return replace(before, ids=there), replace(later, ids=numbers)


def _check_type(operator: str, before: Stored, given: Array) -> None:
    """Refuse bytes of another type, and floats where there are bytes."""
    if before.scales is not None:
        if given.dtype.itemsize == 1:
            raise BindingError(operator, "vectors.dtype", str(given.dtype), "floats, as the index was given floats")
    elif given.dtype != before.vectors.dtype:
        raise BindingError(operator, "vectors.dtype", str(given.dtype), f"{before.vectors.dtype} (the index's type)")


def _with_floats(operator: str, before: Stored, later: Stored, floats: Any) -> Stored:
    """Return added vectors with their floats, in the type that the index has."""
    if before.floats is None:
        raise BindingError(operator, "floats", "given", "None: the index has no `floats`")
    if floats is None and later.scales is None:
        raise BindingError(operator, "floats", "None", "the vectors as floats: the index has `floats`")
    given = later.floats if floats is None else as_float_vectors(operator, floats, later.vectors.shape)
    assert given is not None
    with np.errstate(over="ignore"):
        kept = given.astype(before.floats.dtype)
    check_floats(operator, kept)
    return replace(later, floats=kept)


class Room:
    """Arrays with room after the vectors of an index. What is written there, no earlier search looks at."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def joined(self, before: Stored, later: Stored) -> Stored:
        """Return vectors with others after them."""
        arrays, others = before.arrays(), later.arrays()
        count, total = len(before), len(before) + len(later)
        for name, array in arrays.items():
            room = self._arrays.get(name)
            if room is None or array.base is not room or len(room) < total:
                room = self._arrays[name] = np.empty((int(_GROWTH * total), *array.shape[1:]), array.dtype)
                room[:count] = array
            room[count:total] = others[name]
            arrays[name] = room[:total]
        return Stored(**arrays)
