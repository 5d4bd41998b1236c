"""How the tensors of a scatter_nd lie in memory: the fields of the work record that say so."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.kernels.scatter_nd import reduction as reductions
from dmlcpu.kernels.scatter_nd.choose import kind_of
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.runtime.memory import first_word, packed_strides, word_strides

INDEX_WORD = np.dtype(np.uint32)
Fields = dict[str, Any]  # of the work record


@dataclass(frozen=True, slots=True)
class Tensors:
    """Shapes, and strides in the words the kernels see."""

    shape: tuple[int, ...]  # of out
    outer: tuple[int, ...]  # of the tuples, and of the updates
    coordinates: int  # of a tuple
    width: int  # bytes of a word
    element: int  # words of an element
    out: tuple[int, ...]
    indices: tuple[int, ...]  # here words are INDEX_WORD
    updates: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many updates there are."""
        return math.prod(self.outer)

    @property
    def slice_shape(self) -> tuple[int, ...]:
        """The shape of an update."""
        return self.shape[self.coordinates :]

    @property
    def slice_size(self) -> int:
        """Words of an update."""
        return math.prod(self.slice_shape) * self.element

    @property
    def span(self) -> int:
        """Words from out's first to its last."""
        return sum((n - 1) * abs(stride) for n, stride in zip(self.shape, self.out, strict=True)) + self.element

    @property
    def is_in_order(self) -> bool:
        """Whether out is packed, in C order."""
        return self.out == packed_strides(self.shape, self.element)


def tensors_of(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    element: np.dtype[Any],
    indices_shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> Tensors:
    """Return shapes and strides as the kernels see them; strides: of out, indices and updates, in bytes."""
    width = element.itemsize
    return Tensors(
        shape=shape,
        outer=indices_shape[:-1],
        coordinates=indices_shape[-1],
        width=width,
        element=dtype.itemsize // width,
        out=word_strides(strides[0], width),
        indices=word_strides(strides[1], INDEX_WORD.itemsize),
        updates=word_strides(strides[2], width),
    )


def layout_of(tensors: Tensors, index_type: np.dtype[Any], reduction: int, half: int) -> Fields:
    """Return those fields of the work record that tell how tensors lie, and what becomes of elements."""
    tuples, updates = _tuples(tensors, index_type), _updates(tensors)
    slices = _slices(tensors, reduction, half)
    slices["kind"] = _kind(tensors, tuples, updates, slices, reduction)
    # What is owned are whole slices where these lie one after the other, else words.
    ranges = {"count": tensors.span, "size": 1}
    if tensors.is_in_order:
        ranges = {"count": math.prod(tensors.shape[: tensors.coordinates]), "size": tensors.slice_size}
    return {
        "tuples": tuples,
        "updates": updates,
        "slices": slices,
        "ranges": ranges,
        "reduction": reduction,
        "half": half,
    }


def _tuples(tensors: Tensors, index_type: np.dtype[Any]) -> Fields:
    coordinates = tensors.coordinates
    sizes, strides = merge(tensors.outer, tensors.indices[:-1])
    return {
        "count": tensors.count,
        "coordinates": coordinates,
        "start": first_word((*tensors.outer, coordinates), tensors.indices) if coordinates else 0,
        "step": tensors.indices[-1] if coordinates else 0,
        "walk": walk_of(sizes),
        "strides": strides,
        "is_wide": index_type.itemsize == 8,
        "is_signed": index_type.kind == "i",
        "sizes": tensors.shape[:coordinates],
        "out_start": first_word(tensors.shape, tensors.out),
        "out_steps": tensors.out[:coordinates],
    }


def _updates(tensors: Tensors) -> Fields:
    outer = tensors.outer
    sizes, strides = merge(outer, tensors.updates[: len(outer)])
    start = first_word(outer + tensors.slice_shape, tensors.updates)
    return {"start": start, "walk": walk_of(sizes), "strides": strides}


def _slices(tensors: Tensors, reduction: int, half: int) -> Fields:
    """Return how an update is cut into runs, which are the last of its merged dimensions."""
    (*sizes, length), (*out_strides, out_step), (*updates_strides, updates_step) = merge(
        (*tensors.slice_shape, tensors.element),
        (*tensors.out[tensors.coordinates :], 1),
        (*tensors.updates[len(tensors.outer) :], 1),
    )
    is_packed = out_step == updates_step == 1
    return {
        "is_packed": is_packed,
        "in_vectors": is_packed and reductions.is_reduced_in_vectors(reduction, half),
        "runs": math.prod(sizes),
        "length": length,
        "walk": walk_of(sizes or [1]),
        "out_step": out_step,
        "out_strides": out_strides or [0],
        "updates_step": updates_step,
        "updates_strides": updates_strides or [0],
    }


def _kind(tensors: Tensors, tuples: Fields, updates: Fields, slices: Fields, reduction: int) -> int:
    """Return what an update is to the kernels."""
    is_even = tensors.count > 0 and updates["walk"]["dims"] == slices["runs"] == 1
    is_index = tensors.coordinates == tuples["walk"]["dims"] == 1
    steps = (updates["strides"][0], tuples["strides"][0], *tuples["out_steps"])
    is_packed = is_index and steps == (1, 1 + tuples["is_wide"], 1)
    return kind_of(tensors.slice_size, is_even, is_packed, slices["in_vectors"], reduction)
