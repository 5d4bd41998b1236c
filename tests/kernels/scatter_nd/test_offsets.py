"""The vector operations on index tuples and offsets, against NumPy."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from jitted import jitted
from samples import INDEX_TYPES

from dmlcpu.kernels.scatter_nd import offsets
from dmlcpu.kernels.scatter_nd.offsets import Indices
from dmlcpu.kernels.scatter_nd.owned import Owned

load_index = jitted(offsets.load_index)
add_lines = jitted(offsets.add_lines)
select_range = jitted(offsets.select_range)
select_places = jitted(offsets.select_places)
is_any_out = jitted(offsets.is_any_out)


def as_words(indices):
    """Return the arguments of the operations: words, whether they are wide, whether they have a sign."""
    return indices.view(np.uint32), int(indices.itemsize == 8), int(indices.dtype.kind == "i")


@pytest.mark.parametrize("dtype", INDEX_TYPES, ids=str)
def test_load_index(dtype):
    info = np.iinfo(dtype)
    indices = np.array([info.min, info.max, 0, 1, info.max // 3], dtype)
    words, wide, signed = as_words(indices)
    found = [load_index(words, i * (1 + wide), wide, signed) for i in range(indices.size)]
    assert found == indices.astype(np.int64).tolist()


@pytest.mark.parametrize("dtype", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("apart", [1, 2, 3, -1])
@pytest.mark.parametrize("wrong", [None, "low", "high", "far"])
def test_add_lines(dtype, apart, wrong):
    rng = np.random.default_rng(3)
    size, count, step = 1_000, 3 * offsets.LANES, -7
    indices = rng.integers(-size if dtype.kind == "i" else 0, size, 100).astype(dtype)
    first = 20 if apart > 0 else 60
    here = first + apart * 13
    bad = {None: indices[here], "low": -size - 1, "high": size, "far": np.iinfo(dtype).max}
    indices[here] = np.array([bad[wrong]]).astype(dtype)[0]  # -1 - size is a large number in unsigned types
    words, wide, signed = as_words(indices)
    where = rng.integers(0, 100, count)
    chosen = indices[first : first + apart * count : apart].astype(np.int64)
    expected = where + step * np.where(chosen < 0, chosen + size, chosen)
    width = 1 + wide
    given = Indices(words, first * width, apart * width, wide, signed, size)
    assert is_any_out(given, count) == (wrong is not None)
    found = add_lines(given, step, where, count)
    assert found == (wrong is not None)
    if wrong is None:
        assert where.tolist() == expected.tolist()


@given(st.lists(st.integers(-1, 30), max_size=60), st.integers(0, 30), st.integers(0, 30) | st.none())
def test_select_range(where, first, length):
    last = np.iinfo(np.int64).max if length is None else first + length  # without an end: no negative offsets
    padded = np.array([*where, *range(offsets.LANES)])  # offsets behind `count` must not be found
    own, numbers = np.full((2, padded.size), -9)
    found = select_range(padded, len(where), first, last, own, numbers)
    expected = [(place, i) for i, place in enumerate(where) if first <= place < last]
    assert list(zip(own[:found].tolist(), numbers[:found].tolist(), strict=True)) == expected


@pytest.mark.parametrize("value_type", ["uint8", "float16", "int32", "float32", "float64"])
@pytest.mark.parametrize("dtype", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("wrong", [None, "low", "high", "far"])
def test_select_places(dtype, wrong, value_type):
    rng = np.random.default_rng(6)
    size, count = 50, 4 * offsets.LANES
    indices = rng.integers(-size if dtype.kind == "i" else 0, size, 2 + count).astype(dtype)
    bad = {None: indices[17], "low": -size - 1, "high": size, "far": np.iinfo(dtype).max}
    indices[17] = np.array([bad[wrong]]).astype(dtype)[0]
    words, wide, signed = as_words(indices)
    values = rng.standard_normal(count + 1).astype(value_type).view(f"u{np.dtype(value_type).itemsize}")
    own, chosen = np.full(count, -9), np.zeros(count, values.dtype)
    width = 1 + wide
    given = Indices(words, 2 * width, width, wide, signed, size), values, 1, count
    for first, last in ((10, 30), (0, np.iinfo(np.int64).max), (7, 7)):
        found = select_places(*given, Owned(first, last), own, chosen)
        if wrong is not None:
            assert found == -1
            continue
        where = indices[2:].astype(np.int64)
        where += np.where(where < 0, size, 0)
        is_own = (first <= where) & (where < last)
        assert own[:found].tolist() == where[is_own].tolist()
        assert chosen[:found].tolist() == values[1:][is_own].tolist()
