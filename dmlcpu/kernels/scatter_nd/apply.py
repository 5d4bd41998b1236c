"""The writing pass: the copy of the input, and the updates.

Each share of the work owns a region of the output, copies it and applies the updates that fall into it. Every share
reads all places and applies its own in index order, so no element is ever touched by two threads, the last update wins,
and sums are formed in one order: the result does not depend on the number of shares.
"""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.scatter_nd.brief import BLOCK, places_of, unpack_updates
from dmlcpu.kernels.scatter_nd.combine import OVERWRITE, combine_elements, combine_slice
from dmlcpu.runtime.intrinsics import copy_range, prefetch
from dmlcpu.runtime.jit import device, kernel


@device
def region_of(part, parts, places, sample):
    """Return the region of a share when nothing is copied: one into which as many updates fall as into others.

    Its bounds are quantiles of a sample of the places, the same for every share. sample: (BLOCK,), scratch.
    """
    size = min(min(BLOCK, 8 * parts), places.size)
    for i in range(size):
        place = places[i * places.size // size]
        at = i
        while at > 0 and sample[at - 1] > place:
            sample[at] = sample[at - 1]
            at -= 1
        sample[at] = place
    first = max(sample[part * size // parts], 0) if part > 0 else 0  # below 0 are updates that are skipped
    last = sample[(part + 1) * size // parts] if part + 1 < parts else np.iinfo(np.int64).max
    return first, last


@device
def find(first, last, begin, end, places, mine):
    """Write which of the updates begin, ..., end - 1 have a place in first, ..., last - 1; return how many."""
    found = np.uintp(0)
    for i in range(begin, end):
        mine[found] = i  # without a branch, which random places would mislead
        place = places[i]
        found += np.uintp(1) if first <= place and place < last else np.uintp(0)
    return np.intp(found)


@device
def apply_elements(mine, found, places, out, updates, u_start, u_step, operation, half):
    """Apply updates of one element each, evenly spaced."""
    for j in range(found):  # places are far from one another: all are asked for before the first is needed
        prefetch(out, places[mine[j]])
    if operation == OVERWRITE:
        for j in range(found):
            out[np.uintp(places[mine[j]])] = updates[np.uintp(u_start + mine[j] * u_step)]
    else:
        combine_elements(mine, found, places, out, updates, u_start, u_step, operation, half)


@device
def apply_slices(mine, found, places, out, updates, u_start, sources, slices, n, o_step, u_step, operation, half):
    """Apply updates of runs of n elements, as many as the grid `slices` has."""
    pieces = 1
    for d in range(slices[0]):
        pieces *= slices[1 + d]
    for j in range(found):
        o, u = places[mine[j]], u_start + offset(sources, 1, mine[j])
        for piece in range(pieces):
            combine_slice(out, o + offset(slices, 1, piece), o_step, updates, u + offset(slices, 2, piece), u_step,
                          n, operation, half)  # fmt: skip


@kernel
def copy(part, parts, x, out):
    """Copy a share of x to out; first touched by the thread that copies it. Both are laid out alike."""
    copy_range(x, out, part * x.size // parts, (part + 1) * x.size // parts)


@kernel
def apply(part, parts, x, updates, out, brief, scratch):
    """Write the updates, each a slice, at their places in a share of out.

    x, updates, out: elements of one type; x: empty, or it is copied to out first, which is laid out alike. A slice is a
    grid `slices`: (3, d) of runs of n elements, o_step apart in out and u_step apart in updates. See also brief.py.
    """
    u_start, n, o_step, u_step, operation, half, regions, unit, lists, sources, slices = unpack_updates(brief)
    places = places_of(brief, scratch)
    mine = scratch[lists + part * BLOCK : lists + (part + 1) * BLOCK]
    if x.size > 0:
        first, last = part * regions // parts * unit, (part + 1) * regions // parts * unit
        copy_range(x, out, min(first, x.size), min(last, x.size))
    else:
        first, last = region_of(part, parts, places, mine)
    single = n == 1 and slices[0] == 1 and slices[1] == 1 and sources[0] == 1
    for begin in range(0, places.size, BLOCK):
        found = find(first, last, begin, min(begin + BLOCK, places.size), places, mine)
        if single:
            apply_elements(mine, found, places, out, updates, u_start, sources[2], operation, half)
        elif found > 0:
            apply_slices(mine, found, places, out, updates, u_start, sources, slices, n, o_step, u_step,
                         operation, half)  # fmt: skip
