"""Top-k of small k in contiguous sequences: maxima of groups form in whole vectors while the input streams by, once.

What is done with the maxima stands in groups.py.
"""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k import groups
from dmlcpu.kernels.top_k.brief import scratch_of, unpack
from dmlcpu.kernels.top_k.groups import (
    LINE,
    STRIPES,
    TILE,
    Sequences,
    drop_losers,
    finish,
    lower_bound,
    room,
)
from dmlcpu.kernels.top_k.keys import key_of, load_keys, write_row
from dmlcpu.kernels.top_k.threshold import bits_of_line
from dmlcpu.runtime.intrinsics import line_of, lowest_bit, prefetch, reach
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

# How many lines ahead of their use elements are asked for: processors do not look that far ahead by themselves, and
# the time of the selection in between goes unused otherwise. Measured on 1,000 x 10,000 float32, one thread, us a row:
# none 3.8, 64 lines 2.7, 128 lines 2.5, 256 lines 2.15, 384 lines 2.06.
# On two threads 128 and 256 are alike, and 64-bit types, whose lines are twice as long, are faster with 128.
AHEAD = 128


def takes(work: Sequences) -> bool:
    """Return whether the kernel can do this."""
    return work.step == 1 and work.n >= STRIPES * work.k


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of keys and of positions each share of the work needs."""
    # What does not fill a tile, at most STRIPES lines of single bytes, are groups of one.
    return groups.scratch(k, n // STRIPES + STRIPES * LINE)


@device
def group_maxima(x, start, n, codes, maxima):
    """Write the greatest key of each group of x[start : start + n]; return the number of groups.

    A group is STRIPES elements a cache line apart, in a tile of as many lines. What is left behind the last whole
    tile are groups of one element.
    """
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    lanes = line_of(x)
    tiles = n // (lanes * STRIPES)
    for tile in range(tiles):
        begin = start + tile * lanes * STRIPES
        for stripe in range(STRIPES):
            prefetch(x, begin + (stripe + AHEAD) * lanes)
        elements = x[begin : begin + lanes * STRIPES]
        best = maxima[tile * lanes : (tile + 1) * lanes]
        # The loop over stripes unrolls, and the one over lanes becomes vectors that stay in registers.
        for lane in range(lanes):
            greatest = key_of(elements[lane], mask, positive, infinity, flip, nan)
            for stripe in range(1, STRIPES):
                key = key_of(elements[stripe * lanes + lane], mask, positive, infinity, flip, nan)
                greatest = max(greatest, key)
            best[lane] = greatest
    done = tiles * lanes * STRIPES
    load_keys(x, start + done, 1, n - done, codes, maxima[tiles * lanes :])
    return tiles * lanes + n - done


@device
def gather(x, start, n, codes, maxima, groups, k, least, is_greatest, keys, positions):
    """Write elements that reach a key, among them the k greatest, by ascending position; return how many.

    maxima: of the `groups` groups, a tile's behind one another.
    """
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    lanes = line_of(x)
    whole = n // (lanes * STRIPES) * lanes  # groups in tiles
    filled = np.intp(0)  # a literal 0 would compile `keep` twice
    for group in range(0, groups, lanes):  # of a tile, or a line of those behind
        chosen = bits_of_line(maxima, group, groups, least)
        if chosen == 0:
            continue
        begin = filled  # behind those that are found there is room for a tile
        if group >= whole:
            filled = keep(maxima, group, chosen, n - groups + group, keys, filled, positions)
        elif chosen & (chosen - np.uint64(1)) == 0:  # one group, as in most tiles when k is small
            for stripe in range(STRIPES):
                position = group * STRIPES + stripe * lanes + lowest_bit(chosen)
                key = key_of(x[start + position], mask, positive, infinity, flip, nan)
                keys[filled] = key
                positions[filled] = position
                filled += 1 if key >= least else 0
        else:
            load_keys(x, start + group * STRIPES, 1, lanes * STRIPES, codes, keys[begin:])
            for line in range(0, lanes * STRIPES, lanes):
                bits = reach(keys, begin + line, least)
                filled = keep(keys, begin + line, bits, group * STRIPES + line, keys, filled, positions)
        if is_greatest and filled >= k:
            break
        if filled > room(k) - TILE:
            least = drop_losers(keys, positions, filled, k, positions[room(k) :])
            filled = k
            if least == 0:
                break
    return filled


@device
def keep(line, index, bits, position, keys, filled, positions):
    """Append the elements from line[index] on that have a bit, and their positions; return how many are there then.

    position: that of the first element. The line may be of `keys` itself, behind those it has.
    """
    while bits != 0:
        lane = lowest_bit(bits)
        bits &= bits - np.uint64(1)
        keys[filled] = line[index + lane]
        positions[filled] = position + lane
        filled += 1
    return filled


@kernel
def tournament(part, parts, x, values, indices, brief, scratch):
    """Select in a share of the sequences, each contiguous (x_step is 1). brief, scratch: see brief.py."""
    x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes = unpack(x, brief)
    keys, positions = scratch_of(part, parts, x, brief, scratch)
    maxima = keys[k + room(k) :]
    for row in range(part * rows // parts, (part + 1) * rows // parts):
        start = x_start + offset(grid, 1, row)
        groups = group_maxima(x, start, n, codes, maxima)
        least, is_greatest = lower_bound(maxima, groups, k, keys)
        found = gather(x, start, n, codes, maxima, groups, k, least, is_greatest, keys[k:], positions[k:])
        finish(k, found, keys, positions)
        write_row(x, start, x_step, positions, k, values, v_start + offset(grid, 2, row), v_step,
                  indices, i_start + offset(grid, 3, row), i_step, words)  # fmt: skip
