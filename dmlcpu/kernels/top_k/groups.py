"""What follows from the maxima of groups of elements: a lower bound for the winners, and the winners among few.

The k-th greatest of the groups' maxima is a lower bound for the k-th greatest element, so the winners are in groups
whose maximum reaches it. So is the k-th greatest of maxima of maxima: there are so few of them that it costs next to
nothing to find, and hardly more than k groups reach it.

Hardly more than k elements reach it, unless many are equal or the greatest lie together. So elements are gathered in
order of position, and if they become many, all but the k greatest are dropped; what comes later must then exceed those.
"""

from typing import NamedTuple

from dmlcpu.kernels.top_k.order import CELLS, sort
from dmlcpu.kernels.top_k.threshold import collect, count_at_least, kth_greatest
from dmlcpu.runtime.compilation import in_python
from dmlcpu.runtime.intrinsics import greatest_line, line_of
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
def room(k):
    """Return the room for candidates: how many there may be before all but k are dropped, and a tile more."""
    return 4 * k + 16 + TILE


def scratch(k: int, groups: int) -> tuple[int, int]:
    """Return how many words of keys and of positions a selection needs. groups: room for their maxima.

    Keys: k winners, the candidates, the maxima. Positions: of the winners, of the candidates, and what sorting needs.
    """
    candidates = in_python(room)(k)
    return k + candidates + groups + LINE, k + 3 * candidates + CELLS


@device
def lower_bound(maxima, groups, k, folded):
    """Return a key that at least k elements reach, and whether none exceeds it: then the first k to reach it win.

    folded: scratch for maxima of maxima, FOLDED * k and a line.
    """
    lanes = line_of(maxima)
    size = (FOLDED * k + lanes - 1) // lanes * lanes
    if size < groups:
        for line in range(0, size, lanes):
            greatest_line(maxima, line, size, groups - lanes + 1, folded, line)
        for rest in range(groups // lanes * lanes, groups):  # less than a line
            folded[rest % lanes] = max(folded[rest % lanes], maxima[rest])
        maxima, groups = folded, size
    least, _ = kth_greatest(maxima, groups, k, k)
    above = type(least)(least + type(least)(1))
    return least, above == 0 or count_at_least(maxima, groups, above) == 0


@device
def drop_losers(keys, positions, found, k, order):
    """Keep the k greatest of the elements gathered so far, of equal ones the first; return what later ones must reach.

    It is above a key that k of them reach, the k-th greatest or one not far below it, or 0 if no key is above.
    """
    least, reached = kth_greatest(keys, found, k, k)
    collect(keys, found, k, least, reached, k, keys, order)
    for i in range(k):
        positions[i] = positions[order[i]]
    return type(least)(least + type(least)(1))


@device
def finish(k, found, keys, positions):
    """Write the k greatest keys and their positions, in order, to keys[:k] and positions[:k].

    The `found` elements they are among stand behind these, by position.
    """
    candidates, places = keys[k:], positions[k:]
    words = places[room(k) :]
    here = sort(candidates, found, words, room(k), words[2 * room(k) :])
    for i in range(k):
        number = words[here + i] & 0xFFFFFFFF
        keys[i] = candidates[number]
        positions[i] = places[number]
