import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import njit

from dmlcpu.kernels.grid import flatten, make_grid, offset_by_columns, offsets, side_step


@pytest.mark.parametrize(
    ("sizes", "strides", "grid"),
    [
        ((), ((), ()), [[1], [0], [0]]),
        ((1, 1), ((5, 7), (9, 1)), [[1], [0], [0]]),
        ((2, 3, 4), ((12, 4, 1), (24, 8, 2)), [[24], [1], [2]]),
        ((2, 3, 4), ((12, 4, 1), (1, 2, 6)), [[2, 3, 4], [12, 4, 1], [1, 2, 6]]),
        ((2, 1, 3), ((3, 99, 1), (3, -5, 1)), [[6], [1], [1]]),
        ((5, 3), ((0, 0), (-3, -1)), [[15], [0], [-1]]),
    ],
)
def test_neighbouring_dimensions_are_merged(sizes, strides, grid):
    assert make_grid(sizes, *strides).tolist() == grid


@given(st.lists(st.integers(1, 4), max_size=5), st.data())
def test_offset_walks_like_numpy(sizes, data):
    strides = [data.draw(st.lists(st.integers(-9, 9), min_size=len(sizes), max_size=len(sizes))) for _ in range(2)]
    grid = flatten(make_grid(sizes, *strides))
    for position, where in enumerate(np.ndindex(*sizes)):
        for tensor in (1, 2):
            expected = sum(i * stride for i, stride in zip(where, strides[tensor - 1], strict=True))
            assert offset_by_columns.py_func(grid, tensor, position) == expected


@njit
def walk(grid, tensor, first, count, start, places):
    offsets(grid, tensor, first, count, start, places)


@given(st.lists(st.integers(1, 5), max_size=4), st.data())
def test_offsets_of_a_range_are_those_of_its_positions(sizes, data):
    strides = data.draw(st.lists(st.integers(-9, 9), min_size=len(sizes), max_size=len(sizes)))
    grid = flatten(make_grid(sizes, strides))
    size = math.prod(sizes)
    first = data.draw(st.integers(0, size))
    count = data.draw(st.integers(0, size - first))
    places = np.full(count, 99)
    walk(grid, 1, first, count, 7, places)
    assert places.tolist() == [7 + offset_by_columns.py_func(grid, 1, first + i) for i in range(count)]


def test_side_step_is_the_stride_of_the_last_dimension():
    grid = flatten(make_grid((2, 3), (30, 5), (1, 2)))
    assert [side_step.py_func(grid, tensor) for tensor in (0, 1, 2)] == [3, 5, 2]
