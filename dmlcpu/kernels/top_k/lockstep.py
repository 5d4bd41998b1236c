"""Top-k of short sequences, many at a time: each vector lane keeps the k best of its own sequence.

The elements of a sequence come from last to first. A newcomer pushes out what it reaches, and what was pushed out goes
on to the next place in the same way; so of equal elements the one that came last, with the lowest position, stands
first, without a comparison of positions and without a branch.
"""

import numpy as np

from dmlcpu.kernels.grid import offsets
from dmlcpu.kernels.top_k.brief import scratch_of, unpack
from dmlcpu.kernels.top_k.groups import LINE, Sequences
from dmlcpu.kernels.top_k.keys import load_keys
from dmlcpu.runtime.intrinsics import insert, line_of
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

# Positions are kept as words as wide as keys, down to 8 bits.
LONGEST = 256


def takes(work: Sequences) -> bool:
    """Return whether the kernel can do this."""
    return work.n <= LONGEST


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of keys and of positions each share of the work needs."""
    return 2 * (n + k) * LINE, 3 * LINE


@device
def load_block(x, starts, step, grid, rows, n, codes, elements):
    """Write the keys of `rows` sequences, one after the other. starts: where each begins."""
    if step == 1 and grid[0] == 1 and grid[2] == n:  # they lie so in memory
        load_keys(x, starts[0], 1, rows * n, codes, elements)
        return
    for lane in range(rows):
        load_keys(x, starts[lane], step, n, codes, elements[lane * n : (lane + 1) * n])


@device
def select_block(elements, n, k, lanes, lines, best, places):
    """Find the k greatest of `lanes` sequences.

    elements: (lanes * n,) keys, sequence by sequence; lines: (n * lanes,), for the same in the other order;
    best, places: (k * lanes,).
    """
    for cell in range(k * lanes):
        best[cell] = 0  # the least key there is gives way to every element
    for lane in range(lanes):
        for i in range(n):
            lines[i * lanes + lane] = elements[lane * n + i]
    for i in range(n - 1, -1, -1):
        insert(lines, i * lanes, i, best, places, 0, lanes, k)


@kernel
def lockstep(part, parts, x, values, indices, brief, scratch):
    """Select in a share of the sequences. x, values: words of one width; brief, scratch: see brief.py."""
    x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes = unpack(x, brief)
    keys, positions = scratch_of(part, parts, x, brief, scratch)
    lanes = line_of(x)
    starts, v_starts, i_starts = positions[:LINE], positions[LINE : 2 * LINE], positions[2 * LINE :]
    elements, lines = keys[: n * lanes], keys[n * lanes : 2 * n * lanes]
    best, places = keys[2 * n * lanes :], keys[(2 * n + k) * lanes :]
    last = (part + 1) * rows // parts
    for first in range(part * rows // parts, last, lanes):
        width = min(lanes, last - first)  # lanes beyond work on what is left there
        for tensor in range(1, 4):  # one call in a loop: three would be compiled three times
            start = x_start if tensor == 1 else v_start if tensor == 2 else i_start
            offsets(grid, tensor, first, width, start, positions[(tensor - 1) * LINE :])
        load_block(x, starts, x_step, grid, width, n, codes, elements)
        select_block(elements, n, k, lanes, lines, best, places)
        for j in range(k):
            for lane in range(width):
                position = np.int64(places[j * lanes + lane])
                values[np.uintp(v_starts[lane] + j * v_step)] = x[np.uintp(starts[lane] + position * x_step)]
                low = np.uintp(i_starts[lane] + j * i_step)
                indices[low] = position
                if words == 2:
                    indices[low + np.uintp(1)] = 0
