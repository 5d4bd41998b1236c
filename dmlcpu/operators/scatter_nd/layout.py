"""The memory layout of scatter_nd's tensors: the fields of the work record about it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.indexing.reductions import INDEX_WORD
from dmlcpu.kernels.scatter_nd import reduction as reductions
from dmlcpu.kernels.scatter_nd.choose import is_serial, kind_of
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.operators.scatter_nd.call import Call
from dmlcpu.runtime.memory import first_word, packed_strides, word_strides

Fields = dict[str, Any]  # of the work record


@dataclass(frozen=True, slots=True)
class Tensors:
    """Shapes, and strides in the words of the kernels."""

    shape: tuple[int, ...]  # of out
    outer: tuple[int, ...]  # of the tuples, and of the updates
    coordinates: int  # of a tuple
    count: int  # of updates
    width: int  # bytes of a word
    element: int  # words of an element
    slice_shape: tuple[int, ...]  # of an update
    slice_size: int  # words of an update
    out: tuple[int, ...]
    indices: tuple[int, ...]  # here words are INDEX_WORD
    updates: tuple[int, ...]
    span: int  # words from out's first to its last
    is_in_order: bool  # out is packed, in C order


def tensors_of(call: Call, element: np.dtype[Any]) -> Tensors:
    """Return shapes, and strides in the words of the kernels."""
    shape, (*outer, coordinates) = call.x.shape, call.indices.shape
    width, slice_shape = element.itemsize, shape[coordinates:]
    size, out = call.x.dtype.itemsize // width, word_strides(call.out.steps, width)
    return Tensors(
        shape=shape,
        outer=tuple(outer),
        coordinates=coordinates,
        count=call.number,
        width=width,
        element=size,
        slice_shape=slice_shape,
        slice_size=math.prod(slice_shape) * size,
        out=out,
        indices=word_strides(call.indices.steps, INDEX_WORD.itemsize),
        updates=word_strides(call.updates.steps, width),
        span=sum((n - 1) * abs(stride) for n, stride in zip(shape, out, strict=True)) + size,
        is_in_order=out == packed_strides(shape, size),
    )


def lay_out(tensors: Tensors, index_type: np.dtype[Any], reduction: int, half: int) -> Fields:
    """Return the fields of the work record about the layout of tensors and the reduction."""
    tuples, slices = _tuples(tensors, index_type), _slices(tensors, reduction, half)
    outer = tensors.outer
    sizes, strides = merge(outer, tensors.updates[: len(outer)])
    start = first_word(outer + tensors.slice_shape, tensors.updates)
    updates = {"start": start, "walk": walk_of(sizes), "strides": strides}
    slices["kind"] = _kind(tensors, tuples, updates, slices, reduction)
    # Shares own whole slices if these follow one another, else words.
    ranges = {"count": tensors.span, "size": 1}
    if tensors.is_in_order:
        ranges = {"count": math.prod(tensors.shape[: tensors.coordinates]), "size": tensors.slice_size}
    parts = {"tuples": tuples, "updates": updates, "slices": slices, "ranges": ranges}
    serial = is_serial(slices["kind"], reduction, half)
    return {**parts, "reduction": reduction, "half": half, "is_serial": serial}


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
    """Return the kind of an update."""
    is_even = tensors.count > 0 and updates["walk"]["dims"] == slices["runs"] == 1
    is_index = tensors.coordinates == tuples["walk"]["dims"] == 1
    is_even_index = tuples["strides"][0] % (1 + tuples["is_wide"]) == 0
    has_places = is_index and is_even_index and (tuples["out_start"], *tuples["out_steps"]) == (0, 1)
    return kind_of(tensors.slice_size, is_even, has_places, slices["in_vectors"], reduction)
