"""Walking through arrays of any strides by one running number.

A *grid* is a small int64 array: row 0 holds the sizes of some dimensions, every further row the strides one tensor
has along them. Neighbouring dimensions that every tensor runs through evenly are merged, so that most grids have one
column. Kernels are given it flat, behind the number of its columns: reshaping compiles longer than all there is here.
Position p of the grid, counted in row-major order, lies ``offset(flat_grid, t, p)`` words from the start of tensor t.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmlcpu.runtime.jit import device

Grid = NDArray[np.int64]


def make_grid(sizes: Sequence[int], *strides: Sequence[int]) -> Grid:
    """Return the grid of dimensions of these sizes, with each tensor's strides, in as few columns as possible."""
    columns: list[list[int]] = []
    for column in zip(sizes, *strides, strict=True):
        if column[0] == 1:
            continue
        if columns and all(
            outer == inner * column[0] for outer, inner in zip(columns[-1][1:], column[1:], strict=True)
        ):
            columns[-1] = [columns[-1][0] * column[0], *column[1:]]
        else:
            columns.append(list(column))
    if not columns:
        columns = [[1] + [0] * len(strides)]
    return np.array(columns, np.int64).T.copy()


def flatten(grid: Grid) -> NDArray[np.int64]:
    """Return a grid as kernels are given it."""
    return np.concatenate([[grid.shape[1]], grid.reshape(-1)])


@device
def offset_by_columns(grid, tensor, position):
    """Do what `offset` does for any grid."""
    result = 0
    columns = grid[0]
    for column in range(columns, 1, -1):
        size = grid[column]
        result += (position % size) * grid[tensor * columns + column]
        position //= size
    return result + position * grid[tensor * columns + 1]


@device
def offset(grid, tensor, position):
    """Return how many words position `position` lies from the start of tensor `tensor` (1 is the first)."""
    if grid[0] == 1:  # so short that it is compiled into the caller: calls cost 20 ns
        return position * grid[tensor + 1]
    return offset_by_columns(grid, tensor, position)


@device
def side_step(grid, tensor):
    """Return how many words neighbours along the last dimension lie apart in tensor `tensor`; of 0, its size."""
    return grid[(tensor + 1) * grid[0]]


@device
def offsets_by_lines(grid, tensor, first, count, start, places):
    """Do what `offsets` does for any grid: along the last dimension it takes no division."""
    line, step = side_step(grid, 0), side_step(grid, tensor)
    done = 0
    while done < count:
        begin = start + offset(grid, tensor, first + done)
        run = min(count - done, line - (first + done) % line)
        for i in range(run):
            places[done + i] = begin + i * step
        done += run


@device
def offsets(grid, tensor, first, count, start, places):
    """Write start + offset(grid, tensor, position), for `count` positions from `first` on, to places[:count]."""
    if grid[0] > 1:
        offsets_by_lines(grid, tensor, first, count, start, places)
        return
    step = side_step(grid, tensor)
    for i in range(count):
        places[i] = start + (first + i) * step
