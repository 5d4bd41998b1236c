"""The writing pass: the copy of the input, and the updates.

Each share of the work owns a region of the output, copies it and applies the updates that fall into it. Every share
looks at all tuples and applies its own updates in index order, so no element is ever touched by two threads, the last
update wins, and sums are formed in one order: the result does not depend on the number of shares.
"""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.scatter_nd.brief import BLOCK, block_of, unpack_tuples, unpack_updates
from dmlcpu.kernels.scatter_nd.combine import ADD, OVERWRITE, combine_elements, combine_slice, is_combined_as_row
from dmlcpu.kernels.scatter_nd.offsets import LANES, select_indices, select_range, select_values
from dmlcpu.kernels.scatter_nd.resolve import DROP, GOOD, RAISE, resolve_any, resolve_block
from dmlcpu.kernels.scatter_nd.rows import add_run, copy_run
from dmlcpu.runtime.intrinsics import CACHE_LINE, as_words, copy_range, fence, line_of, prefetch, stream
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

LINE_BYTES = 128  # processors fetch cache lines in pairs
# Slices of so many bytes are asked for two ahead, up to so many of the first run: each begins somewhere else. Measured
# with 100,000 rows of 256 float32 added to 30,000: without 9.4 ms, one ahead 7.8, two 7.2, four 7.9. Shorter ones are
# asked for all at once, as single elements are: 131,072 rows of 16 into 262,144, each in two cache lines, take 2.7 ms,
# without that 3.9; where each is in one line, 2.6 either way.
AHEAD, LEAST_AHEAD, MOST_AHEAD = 2, 256, 4096
NEAR = 1 << 14  # elements of an output that stays in the first caches
# Outputs of so many bytes are copied past the caches, so that they need not be read first. The system's memcpy does so
# too, but decides by what each thread copies. Two threads, ms, by memcpy and past the caches: 16 MB 0.74 and 0.51, 64
# MB 5.7 and 3.4, 154 MB 14.0 and 7.9, 256 MB 13.1 and 12.9. When somebody reads it all afterwards: 8 MB 0.76 and 0.88,
# 16 MB 2.14 and 1.82, 154 MB 25.9 and 19.7. (`drain` copies into the caches: it writes there next.)
STREAMED = 16_000_000


@device
def line_before(place, skew, line):
    """Return the place at or before this one where a line begins, but 0 at least; skew: how far into one is place 0.

    Regions end there: an element of a line that two threads write to takes a hundred times as long.
    """
    return max(place - (place + skew) % line, 0)


