"""Top-k of small k in contiguous sequences: maxima of groups form in whole vectors while the input streams by, once.

What is done with the maxima stands in groups.py.
"""

from numba import prange

from dmlcpu.kernels.grid import offset
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
def tile_maxima(elements, lanes, codes, best):
    """Write the greatest key of each group of a tile. elements: (STRIPES * lanes,); best: (lanes,)."""
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    # The loop over stripes unrolls, and the one over lanes becomes vectors that stay in registers.
    for lane in range(lanes):
        greatest = key_of(elements[lane], mask, positive, infinity, flip, nan)
        for stripe in range(1, STRIPES):
            key = key_of(elements[stripe * lanes + lane], mask, positive, infinity, flip, nan)
            greatest = max(greatest, key)
        best[lane] = greatest


@device
def group_maxima(row, n, codes, maxima):
    """Write the greatest key of each group of row[:n]; return the number of groups."""
    tiles = n // TILE
    for tile in range(tiles):
        tile_maxima(row[tile * TILE : (tile + 1) * TILE], LANES, codes, maxima[tile * LANES : (tile + 1) * LANES])
    lanes = (n - tiles * TILE) // STRIPES
    rest = tiles * TILE + lanes * STRIPES
    groups = tiles * LANES + lanes
    if lanes:
        tile_maxima(row[tiles * TILE : rest], lanes, codes, maxima[tiles * LANES : groups])
    load_keys(row, rest, 1, n - rest, codes, maxima[groups:])
    return groups + n - rest


@device
def select_part(x, start, n, k, codes, keys, positions):
    """Leave the k greatest keys of a contiguous sequence, in order, in keys[room : room + k], positions in [:k]."""
    room = n // STRIPES + STRIPES
    groups = group_maxima(x[start : start + n], n, codes, keys[:room])
    select(x, start, 1, n, k, LANES, codes, keys[:room], groups, keys[room:], positions)


@device
def select_rows(first, last, x, x_start, values, v_start, v_step, indices, i_start, i_step,
                words, grid, n, k, codes, keys, positions):  # fmt: skip
    """Do the sequences first, ..., last - 1."""
    for row in range(first, last):
        start = x_start + offset(grid, 1, row)
        select_part(x, start, n, k, codes, keys, positions)
        v = v_start + offset(grid, 2, row)
        i = i_start + offset(grid, 3, row)
        write_row(x, start, 1, positions, k, values, v, v_step, indices, i, i_step, words)


@kernel
def tournament(parts, x, x_start, x_step, values, v_start, v_step, indices, i_start, i_step,
               words, grid, rows, n, k, codes, keys, positions):  # fmt: skip
    """Select in every sequence, each contiguous (x_step is 1). keys, positions: scratch, a row a part."""
    for part in prange(parts):
        select_rows(part * rows // parts, (part + 1) * rows // parts, x, x_start,
                    values, v_start, v_step, indices, i_start, i_step,
                    words, grid, n, k, codes, keys[part], positions[part])  # fmt: skip
