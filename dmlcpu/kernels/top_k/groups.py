"""What follows from the maxima of groups of elements: a lower bound for the winners, and the winners among few.

The k-th greatest of the groups' maxima is a lower bound for the k-th greatest element, so the winners are in groups
whose maximum reaches it. So is the k-th greatest of maxima of maxima: there are so few of them that it costs next to
nothing to find, and hardly more than k groups reach it.
"""

from typing import NamedTuple

from dmlcpu.kernels.top_k.keys import key_of
from dmlcpu.kernels.top_k.order import CELLS, sort
from dmlcpu.kernels.top_k.threshold import kth_greatest
from dmlcpu.runtime.jit import device

STRIPES = 16  # elements in a group
# Maxima are folded into so many for each winner: fewer give a bound that more groups reach, more take longer.
FOLDED = 4
# The most elements that are compared at a time: a cache line of bytes.
LINE = 64
TILE = STRIPES * LINE


class Sequences(NamedTuple):
    """What a top-k is asked of, as far as the choice of a kernel goes."""

    rows: int  # sequences
    n: int  # elements of one
    k: int
    step: int  # from one element of a sequence to the next, in words
    line: int  # how many sequences lie side by side, a word apart


@device
def most_candidates(k):
    """Return how many elements are gathered at most: more than there are in fewer than k groups."""
    return STRIPES * (k + 1)


@device
def maxima_behind(k):
    """Return where in the scratch of a selection the maxima begin: behind k winners and the candidates."""
    return k + STRIPES * (k + 1) + TILE


def scratch(k: int, groups: int) -> tuple[int, int]:
    """Return how many words of keys and of positions a selection needs. groups: room for their maxima."""
    candidates = STRIPES * (k + 1) + TILE
    return k + candidates + groups + LINE, k + 3 * candidates + CELLS


@device
def fold(maxima, groups, size, folded):
    """Write the maxima of every size-th group to folded[:size]."""
    for i in range(size):
        folded[i] = maxima[i]
    for first in range(size, groups, size):
        line = maxima[first : min(first + size, groups)]
        for i in range(line.size):
            folded[i] = max(folded[i], line[i])


@device
def append_equal(x, start, step, codes, key, filled, k, keys, positions):
    """Append the first elements with this key, until k elements are there."""
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    i = 0
    while filled < k:
        if key_of(x[start + i * step], mask, positive, infinity, flip, nan) == key:
            keys[filled] = key
            positions[filled] = i
            filled += 1
        i += 1


@device
def lower_bound(attempt, maxima, groups, k, folded):
    """Return a key to gather elements by, and whether any can reach it.

    At least k elements reach the first attempt's, which is quick to find. If too many do, most of them may be equal to
    it: the second is the key above it. If still too many reach that, the third is the k-th greatest of the maxima (or
    less, if just k groups reach it, and they have no more than 16 k elements). Too many can reach that only if they are
    equal to it: the fourth is the key above it, which fewer than k groups reach.
    """
    size = FOLDED * k
    if attempt < 2 and size < groups:
        fold(maxima, groups, size, folded)
    else:
        folded, size = maxima, groups
    least, _ = kth_greatest(folded, size, k, k)
    if attempt % 2 == 0:
        return least, True
    word = maxima.dtype.type
    least = word(least + word(1))
    return least, least > 0


@device
def finish(x, start, step, codes, k, least, found, keys, positions):
    """Write the k greatest keys and their positions, in order, to keys[:k] and positions[:k].

    The `found` elements that reach `least` stand behind these, by position; if they are fewer than k, the others needed
    have the key below it.
    """
    room = STRIPES * (k + 1) + TILE
    candidates, places = keys[k:], positions[k:]
    words = places[room:]
    here = sort(candidates, found, words, room, words[2 * room :])
    wanted = min(found, k)
    for i in range(wanted):
        number = words[here + i] & 0xFFFFFFFF
        keys[i] = candidates[number]
        positions[i] = places[number]
    if wanted < k:
        append_equal(x, start, step, codes, type(least)(least - type(least)(1)), wanted, k, keys, positions)
