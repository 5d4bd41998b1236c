"""Top-k of short sequences, many at a time: each vector lane keeps the k best of its own sequence.

The elements of a sequence come from last to first. A newcomer pushes out what it reaches, and what was pushed out goes
on to the next place in the same way; so of equal elements the one that came last, with the lowest position, stands
first, without a comparison of positions and without a branch.
"""

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k.brief import scratch_of, unpack
from dmlcpu.kernels.top_k.groups import Sequences
from dmlcpu.kernels.top_k.keys import load_keys, write_row
from dmlcpu.runtime.jit import device, kernel

# Sequences in flight. Measured on 100,000 x 64, k 8: 8 take 94 ms, 16 62, 32 18, 64 33.
ROWS = 32
# Positions are kept as words as wide as keys, down to 8 bits.
LONGEST = 256


def takes(work: Sequences) -> bool:
    """Tell whether the kernel can do this."""
    return work.n <= LONGEST


@device
def push(key, position, best, places, k):
    """Let ROWS newcomers sink into their lists. key, position: (ROWS,); best, places: (k, ROWS)."""
    for place in range(k):
        held, held_at = best[place], places[place]
        for lane in range(ROWS):
            new, old = key[lane], held[lane]
            new_at, old_at = position[lane], held_at[lane]
            wins = new >= old
            held[lane] = new if wins else old
            held_at[lane] = new_at if wins else old_at
            key[lane] = old if wins else new
            position[lane] = old_at if wins else new_at


@device
def load_block(x, x_start, x_step, grid, block, rows, n, codes, elements):
    """Write the keys of the sequences block, ..., block + rows - 1, one after the other."""
    if x_step == 1 and grid.shape[1] == 1 and grid[1, 0] == n:  # they lie so in memory
        load_keys(x, x_start + block * n, 1, rows * n, codes, elements)
        return
    for lane in range(rows):
        start = x_start + offset(grid, 1, block + lane)
        load_keys(x, start, x_step, n, codes, elements[lane * n : (lane + 1) * n])


@device
def select_block(elements, n, k, key, position, best, places):
    """Find the k greatest of ROWS sequences. elements: (ROWS * n,) keys, sequence by sequence."""
    for place in range(k):
        for lane in range(ROWS):
            best[place, lane] = 0  # the least key there is gives way to every element
    for i in range(n - 1, -1, -1):
        for lane in range(ROWS):
            key[lane] = elements[lane * n + i]
            position[lane] = i
        push(key, position, best, places, k)


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of `keys` and of `order` each share of the work needs."""
    return (2 + 2 * k + n) * ROWS, k


@kernel
def lockstep(part, parts, x, values, indices, brief, scratch):
    """Select in a share of the sequences. x, values: words of one width; brief, scratch: see brief.py."""
    x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes = unpack(x, brief)
    keys, order = scratch_of(part, parts, x, brief, scratch)
    key, position = keys[:ROWS], keys[ROWS : 2 * ROWS]
    best = keys[2 * ROWS : (2 + k) * ROWS].reshape(k, ROWS)
    places = keys[(2 + k) * ROWS : (2 + 2 * k) * ROWS].reshape(k, ROWS)
    elements = keys[(2 + 2 * k) * ROWS :]
    last = (part + 1) * rows // parts
    for first in range(part * rows // parts, last, ROWS):
        width = min(ROWS, last - first)  # lanes beyond work on what is left there
        load_block(x, x_start, x_step, grid, first, width, n, codes, elements)
        select_block(elements, n, k, key, position, best, places)
        for lane in range(width):
            for j in range(k):
                order[j] = places[j, lane]
            row = first + lane
            write_row(x, x_start + offset(grid, 1, row), x_step, order, k, values, v_start + offset(grid, 2, row),
                      v_step, indices, i_start + offset(grid, 3, row), i_step, words)  # fmt: skip
