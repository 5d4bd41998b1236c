"""Block-max pruning for small k along an axis that is not the last: blocks of columns, read line by line.

A group is GROUP neighboring elements of one column; elements after the last whole group are groups of one. The maxima
of all columns of a block are computed in whole vectors. Then each column is finished separately, as groups.py
describes. No column is ever copied.
"""

import numpy as np

from dmlcpu.kernels.top_k import groups
from dmlcpu.kernels.top_k.column_blocks import block_at, block_count
from dmlcpu.kernels.top_k.groups import GROUP, Sequence, append_group, capacity, workspace_of_groups
from dmlcpu.kernels.top_k.keys import key_map_of, key_of, load_keys
from dmlcpu.kernels.top_k.work import WORK, Candidates, Problem, start_of, workspace_of, write_winners
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import line_of, lowest_bit, prefetch
from dmlcpu.runtime.jit import device, inlined, shared
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.variants import specialized

# Columns in a block: a few cache lines of each line of the input, and maxima that fit a cache.
COLUMNS = 128
# Prefetch distance in lines of the input: processors do not foresee jumps from line to line.
# Chosen as in strided_insert.py, not measured here.
PREFETCH = 16


def supports(problem: Problem) -> bool:
    """Return whether the kernel can do this."""
    return problem.columns > 1 and problem.n >= GROUP * problem.k


@shared
def workspace(n: int, k: int, lanes: int) -> tuple[int, int]:
    """Return how many keys and positions each share needs: the maxima of a block, and the space of one column."""
    keys, positions = workspace_of_groups(k, n // GROUP + GROUP)
    return keys + n // GROUP * COLUMNS, positions


@kernel
def strided_tournament(part, parts, x, values, indices, works, scratch):
    """Select in a share of the sequences, which are adjacent in x."""
    work = record_at(works, 0, WORK)
    n, k, key_map = work.n, work.k, key_map_of(x, work.key_map)
    space = workspace_of(part, parts, x, work, scratch)
    block_maxima = space.keys[: n // GROUP * COLUMNS]
    winners = Candidates(space.keys[block_maxima.size :], space.positions)
    first, last = share(part, parts, block_count(work, COLUMNS))
    for number in range(first, last):
        row, width = block_at(work, COLUMNS, number)
        start = start_of(work, work.x, row)
        group_maxima(x, start, work.x.step, width, key_map, block_maxima)
        for column in range(width):
            sequence = Sequence(x, start + column, work.x.step, n)
            maxima = column_maxima(sequence, key_map, block_maxima[column:], winners.keys[k + capacity(k) :])
            select(sequence, k, key_map, maxima, winners)
            write_winners(x, start + column, work, row + column, winners.positions, values, indices)


@device
def group_maxima(x, start, step, width, key_map, maxima):
    """Write the maxima of the whole groups of `width` columns. maxima: (whole groups, COLUMNS), but flat."""
    lanes = line_of(x)
    for group in range(maxima.size // COLUMNS):
        best = maxima[group * COLUMNS : (group + 1) * COLUMNS]
        for column in range(width):
            best[column] = 0
        for i in range(group * GROUP, (group + 1) * GROUP):
            line = x[start + i * step :][:width]
            for column in range(0, width, lanes):
                prefetch(x, start + (i + PREFETCH) * step + column)
            for column in range(width):
                best[column] = max(best[column], key_of(line[column], key_map))


@inlined
def column_maxima(sequence, key_map, block_maxima, maxima):
    """Write the maxima of a column's groups and return them. block_maxima: of whole groups, COLUMNS apart."""
    whole, rest = sequence.n // GROUP, sequence.n % GROUP
    for group in range(whole):
        maxima[group] = block_maxima[group * COLUMNS]
    start = sequence.start + whole * GROUP * sequence.step
    load_keys(sequence.x, start, sequence.step, rest, key_map, maxima[whole:])
    return maxima[: whole + rest]


@inlined
def append_groups(sequence, key_map, maxima, first, reached, least, candidates, found):
    """Append the elements that reach a bound, of the first group from `first` on whose bit is set; see groups.py.

    Whole lines would take up to four times as long where most groups reach the bound, which many equal elements cause.
    """
    group, left = first + lowest_bit(reached), reached & (reached - np.uint64(1))
    if group < sequence.n // GROUP:
        return append_group(sequence, group * GROUP, np.intp(1), key_map, least, candidates, found), left
    candidates.keys[found] = maxima[group]  # a group of one
    candidates.positions[found] = sequence.n - maxima.size + group
    return found + 1, left


select = specialized(groups.select, append_groups=append_groups)
