"""Checks of the arguments of searches and of additions: counts, ids, masks, floats."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_array, as_integer, check_type
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.search.quantizer import BLOCK_ELEMENTS, FINITE, GREATEST
from dmlcpu.search.spaces import FLOATS, Space, as_vectors
from dmlcpu.search.vectors import Stored, storable, stored_of
from dmlcpu.selection.exclusions import allowed_of

_MOST_BITS = 1 << 31  # of the vectors that each query may find: 256 MiB


def as_count(operator: str, field: str, value: Any, least: int = 0) -> int:
    """Return a count."""
    count = as_integer(operator, field, value)
    if not least <= count < 1 << 31:
        raise DmlError(operator, field, str(count), f"an integer of at least {least}, below 2**31")
    return count


def as_ids(operator: str, field: str, value: Any) -> Array:
    """Return ids as a flat array of int64."""
    array = as_array(operator, field, value)
    if array.dtype.kind not in "iu" and array.size:
        raise UnsupportedError(operator, f"{field}.dtype", str(array.dtype), "integers")
    if array.dtype == np.uint64 and array.size and array.max() >= 1 << 63:
        raise DmlError(operator, field, str(array.max()), "integers below 2**63")
    return array.reshape(-1).astype(np.int64)


def as_new_ids(operator: str, value: Any, count: int, before: Stored | None) -> Array:
    """Return the ids of new vectors; before: the existing vectors and their ids."""
    ids = as_ids(operator, "ids", value)
    if ids.shape != (count,) or np.ndim(value) != 1:
        raise BindingError(operator, "ids.shape", str(np.shape(value)), f"({count},), one id a vector")
    if count and ids.min() < 0:
        place = int(np.argmax(ids < 0))
        raise DmlError(operator, f"ids[{place}]", str(ids[place]), "at least 0: -1 stands for nothing found")
    found, first = np.unique(ids, return_index=True)
    if len(found) < count:
        place = int(np.setdiff1d(np.arange(count), first)[0])
        raise DmlError(operator, f"ids[{place}]", f"{ids[place]} again", "different ids")
    if before is not None and before.ids is not None and len(before) and count and found[0] <= before.ids.max():
        there = before.positions(ids) >= 0
        if there.any():
            place = int(np.argmax(there))
            raise DmlError(operator, f"ids[{place}]", str(ids[place]), "ids that the index does not have")
    return ids


def as_float_vectors(operator: str, value: Any, shape: tuple[int, ...]) -> Array:
    """Return float vectors for rescoring; those in a .npy file are memory-mapped, so their numbers are not checked."""
    is_file = isinstance(value, str | os.PathLike)
    if is_file:
        from dmlcpu.search.storage import mapped

        array = mapped(operator, "floats", value)
    else:
        array = as_array(operator, "floats", value)
    check_type(operator, "floats", array.dtype, FLOATS)
    if array.shape != shape:
        raise BindingError(operator, "floats.shape", str(array.shape), f"{shape}, as the vectors")
    floats = storable(array)
    if not is_file:
        check_floats(operator, floats)
    return floats


def check_floats(operator: str, floats: Array) -> None:
    """Refuse float vectors (N, D) with NaN, infinity or numbers beyond those that are quantized."""
    for start in range(0, len(floats), rows := max(1, BLOCK_ELEMENTS // floats.shape[1])):
        bad = ~(np.abs(floats[start : start + rows]) <= np.float32(GREATEST))
        if bad.any():
            row, place = np.unravel_index(int(bad.argmax()), bad.shape)
            where = f"floats[{start + row}, {place}]"
            raise DmlError(operator, where, str(floats[start + row, place]), FINITE)


def in_parts(
    search: Callable[[Array, Array | None], tuple[Array, ...]],
    operator: str,
    stored: Stored,
    queries: Array,
    **options: Any,
) -> tuple[Array, ...]:
    """Search with the bits of what each query may find, in parts if these take much memory; None: no bits.

    options: mask, allowlist and exclude. A search returns arrays with a row for each query.
    """
    if all(each is None for each in options.values()):
        return search(queries, None)
    allowed = allowed_of(operator, len(queries), len(stored), **options, positions=stored.positions)
    step = max(1, _MOST_BITS // max(1, len(stored))) if allowed.is_by_row else len(queries)
    if len(queries) <= step:
        return search(queries, allowed.bits(0, len(queries)))
    starts = range(0, len(queries), step)
    parts = [search(queries[start : start + step], allowed.bits(start, start + step)) for start in starts]
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def check_ids_alike(operator: str, before: Stored, ids: Any) -> None:
    """Refuse ids for an index without ids, and none for one that has them."""
    if (ids is None) != (before.ids is None) and len(before):
        found, allowed = ("None", "an id for each vector") if ids is None else ("given", "None: the index has no ids")
        raise BindingError(operator, "ids", found, allowed)


def as_additions(
    operator: str, space: Space, before: Stored, vectors: Any, ids: Any, floats: Any
) -> tuple[Stored, Stored]:
    """Return the existing vectors and the added ones, with the same arrays; or refuse the latter."""
    given = as_vectors(operator, "vectors", vectors)
    if given.shape[1] != space.depth:
        raise BindingError(operator, "vectors.shape", str(given.shape), f"(n, {space.depth})")
    if before.scales is not None and given.dtype.itemsize == 1:
        raise BindingError(operator, "vectors.dtype", str(given.dtype), "floats, as the index was given floats")
    if before.scales is None and given.dtype != before.vectors.dtype:
        raise BindingError(operator, "vectors.dtype", str(given.dtype), f"{before.vectors.dtype} (the index's type)")
    later = stored_of(operator, given, space, keeps=before.floats is not None and floats is None)
    if before.floats is None and floats is not None:
        raise BindingError(operator, "floats", "given", "None: the index has no `floats`")
    if before.floats is not None:
        kept = later.floats if floats is None else as_float_vectors(operator, floats, given.shape)
        if kept is None:
            raise BindingError(operator, "floats", "None", "the vectors as floats: the index has `floats`")
        with np.errstate(over="ignore"):
            kept = kept.astype(before.floats.dtype)
        check_floats(operator, kept)
        later = replace(later, floats=kept)
    check_ids_alike(operator, before, ids)
    if ids is None:
        return replace(before, ids=None), later
    numbers = as_new_ids(operator, ids, len(later), before)
    there = np.empty(0, np.int64) if before.ids is None else before.ids
    return replace(before, ids=there), replace(later, ids=numbers)
