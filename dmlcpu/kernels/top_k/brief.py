"""What every top_k kernel is told; see kernels/brief.py."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlcpu.kernels import brief as briefs
from dmlcpu.kernels.brief import Brief, section
from dmlcpu.kernels.grid import Grid, flatten
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device, viewer


def make_brief(numbers: tuple[int, ...], codes: NDArray[Any], grid: Grid) -> Brief:
    """Return the brief that `unpack` takes apart: the numbers it names, the keys' codes, and the grid."""
    return briefs.make_brief(numbers, codes.astype(np.int64), flatten(grid))


@viewer
def scratch_of(part, parts, x, brief, scratch):
    """Return the scratch of a part: keys as wide as x, and positions.

    scratch: int64, positions (parts, positions a part) and behind them keys (parts, keys a part).
    """
    numbers = section(brief, 0)
    keys_length, positions_length = numbers[10], numbers[11]
    keys = as_words(scratch, parts * positions_length, x)
    return (
        keys[part * keys_length : (part + 1) * keys_length],
        scratch[part * positions_length : (part + 1) * positions_length],
    )


@viewer
def unpack(x, brief):
    """Return where the sequences start and how they go on, and what to select. x: words."""
    numbers, cells, grid = section(brief, 0), section(brief, 1), section(brief, 2)
    word = x.dtype.type
    codes = word(cells[0]), word(cells[1]), word(cells[2]), word(cells[3]), word(cells[4])
    x_start, x_step, v_start, v_step = numbers[0], numbers[1], numbers[2], numbers[3]
    i_start, i_step, words, rows, n, k = numbers[4], numbers[5], numbers[6], numbers[7], numbers[8], numbers[9]
    return x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes


@device
def wants_order(brief):
    """Return whether the winners have to be sorted."""
    return brief[brief[0] + 12] != 0
