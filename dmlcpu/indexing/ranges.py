"""Which indices are out of range, and the range that an error names."""

from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Shape


def is_out(indices: Array, sizes: Shape) -> Array:
    """Return which indices are outside their dimension; sizes: one, or one for each coordinate of a tuple."""
    if indices.dtype.kind == "u" and indices.itemsize >= 4:
        return np.asarray(indices >= np.array(sizes, np.uint64))
    limits = np.array(sizes, np.int64)
    return np.asarray((indices < -limits) | (indices >= limits))


def range_of(dtype: np.dtype[Any], size: int) -> str:
    """Return the valid indices of a type for a dimension of a size."""
    lowest = 0 if dtype.kind == "u" and dtype.itemsize >= 4 else -size  # shorter ones are read as int64
    return f"{lowest} to {size - 1}" if size else "none"
