"""Top-k of few winners along an axis that is not the last: each vector lane keeps the k best of its own column.

The first k lines of the input are read from the last to the first, the others as they come, each once. Most newcomers
do not exceed the last of the k best, which one comparison tells for a whole line of columns. One that does pushes out
the first it exceeds, and what was pushed out goes on to the next place in the same way; so of equal elements the one
that came first stands first. The first k have to get in whatever they are: each takes the place of what it reaches.
"""

import numpy as np

from dmlcpu.kernels.grid import offset, side_step
from dmlcpu.kernels.top_k.brief import scratch_of, unpack
from dmlcpu.kernels.top_k.groups import LINE, Sequences
from dmlcpu.kernels.top_k.keys import load_keys
from dmlcpu.runtime.intrinsics import as_words, exceed_any, insert, insert_after_equals, line_of, prefetch
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

# Lines of columns that are worked on together. Measured on 10,000 x 1,000 float32 along axis 0, k 10, two threads, ms:
# 4 lines 7.5, 8 lines 3.6, 16 lines 2.5.
LINES = 16
COLUMNS = LINES * LINE
# How many elements ahead of its use a line is asked for: processors do not foresee jumps from line to line. Measured
# on the same: 8 elements 2.5 ms, 16 elements 2.8.
AHEAD = 8


def takes(work: Sequences) -> bool:
    """Return whether the kernel can do this."""
    return work.line > 1 and work.n < 2**32


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of keys and of positions each share of the work needs."""
    return (k + 1) * COLUMNS, k * COLUMNS // 2


@device
def sweep_block(x, start, step, width, n, k, codes, columns, key, best, places):
    """Find the k greatest of `width` columns. key: (columns,); best, places: (k, columns), but flat."""
    for cell in range(k * columns):
        best[cell] = 0  # the least key there is gives way to every element
    lanes = line_of(x)
    for turn in range(n):
        i = k - 1 - turn if turn < k else turn
        begin = start + i * step
        load_keys(x, begin, 1, width, codes, key)
        for column in range(0, width, lanes):  # lanes beyond work on what is left there
            prefetch(x, begin + AHEAD * step + column)
            if turn < k:
                insert(key, column, i, best, places, column, columns, k)
            elif exceed_any(key, column, best, (k - 1) * columns + column):
                insert_after_equals(key, column, i, best, places, column, columns, k)


@device
def write_line(x, start, step, places, width, values, v, v_side, indices, i, i_side, words):
    """Write the elements at places[:width] of neighbouring columns, and these numbers, to their output lines."""
    for column in range(width):
        position = np.int64(places[column])
        values[np.uintp(v + column * v_side)] = x[np.uintp(start + column + position * step)]
        low = np.uintp(i + column * i_side)
        indices[low] = places[column]
        if words == 2:
            indices[low + np.uintp(1)] = 0


@kernel
def sweep(part, parts, x, values, indices, brief, scratch):
    """Select in a share of the sequences; those of the grid's last dimension lie side by side in x. See brief.py."""
    x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes = unpack(x, brief)
    keys, positions = scratch_of(part, parts, x, brief, scratch)
    places = as_words(positions, 0, indices)
    columns = LINES * line_of(x)
    line, v_side, i_side = side_step(grid, 0), side_step(grid, 2), side_step(grid, 3)
    a_line = (line + columns - 1) // columns
    blocks = rows // line * a_line
    for block in range(part * blocks // parts, (part + 1) * blocks // parts):
        row = block // a_line * line + block % a_line * columns
        width = min(columns, line - block % a_line * columns)
        start = x_start + offset(grid, 1, row)
        sweep_block(x, start, x_step, width, n, k, codes, columns, keys[:columns], keys[columns:], places)
        v, i = v_start + offset(grid, 2, row), i_start + offset(grid, 3, row)
        for j in range(k):
            write_line(x, start, x_step, places[j * columns :], width, values, v + j * v_step, v_side,
                       indices, i + j * i_step, i_side, words)  # fmt: skip