@device
def region_of(part, parts, sample, size, skew, line):
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
    first = line_before(max(sample[part * size // parts], 0), skew, line) if part > 0 else 0
    last = np.iinfo(np.int64).max
    if part + 1 < parts:
        last = line_before(max(sample[(part + 1) * size // parts], 0), skew, line)
    return first, last


@device
def select_elements(places, count, first, last, updates, u, u_step, own, numbers, values):
    """Find those of places[:count] in a range, and the updates of one element each, u_step apart from updates[u] on."""
    if u_step != 1:
        found = select_range(places, count, first, last, own, numbers)
        for j in range(found):
            values[j] = updates[np.uintp(u + numbers[j] * u_step)]
        return found
    lines = count // LANES * LANES
    found = select_values(places, lines, first, last, updates, u, own, values)
    for i in range(lines, count):
        if first <= places[i] < last:
            own[found], values[found] = places[i], updates[u + i]
            found += 1
    return found


@device
def request_run(array, begin, n):
    """Ask for array[begin : begin + n] ahead of its use; it need not start a cache line, and then ends in one more."""
    for i in range(0, n, line_of(array)):
        prefetch(array, begin + i)
    prefetch(array, begin + n - 1)


@device
def apply_slices(places, numbers, begin, out, updates, u_start, sources, slices, n, o_step, u_step, operation, half):
    """Apply updates of runs of n elements, as many as the grid `slices` has."""
    pieces = 1
    for d in range(slices[0]):
        pieces *= slices[1 + d]
    is_long = n * out.itemsize >= LEAST_AHEAD
    if not is_long:
        for j in range(places.size):
            request_run(out, places[j], n)
    together = o_step == 1 and u_step == 1
    # One row each, evenly spaced, is what most updates are; of so little work a call would be half.
    is_row = pieces == 1 and sources[0] == 1 and is_combined_as_row(o_step, u_step, operation, half)
    for j in range(places.size):
        if is_long and together and j + AHEAD < places.size:
            most = min(n, MOST_AHEAD // out.itemsize)
            request_run(updates, u_start + offset(sources, 1, begin + numbers[j + AHEAD]), most)
            request_run(out, places[j + AHEAD], most)
        if is_row and operation == OVERWRITE:
            copy_run(out, places[j], updates, u_start + (begin + numbers[j]) * sources[2], n)
        elif is_row and operation == ADD:
            add_run(out, places[j], updates, u_start + (begin + numbers[j]) * sources[2], n)
        else:
            o, u = places[j], u_start + offset(sources, 1, begin + numbers[j])
            for piece in range(pieces):
                combine_slice(out, o + offset(slices, 1, piece), o_step, updates, u + offset(slices, 2, piece), u_step,
                              n, operation, half)  # fmt: skip


@device
def copy_region(x, out, first, last):
    """Copy x[first:last] to the same place in out."""
    if out.size * out.itemsize < STREAMED:
        copy_range(x, out, first, last)
        return
    line = CACHE_LINE // out.itemsize
    begin = min(first + -(out.ctypes.data // out.itemsize + first) % line, last)
    end = last - (last - begin) % line
    copy_range(x, out, first, begin)
    stream(x, begin, out, begin, end - begin)
    copy_range(x, out, end, last)
    fence()


@kernel
def copy(part, parts, x, out):
    """Copy a share of x to out; first touched by the thread that copies it. Both are laid out alike."""
    copy_region(x, out, part * x.size // parts, (part + 1) * x.size // parts)


@kernel
def apply(part, parts, x, indices, updates, out, brief, scratch):
    """Write the updates, each a slice, at their places in a share of out.

    x, updates, out: elements of one type; x: empty, or it is copied to out first, which is laid out alike. A slice is a
    grid `slices`: (3, d) of runs of n elements, o_step apart in out and u_step apart in updates. See also brief.py.

    If it has to check the indices, what `resolve_any` returns goes to the cell `part` of the scratch. Updates that are
    one block are checked before anything is written; else out must be a copy that can be given up.
    """
    start, step, wide, signed, mode, out_start, count, sizes, steps, tuples = unpack_tuples(brief)
    u_start, n, o_step, u_step, operation, half, regions, unit, checks, sources, slices = unpack_updates(brief)
    places, own, numbers, cells = block_of(part, parts, scratch)
    values = as_words(cells, 0, updates)
    skew, line = out.ctypes.data % LINE_BYTES // out.itemsize, LINE_BYTES // out.itemsize
    if mode == RAISE and not checks:
        mode = DROP  # none is bad, or somebody has changed it since
    report = GOOD
    is_known = checks and count <= BLOCK
    if is_known:  # all are looked at before anything is written
        report = resolve_block(0, count, indices, start, tuples, step, wide, signed, sizes, steps, out_start, mode,
                               places)  # fmt: skip
        if report != GOOD:
            scratch[part] = report
            return
    if x.size > 0:
        first, last = part * regions // parts * unit, (part + 1) * regions // parts * unit
        if unit == 1:
            first = line_before(first, skew, line)
            last = line_before(last, skew, line) if part + 1 < parts else last
        copy_region(x, out, min(first, x.size), min(last, x.size))
    else:
        # One in 4,096 elements costs little beside them. From 16 places of a permutation, one of two shares got 68 % of
        # the updates; from 256, 53 %.
        size = min(min(BLOCK, max(8 * parts, count * n >> 12)), count)
        for i in range(size):
            number = i * count // size
            resolve_any(number, number + 1, indices, start, tuples, step, wide, signed, sizes, steps, out_start,
                        DROP if mode == RAISE else mode, own[i:])  # fmt: skip
        first, last = region_of(part, parts, own, size, skew, line)
    single = n == 1 and slices[0] == 1 and slices[1] == 1 and sources[0] == 1
    # One index each, all side by side, as are the elements they name and the updates.
    plain = (
        single and sizes.size == 1 and steps[0] == 1 and sources[2] == 1 and tuples[0] == 1 and tuples[2] == 1 + wide
    )
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        found = -1
        if plain and not is_known and (end - begin) % LANES == 0:
            found = select_indices(indices, start + begin * (1 + wide), wide, signed, sizes[0], out_start, updates,
                                   u_start + begin, end - begin, first, last, own, values)  # fmt: skip
        if found < 0:
            if not is_known:
                report = resolve_block(begin, end, indices, start, tuples, step, wide, signed, sizes, steps, out_start,
                                       mode, places)  # fmt: skip
            if report != GOOD:
                break
            if not single:
                found = select_range(places, end - begin, first, last, own, numbers)
                apply_slices(own[:found], numbers, begin, out, updates, u_start, sources, slices, n, o_step, u_step,
                             operation, half)  # fmt: skip
                continue
            found = select_elements(places, end - begin, first, last, updates, u_start + begin * sources[2], sources[2],
                                    own, numbers, values)  # fmt: skip
        if out.size > NEAR:  # places are far from one another: all are asked for before the first is needed
            for j in range(found):
                prefetch(out, own[j])
        combine_elements(own, 1, values, 1, found, out, operation, half)
    scratch[part] = report
