"""Top-k of few long sequences: every share of the work takes a part of one, and the parts' winners are merged."""

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k.brief import scratch_of, unpack
from dmlcpu.kernels.top_k.groups import STRIPES, Sequences, finish, lower_bound, room
from dmlcpu.kernels.top_k.keys import write_row
from dmlcpu.kernels.top_k.tournament import gather, group_maxima, scratch
from dmlcpu.runtime.jit import device, viewer
from dmlcpu.runtime.kernel import kernel

__all__ = ["most_parts", "scratch", "split", "takes"]


def most_parts(work: Sequences) -> int:
    """Return into how many parts a sequence can be cut, each with k groups."""
    return max(1, work.n // (STRIPES * work.k))


def takes(work: Sequences) -> bool:
    """Return whether the kernel can do this."""
    return work.step == 1 and work.n >= STRIPES * work.k


@device
def bounds(part, parts, n):
    """Return where a part of a sequence begins and ends."""
    return part * n // parts, (part + 1) * n // parts


@kernel
def split(part, parts, x, values, indices, brief, scratch):
    """Select in one part of a sequence, of which there are `parts` // `rows`; `merge` makes the result of them."""
    x_start, _, _, _, _, _, _, rows, n, k, grid, codes = unpack(x, brief)
    keys, positions = scratch_of(part, parts, x, brief, scratch)
    each = parts // rows
    begin, end = bounds(part % each, each, n)
    start = x_start + offset(grid, 1, part // each) + begin
    maxima = keys[k + room(k) :]
    groups = group_maxima(x, start, end - begin, codes, maxima)
    least, is_greatest = lower_bound(maxima, groups, k, keys)
    found = gather(x, start, end - begin, codes, maxima, groups, k, least, is_greatest, keys[k:], positions[k:])
    finish(k, found, keys, positions)


@viewer
def merge_row(first, each, parts, n, k, x, brief, scratch):
    """Merge the winners of a sequence's `each` parts from `first` on; return their positions.

    Of equal keys the earlier part's comes first. positions[k] of a part, a cell that is free now, counts what has been
    taken of it; the result goes behind that of the first part.
    """
    _, order = scratch_of(first, parts, x, brief, scratch)
    order = order[k + 1 :]
    for part in range(first, first + each):
        _, positions = scratch_of(part, parts, x, brief, scratch)
        positions[k] = 0
    for j in range(k):
        best = -1
        best_key = x.dtype.type(0)
        for part in range(first, first + each):
            keys, positions = scratch_of(part, parts, x, brief, scratch)
            taken = positions[k]
            if taken < k and (best < 0 or keys[taken] > best_key):
                best, best_key = part, keys[taken]
        _, positions = scratch_of(best, parts, x, brief, scratch)
        begin, _ = bounds(best - first, each, n)
        order[j] = begin + positions[positions[k]]
        positions[k] += 1
    return order


@kernel
def merge(_, parts, x, values, indices, brief, scratch):
    """Write the result of every sequence that was split into parts."""
    x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, _ = unpack(x, brief)
    each = parts // rows
    for row in range(rows):
        order = merge_row(row * each, each, parts, n, k, x, brief, scratch)
        write_row(x, x_start + offset(grid, 1, row), x_step, order, k, values, v_start + offset(grid, 2, row), v_step,
                  indices, i_start + offset(grid, 3, row), i_step, words)  # fmt: skip
