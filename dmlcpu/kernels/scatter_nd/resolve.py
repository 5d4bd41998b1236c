"""The validating pass: index tuples become places in the output, or the first bad one is reported."""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.scatter_nd.brief import BLOCK, places_of, unpack_tuples
from dmlcpu.runtime.jit import device, kernel

RAISE, DROP, CLIP = 0, 1, 2
GOOD = -1  # reported for a share of the tuples that are all in range
DROPPED = -1  # the place of an update that is skipped


@device
def counted(raw, size):
    """Return an index counted from the start; one that is out of range, of whatever type, is not in 0 ... size - 1."""
    return np.int64(raw) + (size if raw < 0 else 0)


@device
def beyond(index, size):
    """Return a number that is not 0 if an index is not in 0, ..., size - 1: the sign of either difference."""
    return (np.uint64(index) | np.uint64(size - 1 - index)) & np.uint64(0x8000000000000000)


@device
def resolve_good(first, last, indices, start, tuple_step, step, sizes, steps, out_start, places):
    """Resolve tuples first, ..., last - 1, evenly spaced, and tell whether all of them are in range.

    No branch depends on an index, so that they are worked on in vectors.
    """
    mine = places[first:last]
    for i in range(mine.size):
        mine[i] = out_start
    bad = np.uint64(0)
    for t in range(sizes.size):
        size, out_step, begin = sizes[t], steps[t], start + t * step + first * tuple_step
        if tuple_step == 1:  # said in so many words, the compiler sees that they are neighbours
            here = indices[begin : begin + mine.size]
            for i in range(mine.size):
                index = counted(here[i], size)
                bad |= beyond(index, size)
                mine[i] += index * out_step
        else:
            for i in range(mine.size):
                index = counted(indices[np.uintp(begin + i * tuple_step)], size)
                bad |= beyond(index, size)
                mine[i] += index * out_step
    return bad == 0


@device
def resolve_any(first, last, indices, start, grid, step, sizes, steps, out_start, mode, places):
    """Resolve tuples first, ..., last - 1; return where the first bad coordinate lies (tuple * T + t), or GOOD."""
    for i in range(first, last):
        base = start + offset(grid, 1, i)
        place = out_start
        dropped = False
        for t in range(sizes.size):
            size = sizes[t]
            raw = indices[base + t * step]
            index = counted(raw, size)
            if raw > 0 and index < 0:  # a uint64 above 2**63 - 1 is too large, not negative
                index = size
            if index < 0 or index >= size:
                if mode == RAISE:
                    return i * sizes.size + t
                dropped = mode == DROP or dropped
                index = min(max(index, np.int64(0)), size - 1)
            place += index * steps[t]
        places[i] = DROPPED if dropped else place
    return GOOD


@kernel
def resolve(part, parts, indices, brief, scratch):
    """Resolve a share of the tuples to places; what `resolve_any` returns goes to the cell `part` behind them.

    indices: words of any index type; brief, scratch: see brief.py.
    """
    start, step, mode, out_start, sizes, steps, tuples = unpack_tuples(brief)
    places = places_of(brief, scratch)
    count = places.size
    first, last = part * count // parts, (part + 1) * count // parts
    evenly = tuples[0] == 1  # the grid has one column, and its third number is the step
    report = GOOD
    for begin in range(first, last, BLOCK):  # small enough to stay in the nearest cache while coordinates add up
        end = min(begin + BLOCK, last)
        if evenly and resolve_good(begin, end, indices, start, tuples[2], step, sizes, steps, out_start, places):
            continue
        report = resolve_any(begin, end, indices, start, tuples, step, sizes, steps, out_start, mode, places)
        if report != GOOD:
            break
    scratch[count + part] = report
