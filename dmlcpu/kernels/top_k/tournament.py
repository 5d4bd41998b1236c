"""Top-k of small k in contiguous sequences: maxima of groups form in whole vectors while the input streams by, once.

What is done with the maxima stands in groups.py.
"""

from numba import prange

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k.brief import unpack
from dmlcpu.kernels.top_k.groups import STRIPES, Sequences, enough_groups, scratch, select
from dmlcpu.kernels.top_k.keys import key_of, load_keys, write_row
from dmlcpu.runtime.jit import device, kernel

__all__ = ["scratch", "takes", "tournament"]

LANES = 64  # a tile of float32 is a page of memory
TILE = LANES * STRIPES


def takes(work: Sequences) -> bool:
    """Tell whether the kernel can do this."""
    return work.step == 1 and enough_groups(work.n, work.k)


@device
def group_maxima(x, start, n, codes, maxima):
    """Write the greatest key of each group of x[start : start + n]; return the number of groups."""
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    tiles = n // TILE
    groups = 0
    for tile in range(tiles + 1):  # the last one has fewer lanes, or none
        lanes = LANES if tile < tiles else (n - tiles * TILE) // STRIPES
        elements = x[start + tile * TILE :][: lanes * STRIPES]
        best = maxima[groups : groups + lanes]
        # The loop over stripes unrolls, and the one over lanes becomes vectors that stay in registers.
        for lane in range(lanes):
            greatest = key_of(elements[lane], mask, positive, infinity, flip, nan)
            for stripe in range(1, STRIPES):
                key = key_of(elements[stripe * lanes + lane], mask, positive, infinity, flip, nan)
                greatest = max(greatest, key)
            best[lane] = greatest
        groups += lanes
    rest = n - n % STRIPES
    load_keys(x, start + rest, 1, n - rest, codes, maxima[groups:])
    return groups + n - rest


@device
def select_rows(first, last, x, x_start, values, v_start, v_step, indices, i_start, i_step,
                words, grid, n, k, codes, keys, positions):  # fmt: skip
    """Do the sequences first, ..., last - 1."""
    room = n // STRIPES + STRIPES
    for row in range(first, last):
        start = x_start + offset(grid, 1, row)
        groups = group_maxima(x, start, n, codes, keys)
        select(x, start, 1, n, k, LANES, codes, keys, groups, keys[room:], positions)
        v = v_start + offset(grid, 2, row)
        i = i_start + offset(grid, 3, row)
        write_row(x, start, 1, positions, k, values, v, v_step, indices, i, i_step, words)


@kernel
def tournament(parts, x, values, indices, brief, scratch):
    """Select in every sequence, each contiguous (x_step is 1). brief, scratch: see brief.py."""
    (x_start, _, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes, keys,
     positions) = unpack(parts, x, brief, scratch)  # fmt: skip
    for part in prange(parts):
        select_rows(part * rows // parts, (part + 1) * rows // parts, x, x_start,
                    values, v_start, v_step, indices, i_start, i_step,
                    words, grid, n, k, codes, keys[part], positions[part])  # fmt: skip
