"""Elements that beat a bound of their sequence, of sequences side by side that come a block at a time.

Once some of a sequence has been searched, its k-th winner is a bound that few of the elements to come beat: to pass by
the others takes no longer than to read them.
"""

from dmlcpu.kernels.top_k.blocks import block_at, block_count
from dmlcpu.kernels.top_k.groups import GROUP
from dmlcpu.kernels.top_k.keys import key_map_of, key_of
from dmlcpu.kernels.top_k.strided_tournament import COLUMNS, PREFETCH
from dmlcpu.kernels.top_k.work import WORK, start_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import line_of, prefetch
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def strided_filter(part, parts, x, bounds, first_position, counts, values, positions, works, scratch):
    """Append what beats the bound of its sequence to `values` and `positions`: (most, sequences), but flat.

    counts: of each sequence, how many there are; it goes on counting when there is no room for more. scratch: words of
    x, two blocks of columns for each part.
    """
    work = record_at(works, 0, WORK)
    key_map, most = key_map_of(x, work.key_map), values.size // counts.size
    space = scratch[part * 2 * COLUMNS : (part + 1) * 2 * COLUMNS]
    bound, best = space[:COLUMNS], space[COLUMNS:]
    first, last = share(part, parts, block_count(work, COLUMNS))
    for number in range(first, last):
        row, width = block_at(work, COLUMNS, number)
        start = start_of(work, work.x, row)
        for column in range(width):
            bound[column] = key_of(bounds[row + column], key_map)
        for begin in range(0, work.n, GROUP):
            end = min(begin + GROUP, work.n)
            lines_maxima(x, start, work.x.step, begin, end, width, key_map, best)
            for column in range(width):
                if best[column] > bound[column]:
                    for i in range(begin, end):
                        element = x[start + i * work.x.step + column]
                        if key_of(element, key_map) > bound[column]:
                            found = counts[row + column]
                            if found < most:
                                values[found * counts.size + row + column] = element
                                positions[found * counts.size + row + column] = first_position + i
                            counts[row + column] = found + 1


@device
def lines_maxima(x, start, step, begin, end, width, key_map, best):
    """Write the greatest key of each of `width` columns in the lines from `begin` to `end`."""
    lanes = line_of(x)
    for column in range(width):
        best[column] = 0
    for i in range(begin, end):
        line = x[start + i * step :][:width]
        for column in range(0, width, lanes):
            prefetch(x, start + (i + PREFETCH) * step + column)
        for column in range(width):
            best[column] = max(best[column], key_of(line[column], key_map))
