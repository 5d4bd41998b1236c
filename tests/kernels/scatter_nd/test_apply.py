"""How places are checked that are read where they lie: the numbers that `update_places` gets."""

from typing import NamedTuple

import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels.scatter_nd import apply


class Tuples(NamedTuple):
    sizes: tuple[int, ...]
    is_signed: int
    is_wide: int


@njit
def bounds_of(tuples):
    return apply.bounds_of(tuples)


@pytest.mark.parametrize("size", [0, 1, 9, 2**31 - 1, 2**31, 2**31 + 5, 2**32 - 1, 2**32 + 5])
@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
def test_bounds_of_places_of_each_type(dtype, size):
    """Outputs of more than 2**31 elements, too, for which tests have no room."""
    dtype, limits = np.dtype(dtype), np.iinfo(dtype)
    limit, found, from_end = map(int, bounds_of(Tuples((size,), dtype.kind == "i", dtype.itemsize == 8)))
    assert found == size
    near = {middle + i for middle in (0, size, -size, 2**31, 2**32, size - 2**32) for i in range(-2, 3)}
    lowest = -size if dtype.kind == "i" else 0
    for index in {limits.min, limits.max, *(i for i in near if limits.min <= i <= limits.max)}:
        raw = index % 2 ** (8 * dtype.itemsize)
        place = raw if raw < limit else (raw + from_end) % 2**64
        assert (place < size) == (lowest <= index < size)
        assert place >= size or place == index % size
