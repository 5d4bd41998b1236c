"""What NumPy itself gives for a call, where it defines the result."""

import inspect
from typing import Any

import numpy as np
from samples import FLOATS, Sample

from dmlcpu.operators import OPERATORS

UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def by_numpy(call: Sample) -> Any:
    """Return an array, or a tuple of arrays; None if NumPy does not have the operator, or these options of it.

    They may be in x's byte order.
    """
    if call.operator not in CALLS:
        return None
    bound = inspect.signature(OPERATORS[call.operator].function).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    with np.errstate(invalid="ignore"):  # NumPy reports a signaling NaN
        return CALLS[call.operator](**{name: value for name, value in bound.arguments.items() if name != "out"})


def sort(x, axis, descending, nan):
    if descending:
        found = sort_with_indices(x, axis, descending, nan, np.int64)
        return found and found[0]
    return None if x.dtype.kind == "V" else np.sort(x, axis, kind="stable")  # "V": bfloat16


def argsort(x, axis, descending, nan, index_dtype):
    numbers = widened(x)
    if not descending:
        return np.argsort(numbers, axis, kind="stable").astype(index_dtype)
    if nan == "last" and np.isnan(numbers).any():
        return None
    turned = np.argsort(np.flip(numbers, axis), axis, kind="stable")
    return (x.shape[axis] - 1 - np.flip(turned, axis)).astype(index_dtype)


def sort_with_indices(x, axis, descending, nan, index_dtype):
    order = argsort(x, axis, descending, nan, np.int64)
    return None if order is None else (np.take_along_axis(x, order, axis), order.astype(index_dtype))


def argmax(x, axis, select_last, keepdims, index_dtype, find=np.argmax):
    if select_last or isinstance(axis, tuple):
        return None
    return np.asarray(find(widened(x), axis, keepdims=keepdims)).astype(index_dtype)


def argmin(**given):
    return argmax(**given, find=np.argmin)


def gather_elements(x, indices, axis, mode):
    if mode != "raise" or not are_alike(x, indices, axis):
        return None
    return np.take_along_axis(x, indices.astype(np.int64), axis)


def scatter_elements(x, indices, updates, axis, reduction, mode):
    if mode != "raise" or not are_alike(x, indices, axis):
        return None
    y, places = x.copy(), indices.astype(np.int64)
    if reduction == "none":
        np.put_along_axis(y, places, updates, axis)
        return y
    if x.dtype.kind not in "biu":  # floats: NumPy keeps a NaN's payload
        return None
    where = list(np.indices(places.shape, sparse=True))
    where[axis] = places
    UFUNCS[reduction].at(y, tuple(where), updates)
    return y


def widened(x):
    """Return floats as float64, without loss."""
    return x.astype(np.float64) if x.dtype.newbyteorder("=") in FLOATS else x


def are_alike(x, indices, axis):
    """Return whether the sizes are equal but along an axis."""
    return all(mine == n for d, (mine, n) in enumerate(zip(indices.shape, x.shape, strict=True)) if d != axis % x.ndim)


CALLS = {
    each.__name__: each
    for each in (sort, argsort, sort_with_indices, argmax, argmin, gather_elements, scatter_elements)
}
