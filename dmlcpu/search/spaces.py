"""The meaning of vectors: the metric, and the numbers that bytes represent."""

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from dmlcpu.annotations import Array, Metric
from dmlcpu.common.arguments import as_array, check_choice, check_type
from dmlcpu.common.data_types import BYTE_TYPES
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError

METRICS = get_args(Metric)
FLOATS = ("float32", "float16", "bfloat16", "float64")
MOST_DIMENSIONS = 16_384  # twice a sum of this many products, less a sum of squares, fits in an int32
_MIDDLE = 128
_HALF = 0.5  # bytes come of rounding down: a byte stands for the middle of its bucket


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """The metric of an index and, if its bytes are affine, the number of each: value = step * byte + offset."""

    metric: Metric
    depth: int  # D
    ranges: Array | None = None  # float32 (2, D): the least and the greatest value of each dimension

    def steps(self) -> Array:
        """Return the step between two bytes of each dimension, float32 (D,)."""
        assert self.ranges is not None
        found: Array = (self.ranges[1] - self.ranges[0]) / np.float32(255)
        return found

    def centres(self) -> Array:
        """Return the value of the middle byte of each dimension, 128 of uint8 or 0 of int8: float32 (D,)."""
        assert self.ranges is not None
        found: Array = self.ranges[0] + np.float32(_MIDDLE + _HALF) * self.steps()
        return found

    def from_centres(self, codes: Array) -> Array:
        """Return the numbers that affine bytes stand for, less the centers, float32."""
        from_middle: Array = codes.astype(np.float32) - np.float32(middle_of(codes.dtype))
        return from_middle * self.steps()

    def decoded(self, codes: Array) -> Array:
        """Return the numbers that affine bytes stand for, float32."""
        return self.from_centres(codes) + self.centres()


def check_depth(operator: str, depth: int) -> None:
    """Refuse a number of dimensions."""
    if not 1 <= depth <= MOST_DIMENSIONS:
        raise BindingError(operator, "vectors.shape[1]", str(depth), f"1 to {MOST_DIMENSIONS} dimensions")


def middle_of(dtype: np.dtype[Any]) -> int:
    """Return the byte of a type that stands for the middle of a range."""
    return 0 if dtype == np.int8 else _MIDDLE


def space_of(operator: str, metric: Any, vectors: Array | Tensor, ranges: Any) -> Space:
    """Return the space of vectors (N, D), or refuse it."""
    depth, dtype = vectors.shape[1], vectors.dtype
    check_choice(operator, "metric", metric, METRICS)
    check_depth(operator, depth)
    if ranges is None:
        return Space(metric, depth)
    array = as_array(operator, "ranges", ranges)
    check_type(operator, "ranges", array.dtype, FLOATS)
    if array.shape != (2, depth):
        raise BindingError(operator, "ranges.shape", str(array.shape), f"(2, {depth}): the least and greatest values")
    array = array.astype(np.float32)  # a copy
    bad = ~((array[0] <= array[1]) & (np.abs(array).max(axis=0) <= np.float32(1e15)))
    if bad.any():
        place = int(np.argmax(bad))
        found = f"{array[0, place]} to {array[1, place]}"
        raise DmlError(operator, f"ranges[:, {place}]", found, "a least and a greatest number, of at most 1e+15")
    if dtype.itemsize > 1:
        raise BindingError(operator, "vectors.dtype", str(dtype), "int8 or uint8, as `ranges` is given")
    return Space(metric, depth, array)


def as_numbers(operator: str, field: str, value: Any) -> Array:
    """Return an array; integers in lists become float64."""
    array = as_array(operator, field, value)
    is_listed = array.dtype.kind in "iu" and not hasattr(value, "dtype") and array.ndim > 0
    return array.astype(np.float64) if is_listed else array


def as_vectors(operator: str, field: str, value: Any, depth: int | None = None) -> Array:
    """Return vectors as a matrix (N, D) of bytes or floats; one vector may stand for itself if `depth` is given."""
    array = as_array(operator, field, value)
    if array.ndim == 0:
        found = "a number" if array.dtype.kind in "biufc" else f"a scalar of {array.dtype}"
        raise BindingError(operator, field, found, "a matrix (N, D); there is no index without vectors")
    if isinstance(value, list | tuple) and array.dtype.kind == "f" and not array.size:
        array = array.astype(np.float32)
    check_type(operator, field, array.dtype, (*BYTE_TYPES, *FLOATS))
    if array.ndim == 1 and depth is not None:
        array = array[None]
    if array.ndim != 2 or depth not in (None, array.shape[1]):
        wanted = "a matrix (N, D)" if depth is None else f"(M, {depth}) or ({depth},)"
        if array.ndim > 2 and depth in (None, array.shape[-1]):
            wanted += f", with {field}.reshape(-1, {array.shape[-1]})"
        elif depth is not None:
            wanted += f": the vectors of the index have {depth} dimension{'s' * (depth != 1)}"
        raise BindingError(operator, f"{field}.shape", str(np.shape(value)), wanted)
    return array
