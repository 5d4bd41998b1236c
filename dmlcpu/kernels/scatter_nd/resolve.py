"""Index tuples become places in the output; and the pass that finds the first bad one before anything is written.

Places are not kept: resolving a block of tuples again, in vectors, takes no longer than reading its places would.
"""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.scatter_nd.brief import BLOCK, block_of, table_of, unpack_buckets, unpack_tuples
from dmlcpu.kernels.scatter_nd.offsets import LANES, add_lines, load_index
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

RAISE, DROP, CLIP = 0, 1, 2
GOOD = -1  # reported for a share of the tuples that are all in range
DROPPED = -1  # the place of an update that is skipped


@device
def resolve_any(first, last, indices, start, grid, step, wide, signed, sizes, steps, out_start, mode, places):
    """Resolve tuples first, ..., last - 1; return where the first bad coordinate lies (tuple * T + t), or GOOD."""
    for i in range(first, last):
        base = start + offset(grid, 1, i)
        place = out_start
        dropped = False
        for t in range(sizes.size):
            size = sizes[t]
            raw = load_index(indices, base + t * step, wide, signed)
            index = raw + (size if signed and raw < 0 else 0)
            if not signed and raw < 0:  # a uint64 above 2**63 - 1 is too large, not negative
                index = size
            if index < 0 or index >= size:
                if mode == RAISE:
                    return i * sizes.size + t
                dropped = mode == DROP or dropped
                index = min(max(index, np.int64(0)), size - 1)
            place += index * steps[t]
        places[i - first] = DROPPED if dropped else place
    return GOOD


@device
def resolve_block(first, last, indices, start, grid, step, wide, signed, sizes, steps, out_start, mode, places):
    """Do what `resolve_any` does: in whole lines and without a branch, unless an index is out of range."""
    lines = 0
    if grid[0] == 1:  # evenly spaced: the grid has one column, and its third number is the step
        lines = (last - first) // LANES * LANES
        for i in range(lines):
            places[i] = out_start
        begin, bad = start + first * grid[2], 0
        for t in range(sizes.size):
            bad |= add_lines(indices, begin + t * step, grid[2], wide, signed, sizes[t], steps[t], places, lines)
        lines = 0 if bad > 0 else lines
    return resolve_any(first + lines, last, indices, start, grid, step, wide, signed, sizes, steps, out_start, mode,
                       places[lines:])  # fmt: skip


@device
def bucket_of(place, shift, buckets):
    """Return the bucket of a place; the last one is that of skipped updates, whose place is negative."""
    return np.uintp(min(np.uint64(place) >> np.uint64(shift), np.uint64(buckets)))


@kernel
def survey(part, parts, indices, brief, scratch):
    """Look at a share of the tuples: what `resolve_any` returns goes to the cell `part`.

    If there are buckets, count the updates of each. indices: as uint32; brief, scratch: see brief.py.
    """
    start, step, wide, signed, mode, out_start, count, sizes, steps, tuples = unpack_tuples(brief)
    buckets, shift, _, _, tables, _, _, _ = unpack_buckets(brief)
    places, _, _, _ = block_of(part, parts, scratch)
    counts, _, _ = table_of(part, buckets, tables, scratch)
    for bucket in range(counts.size):
        counts[bucket] = 0
    last = (part + 1) * count // parts
    report = GOOD
    for begin in range(part * count // parts, last, BLOCK):
        end = min(begin + BLOCK, last)
        report = resolve_block(begin, end, indices, start, tuples, step, wide, signed, sizes, steps, out_start, mode,
                               places)  # fmt: skip
        if report != GOOD:
            break
        if buckets > 0:
            for i in range(end - begin):
                counts[bucket_of(places[i], shift, buckets)] += 1
    scratch[part] = report
