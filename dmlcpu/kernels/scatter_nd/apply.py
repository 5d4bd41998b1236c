"""The writing pass: the copy of the input, and the updates.

Each share of the work owns a region of the output, copies it and applies the updates that fall into it. Every share
looks at all tuples and applies its own updates in index order, so no element is ever touched by two threads, the last
update wins, and sums are formed in one order: the result does not depend on the number of shares.
"""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.scatter_nd.brief import BLOCK, block_of, unpack_tuples, unpack_updates
from dmlcpu.kernels.scatter_nd.combine import combine_elements, combine_slice
from dmlcpu.kernels.scatter_nd.resolve import CLIP, DROP, resolve_any, resolve_block
from dmlcpu.runtime.intrinsics import as_words, copy_range, prefetch
from dmlcpu.runtime.jit import device, kernel
from dmlcpu.runtime.places import select_range


@device
def region_of(part, parts, sample, size):
    """Return the region of a share when nothing is copied: one into which as many updates fall as into others.

    Its bounds are quantiles of a sample of `size` places, the same for every share, which are sorted for that.
    """
    for i in range(1, size):
        place = sample[i]
        at = i
        while at > 0 and sample[at - 1] > place:
            sample[at] = sample[at - 1]
            at -= 1
        sample[at] = place
    # Below 0 are updates that are skipped; `first` never exceeds `last`.
    first = max(sample[part * size // parts], 0) if part > 0 else 0
    last = max(sample[(part + 1) * size // parts], 0) if part + 1 < parts else np.iinfo(np.int64).max
    return first, last


@device
def apply_elements(places, numbers, begin, out, updates, u_start, u_step, values, operation, half):
    """Apply updates begin + numbers[0], ... of one element each, evenly spaced, at as many places. values: scratch."""
    for j in range(places.size):  # places are far from one another: all are asked for before the first is needed
        prefetch(out, places[j])
        values[j] = updates[np.uintp(u_start + (begin + numbers[j]) * u_step)]
    combine_elements(places, 1, values, 1, places.size, out, operation, half)


@device
def apply_slices(places, numbers, begin, out, updates, u_start, sources, slices, n, o_step, u_step, operation, half):
    """Apply updates of runs of n elements, as many as the grid `slices` has."""
    pieces = 1
    for d in range(slices[0]):
        pieces *= slices[1 + d]
    for j in range(places.size):
        o, u = places[j], u_start + offset(sources, 1, begin + numbers[j])
        for piece in range(pieces):
            combine_slice(out, o + offset(slices, 1, piece), o_step, updates, u + offset(slices, 2, piece), u_step,
                          n, operation, half)  # fmt: skip


@kernel
def copy(part, parts, x, out):
    """Copy a share of x to out; first touched by the thread that copies it. Both are laid out alike."""
    copy_range(x, out, part * x.size // parts, (part + 1) * x.size // parts)


@kernel
def apply(part, parts, x, indices, updates, out, brief, scratch):
    """Write the updates, each a slice, at their places in a share of out.

    x, updates, out: elements of one type; x: empty, or it is copied to out first, which is laid out alike. A slice is a
    grid `slices`: (3, d) of runs of n elements, o_step apart in out and u_step apart in updates. See also brief.py.
    """
    start, step, wide, signed, mode, out_start, count, sizes, steps, tuples = unpack_tuples(brief)
    u_start, n, o_step, u_step, operation, half, regions, unit, sources, slices = unpack_updates(brief)
    places, own, numbers, cells = block_of(part, parts, scratch)
    values = as_words(cells, 0, updates)
    mode = CLIP if mode == CLIP else DROP  # none is bad, or somebody has changed it since
    if x.size > 0:
        first, last = part * regions // parts * unit, (part + 1) * regions // parts * unit
        copy_range(x, out, min(first, x.size), min(last, x.size))
    else:
        size = min(min(BLOCK, 8 * parts), count)
        for i in range(size):
            number = i * count // size
            resolve_any(number, number + 1, indices, start, tuples, step, wide, signed, sizes, steps, out_start, mode,
                        places[i:])  # fmt: skip
        first, last = region_of(part, parts, places, size)
    single = n == 1 and slices[0] == 1 and slices[1] == 1 and sources[0] == 1
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        resolve_block(begin, end, indices, start, tuples, step, wide, signed, sizes, steps, out_start, mode, places)
        found = select_range(places, end - begin, first, last, own, numbers)
        if single:
            apply_elements(own[:found], numbers, begin, out, updates, u_start, sources[2], values, operation, half)
        elif found > 0:
            apply_slices(own[:found], numbers, begin, out, updates, u_start, sources, slices, n, o_step, u_step,
                         operation, half)  # fmt: skip
