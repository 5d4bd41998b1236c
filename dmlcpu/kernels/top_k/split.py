"""Partitioned top-k of few long sequences: each share selects in a part of a sequence, and the winners are merged."""

import numpy as np

from dmlcpu.kernels.top_k.groups import GROUP, Sequence, capacity
from dmlcpu.kernels.top_k.keys import key_map_of
from dmlcpu.kernels.top_k.tournament import group_maxima, select, supports as supports, workspace as workspace
from dmlcpu.kernels.top_k.work import WORK, Problem, start_of, workspace_of, write_winners
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.jit import inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


def most_parts(problem: Problem) -> int:
    """Return the most parts of a sequence that have at least k groups each."""
    return max(1, problem.n // (GROUP * problem.k))


@kernel
def split(part, parts, x, values, indices, works, scratch):
    """Select in one of the `parts` // `rows` parts of a contiguous sequence; `merge` makes the result."""
    work = record_at(works, 0, WORK)
    k, key_map, each = work.k, key_map_of(x, work.key_map), parts // work.rows
    winners = workspace_of(part, parts, x, work, scratch)
    begin, end = share(part % each, each, work.n)
    sequence = Sequence(x, start_of(work, work.x, part // each) + begin, work.x.step, end - begin)
    maxima = group_maxima(sequence, key_map, winners.keys[k + capacity(k) :])
    select(sequence, k, key_map, maxima, winners)


@kernel
def merge(_, parts, x, values, indices, works, scratch):
    """Write the result of every split sequence."""
    work = record_at(works, 0, WORK)
    for row in range(work.rows):
        positions = merge_row(row, parts, x, work, scratch)
        write_winners(x, start_of(work, work.x, row), work, row, positions, values, indices)


@inlined
def merge_row(row, parts, x, work, scratch):
    """Merge the winners of a sequence's parts, among equal keys the earlier part's first; return their positions.

    positions[k] of a part, a cell that is free now, counts the winners taken from it; the result goes after this cell
    of the first part.
    """
    k, each = work.k, parts // work.rows
    first = row * each
    order = workspace_of(first, parts, x, work, scratch).positions[k + 1 :]
    for part in range(first, first + each):
        workspace_of(part, parts, x, work, scratch).positions[k] = 0
    for j in range(k):
        best, best_key = np.intp(-1), x.dtype.type(0)
        for part in range(first, first + each):
            winners = workspace_of(part, parts, x, work, scratch)
            taken = winners.positions[k]
            if taken < k and (best < 0 or winners.keys[taken] > best_key):
                best, best_key = np.intp(part), winners.keys[taken]
        positions = workspace_of(best, parts, x, work, scratch).positions
        begin, _ = share(best - first, each, work.n)
        order[j] = begin + positions[positions[k]]
        positions[k] += 1
    return order
