"""Short sequences, many at a time: each vector lane sorts a different one, by Batcher's network of comparators."""

import numpy as np

from dmlcpu.kernels.sort.windows import are_whole, settle, window_of, windows_of
from dmlcpu.kernels.sort.work import LANES, WORK, space_of
from dmlcpu.kernels.sort.write import write_by_position
from dmlcpu.kernels.top_k.keys import key_map_of, load_keys
from dmlcpu.kernels.top_k.work import start_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import emit_barrier, emitted, width_of
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

# Words are compared as signed numbers, because processors without AVX-512 compare no others. So their highest bit is
# inverted. Among equal windows, the lower position has the greater word.
_INVERTED = np.uint64(0x8000_0000_FFFF_FFFF)


@emitted
def compare(builder, lines, one, other):
    """Put each lane's greater word into line `one`, and the other word into line `other`."""
    places = [builder.mul(each, each.type(LANES)) for each in (one, other)]
    a, b = [lines.load(place, LANES) for place in places]
    emit_barrier(builder)
    is_greater = builder.icmp_signed(">", a, b)
    lines.store(builder.select(is_greater, a, b), places[0])
    lines.store(builder.select(is_greater, b, a), places[1])


@device
def sort_lines(lines, n):
    """Sort n lines, each lane separately, in descending order: pairs of runs of `width` lines are merged."""
    width, shift = 1, 1
    while width < n:
        distance = width
        while distance:
            for begin in range(distance & (width - 1), n - distance, 2 * distance):
                if begin >> shift == (begin + distance) >> shift:
                    for i in range(begin, min(begin + distance, n - distance)):
                        compare(lines, i, i + distance)
            distance >>= 1
        width, shift = 2 * width, shift + 1


@device
def has_equal_windows(lines, n):
    """Return whether two words in adjacent lines of any lane have the same window; stale lanes may, also."""
    least = np.uint64(1)
    for i in range((n - 1) * LANES):
        least = min(least, (lines[i] ^ lines[i + LANES]) >> np.uint64(32))
    return least == 0


@kernel
def network(part, parts, x, values, indices, works, scratch):
    """Sort a share of the sequences."""
    work = record_at(works, 0, WORK)
    key_map, begin, n = key_map_of(x, work.key_map), np.intp(0), work.n
    space = space_of(part, x, work, scratch)
    lines = space.words[2 * n :]
    first, last = share(part, parts, work.rows)
    for row in range(first, last, LANES):
        width = min(LANES, last - row)  # lanes beyond sort stale words
        for lane in range(width):
            keys = space.keys[lane * n : (lane + 1) * n]
            load_keys(x, start_of(work, work.x, row + lane), work.x.step, n, key_map, keys)
            fill_lane(keys, n, windows_of(keys, n), lines, lane)
        sort_lines(lines, n)
        may_be_unsettled = width_of(x) == 8 and has_equal_windows(lines, n)
        for lane in range(width):
            keys = space.keys[lane * n : (lane + 1) * n]
            take_lane(lines, lane, n, space.words)
            if may_be_unsettled:
                windows = windows_of(keys, n)
                if not are_whole(windows):
                    settle(keys, windows, space.words, begin, begin, n, n, n, space.counts)
            start = start_of(work, work.x, row + lane)
            write_by_position(x, start, work, row + lane, space.words, begin, begin, n, values, indices)


@inlined
def fill_lane(keys, n, windows, lines, lane):
    """Write the words of keys to a lane."""
    for i in range(n):
        word = window_of(keys, i, windows) << np.uint64(32) | np.uint64(i)
        lines[i * LANES + lane] = word ^ _INVERTED


@inlined
def take_lane(lines, lane, n, words):
    """Write a lane to words."""
    for i in range(n):
        words[i] = lines[i * LANES + lane] ^ _INVERTED
