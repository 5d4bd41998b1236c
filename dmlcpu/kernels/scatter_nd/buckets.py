"""The writing pass for many single elements all over a large output: they are sorted by region first.

Elements far from one another cost a wait for memory each. A bucket holds the updates of a region of the output that the
second cache holds. Each share of the updates puts its own, in index order, behind those of the shares before it. Then
whoever is free takes the next bucket, copies its region and applies what is in it. So the result is a plain loop's.
"""

import numpy as np

from dmlcpu.kernels.scatter_nd.brief import BLOCK, block_of, table_of, unpack_buckets, unpack_tuples, unpack_updates
from dmlcpu.kernels.scatter_nd.combine import combine_elements
from dmlcpu.kernels.scatter_nd.resolve import CLIP, DROP, bucket_of, resolve_block
from dmlcpu.runtime.intrinsics import as_words, copy_range, fence, fetch_add, stream
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

# So many pairs gather in the nearest cache before they go to memory together.
PAIRS = 8


@device
def steps_of(values):
    """Return the uint32 words from one pair of a place and a value to the next, the values, and where one is in it."""
    cells = 2 if values.itemsize == 8 else 1
    return 2 * cells, 8 * cells // values.itemsize, 1 if values.itemsize == 8 else 4 // values.itemsize


@device
def find_bounds(part, parts, buckets, tables, limits, ends):
    """Write where each bucket of a share must end, and where it ends so far, which is where it begins.

    It lies behind all buckets before it and behind the same bucket of the shares before, and starts a cache line.
    """
    row = buckets + 1
    filled = 0
    for bucket in range(buckets):
        for other in range(parts):
            if other == part:
                ends[bucket] = filled
            filled += tables[other * 3 * row + bucket]
            if other == part:
                limits[bucket] = filled
            filled += -filled % PAIRS
    limits[buckets] = 0  # nothing goes to the one for skipped updates
    ends[buckets] = 0


@kernel
def partition(part, parts, indices, updates, brief, scratch):
    """Put a share of the updates into buckets: the lower bits of each place and, in the same cells, the value."""
    start, step, wide, signed, mode, out_start, count, sizes, steps, tuples = unpack_tuples(brief)
    u_start, _, _, _, _, _, _, _, _, sources, _ = unpack_updates(brief)
    buckets, shift, _, _, tables, _, near_cells, pair_cells = unpack_buckets(brief)
    places, _, _, _ = block_of(part, parts, scratch)
    near, pairs = scratch[near_cells + part * (buckets + 1) * 2 * PAIRS :], scratch[pair_cells:]
    near_places, near_values = as_words(near, 0, indices), as_words(near, 0, updates)
    place_step, value_step, value_at = steps_of(near_values)
    a_line = PAIRS * place_step // 2  # cells
    _, limits, ends = table_of(part, buckets, tables, scratch)
    find_bounds(part, parts, buckets, scratch[tables:], limits, ends)
    mode = CLIP if mode == CLIP else DROP
    low_bits = (1 << shift) - 1
    u_step = sources[2]
    last = (part + 1) * count // parts
    for begin in range(part * count // parts, last, BLOCK):
        end = min(begin + BLOCK, last)
        resolve_block(begin, end, indices, start, tuples, step, wide, signed, sizes, steps, out_start, mode, places)
        u = u_start + begin * u_step
        for i in range(end - begin):
            bucket = bucket_of(places[i], shift, buckets)
            to = ends[bucket]
            at = bucket * np.uintp(PAIRS) + np.uintp(to & PAIRS - 1)
            near_places[at * np.uintp(place_step)] = places[i] & low_bits
            near_values[at * np.uintp(value_step) + np.uintp(value_at)] = updates[np.uintp(u + i * u_step)]
            ends[bucket] = to + 1
            # Indices that somebody changed since they were counted must not lead beyond what was counted.
            if to & PAIRS - 1 == PAIRS - 1 and to < limits[bucket] + PAIRS - 1:
                stream(near, np.intp(bucket) * a_line, pairs, (to - PAIRS + 1) * (a_line // PAIRS), a_line)
    for bucket in range(buckets):
        to = ends[bucket] = min(ends[bucket], limits[bucket])
        stream(near, bucket * a_line, pairs, (to - to % PAIRS) * (a_line // PAIRS), a_line if to % PAIRS > 0 else 0)
    fence()


@kernel
def drain(_, parts, x, out, brief, scratch):
    """Copy the region of a bucket and apply what is in it, bucket by bucket, as long as there are any.

    x, out: elements of one type; x: empty, or laid out like out.
    """
    _, _, _, _, operation, half, _, _, _, _, _ = unpack_updates(brief)
    buckets, shift, fillers, span, tables, ticket, _, pair_cells = unpack_buckets(brief)
    pairs, values = as_words(scratch, pair_cells, np.uint32(0)), as_words(scratch, pair_cells, out)
    place_step, value_step, value_at = steps_of(values)
    while True:
        bucket = fetch_add(scratch, ticket)
        if bucket >= buckets:
            break
        first, last = bucket << shift, min((bucket + 1) << shift, span)
        if x.size > 0:
            copy_range(x, out, first, last)
        region = out[first:last]
        for part in range(fillers):
            counts, limits, ends = table_of(part, buckets, tables, scratch)
            begin = limits[bucket] - counts[bucket]
            combine_elements(pairs[begin * place_step :], place_step, values[begin * value_step + value_at :],
                             value_step, ends[bucket] - begin, region, operation, half)  # fmt: skip
