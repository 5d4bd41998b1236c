"""Find the elements that beat a bound of their sequence, in adjacent sequences that come a block at a time.

Few later elements beat the k-th winner so far, so filtering takes no longer than reading.
"""

import numpy as np

from dmlcpu.kernels.top_k.column_blocks import block_at, block_count
from dmlcpu.kernels.top_k.keys import key_map_of, key_of, load_keys
from dmlcpu.kernels.top_k.lines import exceed
from dmlcpu.kernels.top_k.strided_tournament import COLUMNS, PREFETCH
from dmlcpu.kernels.top_k.work import WORK, Candidates, start_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import line_of, lowest_bit, prefetch
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def strided_filter(part, parts, x, bounds, shares, first_position, counts, values, positions, works, scratch):
    """Append the elements that beat the bound of their sequence to `values` and `positions`.

    Both are (sequences, most), but flat. bounds: an element of each sequence that others must exceed. shares: (any,
    sequences), but flat; elements must reach the least of their sequence. counts: the elements found in each sequence,
    with those that had no space. scratch: words of x, two blocks of columns for each part.
    """
    work = record_at(works, 0, WORK)
    key_map, most, lanes = key_map_of(x, work.key_map), values.size // counts.size, line_of(x)
    found = Candidates(values, positions)
    space = scratch[part * 2 * COLUMNS : (part + 1) * 2 * COLUMNS]
    bound, keys = space[:COLUMNS], space[COLUMNS:]
    first, last = share(part, parts, block_count(work, COLUMNS))
    for number in range(first, last):
        row, width = block_at(work, COLUMNS, number)
        start = start_of(work, work.x, row)
        load_bounds(bounds, shares, row, width, key_map, keys, bound)
        keys[width:] = 0  # the least key: missing columns beat nothing
        for i in range(work.n):
            line = start + i * work.x.step
            for column in range(0, width, lanes):
                prefetch(x, line + PREFETCH * work.x.step + column)
            load_keys(x, line, 1, width, key_map, keys)
            for column in range(0, width, lanes):
                better = exceed(keys, column, bound, column)
                append(better, x, line + column, row + column, first_position + i, most, counts, found)


@inlined
def append(bits, x, source, sequence, position, most, counts, found):
    """Append the elements from x[source] on whose bit is set, each to its own sequence, from `sequence` on."""
    while bits != 0:
        lane = lowest_bit(bits)
        bits &= bits - np.uint64(1)
        number = counts[sequence + lane]
        if number < most:
            place = (sequence + lane) * most + number
            found.keys[place], found.positions[place] = x[source + lane], position
        counts[sequence + lane] = number + 1


@device
def load_bounds(bounds, shares, row, width, key_map, least, bound):
    """Write the key that an element must exceed, for each of `width` sequences. least: workspace."""
    word = bounds.dtype.type
    load_keys(bounds, row, 1, width, key_map, bound)
    if shares.size:
        load_keys(shares, row, 1, width, key_map, least)
        for first in range(bounds.size, shares.size, bounds.size):
            others = shares[first + row :][:width]
            for column in range(width):
                least[column] = min(least[column], key_of(others[column], key_map))
        for column in range(width):
            if least[column] > bound[column]:
                bound[column] = word(least[column] - word(1))
