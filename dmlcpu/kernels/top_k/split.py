"""Top-k of few long sequences: every share of the work takes a part of one, and the parts' winners are merged."""

from numba import prange

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k.brief import unpack
from dmlcpu.kernels.top_k.groups import STRIPES, Sequences
from dmlcpu.kernels.top_k.keys import write_row
from dmlcpu.kernels.top_k.tournament import scratch, select
from dmlcpu.runtime.jit import device, kernel

__all__ = ["most_parts", "scratch", "split", "takes"]


def most_parts(work: Sequences) -> int:
    """Return into how many parts a sequence can be cut, each with k groups."""
    return max(1, work.n // (STRIPES * work.k))


def takes(work: Sequences) -> bool:
    """Tell whether the kernel can do this."""
    return work.step == 1 and work.n >= STRIPES * work.k


@device
def merge(first, last, n, k, keys, positions, order):
    """Merge the winners of the parts first, ..., last - 1 of a sequence; of equal keys the earlier part's comes first.

    positions[part, k], a cell that is free now, counts what has been taken of a part.
    """
    for part in range(first, last):
        positions[part, k] = 0
    for j in range(k):
        best = first
        best_key = keys.dtype.type(0)
        found = False
        for part in range(first, last):
            taken = positions[part, k]
            if taken == k:
                continue
            key = keys[part, taken]
            if not found or key > best_key:
                best, best_key, found = part, key, True
        begin, _ = bounds(best - first, last - first, n)
        order[j] = begin + positions[best, positions[best, k]]
        positions[best, k] += 1


@device
def bounds(part, parts, n):
    """Return where a part of a sequence begins and ends."""
    return part * n // parts, (part + 1) * n // parts


@kernel
def split(parts, x, values, indices, brief, scratch):
    """Select in every sequence, each contiguous, with `parts` // `rows` shares for each. See brief.py."""
    (x_start, _, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes, keys,
     positions) = unpack(parts, x, brief, scratch)  # fmt: skip
    each = parts // rows
    for part in prange(parts):
        begin, end = bounds(part % each, each, n)
        start = x_start + offset(grid, 1, part // each) + begin
        select(x, start, end - begin, k, codes, keys[part], positions[part])
    for row in range(rows):
        order = positions[row * each, k + 1 :]
        merge(row * each, (row + 1) * each, n, k, keys, positions, order)
        start = x_start + offset(grid, 1, row)
        v = v_start + offset(grid, 2, row)
        i = i_start + offset(grid, 3, row)
        write_row(x, start, 1, order, k, values, v, v_step, indices, i, i_step, words)
