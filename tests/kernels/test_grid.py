import numpy as np
import pytest
from hypothesis import given, strategies as st

from dmlcpu.kernels.grid import flatten, make_grid, offset


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
            assert offset.py_func(grid, tensor, position) == expected
