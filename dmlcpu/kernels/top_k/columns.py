"""Top-k of small k along an axis that is not the last: blocks of neighbouring columns, read line by line as they lie.

A group is STRIPES neighbouring elements of one column; the maxima of all columns of a block form in whole vectors. Then
each column is finished by itself, as groups.py tells. No column is ever copied.
"""

from numba import prange

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k import groups
from dmlcpu.kernels.top_k.brief import unpack
from dmlcpu.kernels.top_k.groups import STRIPES, Sequences, enough_groups, select
from dmlcpu.kernels.top_k.keys import key_of, load_keys, write_row
from dmlcpu.runtime.jit import device, kernel

# Columns in a block: a few cache lines of each line of the input, and maxima that fit a cache.
COLUMNS = 128


def takes(work: Sequences) -> bool:
    """Tell whether the kernel can do this."""
    return work.line > 1 and enough_groups(work.n, work.k)


@device
def block_maxima(x, start, step, width, n, codes, maxima):
    """Write the maxima of the whole groups of `width` columns. maxima: (n // STRIPES, COLUMNS)."""
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    for group in range(n // STRIPES):
        best = maxima[group, :width]
        line = x[start + group * STRIPES * step :][:width]
        for column in range(width):
            best[column] = key_of(line[column], mask, positive, infinity, flip, nan)
        for stripe in range(1, STRIPES):
            line = x[start + (group * STRIPES + stripe) * step :][:width]
            for column in range(width):
                best[column] = max(best[column], key_of(line[column], mask, positive, infinity, flip, nan))


@device
def select_blocks(first, last, line, x, x_start, x_step, values, v_start, v_step, indices, i_start, i_step,
                  words, grid, n, k, codes, keys, positions):  # fmt: skip
    """Do the blocks first, ..., last - 1 of columns; `line` columns lie side by side."""
    whole = n // STRIPES
    room = whole + STRIPES
    maxima = keys[: whole * COLUMNS].reshape(whole, COLUMNS)
    own, rest = keys[whole * COLUMNS :][:room], keys[whole * COLUMNS + room :]
    blocks = (line + COLUMNS - 1) // COLUMNS
    for block in range(first, last):
        row = block // blocks * line + block % blocks * COLUMNS
        width = min(COLUMNS, line - block % blocks * COLUMNS)
        start = x_start + offset(grid, 1, row)
        block_maxima(x, start, x_step, width, n, codes, maxima)
        for column in range(width):
            for group in range(whole):
                own[group] = maxima[group, column]
            begin = start + column
            load_keys(x, begin + whole * STRIPES * x_step, x_step, n - whole * STRIPES, codes, own[whole:])
            select(x, begin, x_step, n, k, 1, codes, own, whole + n % STRIPES, rest, positions)
            v = v_start + offset(grid, 2, row + column)
            i = i_start + offset(grid, 3, row + column)
            write_row(x, begin, x_step, positions, k, values, v, v_step, indices, i, i_step, words)


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of keys and of positions each share of the work needs."""
    keys, positions = groups.scratch(n, k)
    return keys + n // STRIPES * COLUMNS, positions


@kernel
def columns(parts, x, values, indices, brief, scratch):
    """Select in every sequence; those of the grid's last dimension lie side by side in x. See brief.py."""
    (x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes, keys,
     positions) = unpack(parts, x, brief, scratch)  # fmt: skip
    line = grid[0, grid.shape[1] - 1]
    blocks = rows // line * ((line + COLUMNS - 1) // COLUMNS)
    for part in prange(parts):
        select_blocks(part * blocks // parts, (part + 1) * blocks // parts, line, x, x_start, x_step,
                      values, v_start, v_step, indices, i_start, i_step,
                      words, grid, n, k, codes, keys[part], positions[part])  # fmt: skip
