"""Arguments as Dask arrays, and stand-ins for them."""

import math
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed

from dmlcpu.common.arguments import Array, as_array, as_integer
from dmlcpu.errors import BindingError, DmlError, UnsupportedError


def as_dask(operator: str, field: str, value: Any) -> da.Array:
    """Return an argument as a Dask array with chunks of known sizes."""
    if dask.is_dask_collection(value):
        if isinstance(value, Delayed) or not hasattr(value, "dtype"):  # or a bag
            found = type(value).__name__
            raise TypeError(f"{operator}: {field} is {found}; allowed: an array, as dask.array.from_delayed makes one")
        value = da.asarray(value)
    elif not isinstance(value, np.memmap):  # Dask names memory maps without reading them
        value = as_array(operator, field, value)
    array = value if isinstance(value, da.Array) else da.from_array(value)
    if type(array._meta) is not np.ndarray:
        found = f"a dask array of {type(array._meta).__name__}"
        raise TypeError(f"{operator}: {field} is {found}; allowed: a dask array of numpy.ndarray")
    if any(math.isnan(size) for size in array.shape):
        raise BindingError(operator, f"{field}.shape", str(array.shape), "known sizes, as compute_chunk_sizes() finds")
    return array


def stand_in(array: da.Array, value: int | None = None) -> Array:
    """Return an array of the same shape and type that takes no memory, for the functions' own checks."""
    element = np.empty((), array.dtype.newbyteorder("=")) if value is None else np.array(value, array.dtype)
    return np.broadcast_to(element, array.shape)


def meta_of(dimensions: int, dtype: np.dtype[Any]) -> Array:
    """Return an empty array, by which Dask knows the type of chunks."""
    return np.empty((0,) * dimensions, dtype)


def at_a_time(operator: str, value: Any, out: Any) -> int:
    """Return the number of chunks to reduce at a time; refuse an `out`."""
    if out is not None:
        raise UnsupportedError(operator, "out", type(out).__name__, "None (Dask arrays are immutable)")
    every = as_integer(operator, "split_every", dask.config.get("split_every", None) or 4 if value is None else value)
    if every < 2:
        raise DmlError(operator, "split_every", str(every), "at least 2")
    return every


def without_empty(array: da.Array) -> da.Array:
    """Return an array without empty chunks: Dask's broadcasting and reshaping fail on some of them."""
    return array.rechunk(tuple(tuple(size for size in sizes if size) or (0,) for sizes in array.chunks))
