"""Block-max pruning: the maxima of groups of elements bound the winners from below, and most groups are not read again.

The k-th greatest of the groups' maxima is a lower bound for the k-th greatest element, so the winners are in groups
whose maximum reaches it. The k-th greatest of maxima of maxima is also a lower bound. There are few of these, so it is
cheap to find, and hardly more than k groups reach it.

Hardly more than k elements reach the bound, unless many are equal or the greatest lie together. Elements that reach it
become candidates, in order of position. If there are many, all but the k greatest are dropped, and later elements must
exceed those.

The layout of a group differs from kernel to kernel. Each kernel writes the maxima itself, and has a copy of `select`
that calls its own `append_groups`.
"""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.top_k.greatest import LineRange, greatest_words
from dmlcpu.kernels.top_k.keys import key_of
from dmlcpu.kernels.top_k.order import CELLS, sort
from dmlcpu.kernels.top_k.threshold import bits_of_line, collect, count_at_least, kth_greatest
from dmlcpu.kernels.top_k.work import Candidates
from dmlcpu.runtime.intrinsics import line_of
from dmlcpu.runtime.jit import device, inlined, shared

GROUP = 16  # elements in a group
# Folded maxima for each winner: with fewer, more groups reach the bound; more take longer.
FOLDED = 4
# The most elements compared at a time: a cache line of bytes.
LINE = 64
TILE = GROUP * LINE


class Sequence(NamedTuple):
    """One sequence, or a part of one: x[start], x[start + step], ..., n elements."""

    x: Any
    start: Any
    step: Any
    n: Any


@shared
def capacity(k: int) -> int:
    """Return the capacity for candidates. When less than a tile of it is left, all but k are dropped."""
    return 4 * k + 16 + TILE


@shared
def workspace_of_groups(k: int, groups: int) -> tuple[int, int]:
    """Return how many keys and positions a selection needs. groups: the most maxima.

    Keys: of k winners, of the candidates, the maxima. Positions: of the winners, of the candidates, and of the sort.
    """
    candidates = capacity(k)
    return k + candidates + groups + LINE, k + 3 * candidates + CELLS


@device
def lower_bound(maxima, k, folded):
    """Return a key that at least k elements reach, and whether none exceeds it. If so, the first k to reach it win.

    folded: workspace for maxima of maxima, FOLDED * k and a line.
    """
    lanes = line_of(maxima)
    groups, size = maxima.size, (FOLDED * k + lanes - 1) // lanes * lanes
    if size < groups:
        for line in range(0, size, lanes):
            lines = LineRange(maxima, line, size, groups - lanes + 1, 0)
            greatest_words(lines, maxima.dtype.type(0), folded, line)
        for rest in range(groups // lanes * lanes, groups):  # less than a line
            folded[rest % lanes] = max(folded[rest % lanes], maxima[rest])
        maxima, groups = folded, size
    least, _ = kth_greatest(maxima, groups, k, k)
    above = type(least)(least + type(least)(1))
    return least, above == 0 or count_at_least(maxima, groups, above) == 0


@inlined
def append_group(sequence, position, stride, key_map, least, candidates, found):
    """Append the elements at `position`, position + stride, ... that reach a bound; return the candidates' number."""
    for _ in range(GROUP):
        key = key_of(sequence.x[np.uintp(sequence.start + position * sequence.step)], key_map)
        candidates.keys[np.uintp(found)] = key
        candidates.positions[np.uintp(found)] = position
        found += 1 if key >= least else 0
        position += stride
    return found


@inlined
def prune(candidates, found, k, least, is_greatest):
    """Drop candidates if there are many; return how many are left, the new bound, and whether the search is over.

    There are many if the next line of groups may not fit. Then the k greatest are kept, of equal ones the first. All of
    them reach a threshold. Later elements must exceed it, because k earlier ones reach it. is_greatest: no element
    exceeds `least`, so the first k that reach it win, and the search ends with them.
    """
    if is_greatest and found >= k:
        return found, least, True
    if found <= capacity(k) - TILE:  # another line of groups fits
        return found, least, False
    keys, positions, order = candidates.keys, candidates.positions, candidates.positions[capacity(k) :]
    threshold, reached = kth_greatest(keys, found, k, k)
    collect(keys, found, k, threshold, reached, k, keys, order)
    for i in range(k):
        positions[i] = positions[order[i]]
    above = type(threshold)(threshold + type(threshold)(1))
    return k, above, above == 0


@device
def select_and_sort(winners, candidates, k, found):
    """Write the k greatest of the `found` candidates to winners[:k], in order; of equal ones the first come first."""
    words = candidates.positions[capacity(k) :]
    here = sort(candidates.keys, found, words, capacity(k), words[2 * capacity(k) :])
    for i in range(k):
        number = words[here + i] & 0xFFFFFFFF
        winners.keys[i] = candidates.keys[number]
        winners.positions[i] = candidates.positions[number]


@inlined
def append_groups(sequence, key_map, maxima, first, reached, least, candidates, found):
    """Append the elements that reach a bound, of one or more groups from `first` on whose bit is set.

    Return the number of candidates, and the bits of the groups left for another call. Each kernel replaces this
    function with its own, which takes elements by ascending position.
    """
    return found, np.uint64(0)


@inlined
def select(sequence, k, key_map, maxima, winners):
    """Write the k greatest elements of a sequence to winners[:k], in order; the rest of winners is workspace.

    maxima: of the sequence's groups, in the workspace after the candidates. A line of groups has at most TILE elements,
    all of them after the elements of earlier lines.
    """
    least, is_greatest = lower_bound(maxima, k, winners.keys)
    candidates = Candidates(winners.keys[k:], winners.positions[k:])
    found, is_done = np.intp(0), False  # with a literal 0 the callees of `append_groups` would be compiled twice
    for first in range(0, maxima.size, line_of(sequence.x)):
        reached = bits_of_line(maxima, first, maxima.size, least)
        while reached != 0 and not is_done:
            found, reached = append_groups(sequence, key_map, maxima, first, reached, least, candidates, found)
            found, least, is_done = prune(candidates, found, k, least, is_greatest)
        if is_done:
            break
    select_and_sort(winners, candidates, k, found)
