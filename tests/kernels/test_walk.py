import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import njit

from dmlcpu.kernels.walk import STRIDES, WALK, merge, offset, offsets, share, walk_of
from dmlcpu.runtime.records import record, record_at, record_of

WORK = record(walk=WALK, strides=STRIDES)


@njit
def offset_of(works, position):
    work = record_at(works, 0, WORK)
    return offset(work.walk, work.strides, position)


@njit
def write_offsets(works, first, count, start, found):
    work = record_at(works, 0, WORK)
    offsets(work.walk, work.strides, first, count, start, found)


@njit
def share_of(part, parts, count):
    return share(part, parts, count)


def work_of(sizes, strides):
    return record_of(WORK, walk=walk_of(sizes), strides=strides)


def expected_offsets(sizes, strides):
    return [sum(i * stride for i, stride in zip(where, strides, strict=True)) for where in np.ndindex(*sizes)]


@pytest.mark.parametrize(
    ("sizes", "strides", "merged"),
    [
        ((), ((), ()), ([1], [0], [0])),
        ((1, 1), ((5, 7), (9, 1)), ([1], [0], [0])),
        ((2, 3, 4), ((12, 4, 1), (24, 8, 2)), ([24], [1], [2])),
        ((2, 3, 4), ((12, 4, 1), (1, 2, 6)), ([2, 3, 4], [12, 4, 1], [1, 2, 6])),
        ((2, 1, 3), ((3, 99, 1), (3, -5, 1)), ([6], [1], [1])),
        ((5, 3), ((0, 0), (-3, -1)), ([15], [0], [-1])),
    ],
)
def test_neighbouring_dimensions_are_merged(sizes, strides, merged):
    assert merge(sizes, *strides) == merged


@given(st.lists(st.integers(1, 4), max_size=5), st.data())
def test_offset_walks_like_numpy_in_every_tensor(sizes, data):
    tensors = [data.draw(st.lists(st.integers(-9, 9), min_size=len(sizes), max_size=len(sizes))) for _ in range(2)]
    merged_sizes, *merged = merge(sizes, *tensors)
    for strides, merged_strides in zip(tensors, merged, strict=True):
        works = work_of(merged_sizes, merged_strides)
        found = [offset_of(works, position) for position in range(math.prod(sizes))]
        assert found == expected_offsets(sizes, strides)


@given(st.lists(st.integers(1, 5), max_size=4), st.data())
def test_offsets_of_a_range_are_those_of_its_positions(sizes, data):
    strides = data.draw(st.lists(st.integers(-9, 9), min_size=len(sizes), max_size=len(sizes)))
    merged_sizes, merged = merge(sizes, strides)
    first = data.draw(st.integers(0, math.prod(sizes)))
    count = data.draw(st.integers(0, math.prod(sizes) - first))
    found = np.full(count + 1, 99)
    write_offsets(work_of(merged_sizes, merged), first, count, 7, found)
    assert found.tolist() == [7 + each for each in expected_offsets(sizes, strides)[first : first + count]] + [99]


@given(st.integers(0, 50), st.integers(1, 60))
def test_shares_are_even_and_follow_one_another(count, parts):
    shares = [share_of(part, parts, count) for part in range(parts)]
    assert [i for first, last in shares for i in range(first, last)] == list(range(count))
    assert max(last - first for first, last in shares) - min(last - first for first, last in shares) <= 1
