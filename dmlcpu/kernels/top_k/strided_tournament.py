"""Top-k of small k along an axis that is not the last: blocks of neighbouring columns, read line by line as they lie.

A group is STRIPES neighbouring elements of one column; the maxima of all columns of a block form in whole vectors. Then
each column is finished by itself, as groups.py tells. No column is ever copied.
"""

import numpy as np

from dmlcpu.kernels.grid import offset, side_step
from dmlcpu.kernels.top_k import groups
from dmlcpu.kernels.top_k.brief import scratch_of, unpack
from dmlcpu.kernels.top_k.groups import (
    STRIPES,
    TILE,
    Sequences,
    drop_losers,
    finish,
    lower_bound,
    room,
)
from dmlcpu.kernels.top_k.keys import key_of, load_keys, write_row
from dmlcpu.runtime.intrinsics import line_of, prefetch
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

# Columns in a block: a few cache lines of each line of the input, and maxima that fit a cache.
COLUMNS = 128
# How many lines ahead of its use a line is asked for: processors do not foresee jumps from line to line.
# Chosen as in sweep.py, not measured here.
AHEAD = 16


def takes(work: Sequences) -> bool:
    """Return whether the kernel can do this."""
    return work.line > 1 and work.n >= STRIPES * work.k


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of keys and of positions each share of the work needs."""
    keys, positions = groups.scratch(k, n // STRIPES + STRIPES)
    return keys + n // STRIPES * COLUMNS, positions


@device
def find_maxima(x, start, step, width, n, codes, maxima):
    """Write the maxima of the whole groups of `width` columns. maxima: (n // STRIPES, COLUMNS), but flat."""
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    lanes = line_of(x)
    for group in range(n // STRIPES):
        best = maxima[group * COLUMNS : (group + 1) * COLUMNS]
        for column in range(width):
            best[column] = 0
        for i in range(group * STRIPES, (group + 1) * STRIPES):
            line = x[start + i * step :][:width]
            for column in range(0, width, lanes):
                prefetch(x, start + (i + AHEAD) * step + column)
            for column in range(width):
                best[column] = max(best[column], key_of(line[column], mask, positive, infinity, flip, nan))


@device
def gather(x, start, step, n, codes, maxima, groups, k, least, is_greatest, keys, positions):
    """Write elements that reach a key, among them the k greatest, by ascending position; return how many."""
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    whole = n // STRIPES
    filled = np.uintp(0)
    for group in range(groups):
        if maxima[group] < least:
            continue
        first, last = group * STRIPES, (group + 1) * STRIPES
        if group >= whole:  # a group of one
            first = whole * (STRIPES - 1) + group
            last = first + 1
        for i in range(first, last):
            key = key_of(x[start + i * step], mask, positive, infinity, flip, nan)
            keys[filled] = key
            positions[filled] = i
            filled += np.uintp(1) if key >= least else np.uintp(0)
        if is_greatest and filled >= np.uintp(k):
            break
        if filled > np.uintp(room(k) - TILE):
            least = drop_losers(keys, positions, np.intp(filled), k, positions[room(k) :])
            filled = np.uintp(k)
            if least == 0:
                break
    return np.intp(filled)


@kernel
def columns(part, parts, x, values, indices, brief, scratch):
    """Select in a share of the sequences; those of the grid's last dimension lie side by side in x. See brief.py."""
    x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes = unpack(x, brief)
    keys, positions = scratch_of(part, parts, x, brief, scratch)
    whole = n // STRIPES
    groups = whole + n % STRIPES
    block_maxima = keys[: whole * COLUMNS]
    rest = keys[whole * COLUMNS :]
    maxima = rest[k + room(k) :]
    line, v_side, i_side = side_step(grid, 0), side_step(grid, 2), side_step(grid, 3)
    a_line = (line + COLUMNS - 1) // COLUMNS
    blocks = rows // line * a_line
    for block in range(part * blocks // parts, (part + 1) * blocks // parts):
        row = block // a_line * line + block % a_line * COLUMNS
        width = min(COLUMNS, line - block % a_line * COLUMNS)
        start, v, i = x_start + offset(grid, 1, row), v_start + offset(grid, 2, row), i_start + offset(grid, 3, row)
        find_maxima(x, start, x_step, width, n, codes, block_maxima)
        for column in range(width):
            for group in range(whole):
                maxima[group] = block_maxima[group * COLUMNS + column]
            first = start + column
            load_keys(x, first + whole * STRIPES * x_step, x_step, n % STRIPES, codes, maxima[whole:])
            least, is_greatest = lower_bound(maxima, groups, k, rest)
            found = gather(x, first, x_step, n, codes, maxima, groups, k, least, is_greatest, rest[k:], positions[k:])
            finish(k, found, rest, positions)
            write_row(x, first, x_step, positions, k, values, v + column * v_side, v_step,
                      indices, i + column * i_side, i_step, words)  # fmt: skip
