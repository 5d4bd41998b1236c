"""Dask arrays cut in many ways, and the check of their results, bit for bit."""

import dask
import dask.array as da
from samples import assert_same_bits


def cut(rng, n):
    """Cut n elements into chunks of 0 to 4."""
    sizes = []
    while sum(sizes) < n:
        sizes.append(int(rng.integers(0, min(4, n - sum(sizes)) + 1)))
    return tuple(sizes) or (0,)


def chunked(rng, x, always=True):
    """Return a Dask array with irregular chunks; sometimes, unless `always`, the array itself."""
    if not always and rng.random() < 0.3:
        return x
    return da.from_array(x, chunks=tuple(cut(rng, n) for n in x.shape))


def assert_equals(found, expected, case=""):
    """Compare lazy arrays with expected ones: types, shapes and bits."""
    found, expected = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
    for mine, right in zip(found, expected, strict=True):
        assert (mine.shape, mine.dtype, mine._meta.dtype) == (right.shape, right.dtype, right.dtype), case
    assert_same_bits(dask.compute(*found), expected, case)
