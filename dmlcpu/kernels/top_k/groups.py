"""What follows from the maxima of groups of elements: which groups to look at again, and the winners among them.

The k-th greatest of the groups' maxima is a lower bound for the k-th greatest element, so the winners are in groups
whose maximum reaches it: k groups, and more only where maxima are equal to it.

`lanes` groups of STRIPES elements form a tile; the elements of one group lie `lanes` apart. What is left behind the
last whole tile is one tile of fewer lanes, and behind that fewer than STRIPES groups of one element.
"""

from typing import NamedTuple

from dmlcpu.kernels.top_k.keys import key_of
from dmlcpu.kernels.top_k.order import DIGITS, sort
from dmlcpu.kernels.top_k.threshold import HALVING, collect, kth_greatest, kth_greatest_of_many
from dmlcpu.runtime.jit import device

STRIPES = 16


class Sequences(NamedTuple):
    """What a top-k is asked of, as far as the choice of a kernel goes."""

    rows: int  # sequences
    n: int  # elements of one
    k: int
    step: int  # from one element of a sequence to the next, in words
    line: int  # how many sequences lie side by side, a word apart


def enough_groups(n: int, k: int) -> bool:
    """Tell whether n elements form k groups, without which there is no lower bound."""
    return n // STRIPES + n % STRIPES >= k


@device
def most_groups(k):
    """Return how many groups are looked at again at most: k, and some whose maximum equals the threshold."""
    return 2 * k + STRIPES


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of keys and of positions `select` needs, with room for the maxima in front of the keys."""
    most = 2 * k + STRIPES
    candidates = STRIPES * most + 1
    return n // STRIPES + STRIPES + 2 * (k + 1) + candidates, 2 * (k + 1) + candidates + most + 1 + DIGITS


@device
def choose(maxima, groups, threshold, most, selected):
    """Write the groups whose maximum reaches the threshold; if there are more than `most`, those that exceed it.

    Return how many, and whether they are all that reach it. selected: most + 1 long.
    """
    filled = 0
    for group in range(groups):
        selected[filled] = group
        filled += maxima[group] >= threshold
        if filled > most:
            break
    else:
        return filled, True
    filled = 0
    for group in range(groups):  # fewer than k exceed it
        selected[filled] = group
        filled += maxima[group] > threshold
    return filled, False


@device
def gather(x, start, step, n, lanes, codes, selected, m, threshold, keys, positions):
    """Write all elements of the m selected groups that reach the threshold, by ascending position; return how many.

    keys, positions: STRIPES * m + 1 long; the cell behind the last is written in passing.
    """
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    tiles = n // (lanes * STRIPES)
    rest = (n - tiles * lanes * STRIPES) // STRIPES
    filled = 0
    i = 0
    while i < m:
        tile = min(selected[i] // lanes, tiles)
        width = lanes if tile < tiles else rest
        stripes = STRIPES
        shift = tile * lanes * (STRIPES - 1)  # from a group's number to its first element's position
        end = tile * lanes + width
        if selected[i] >= end:  # the groups of one
            stripes = 1
            shift += width * (STRIPES - 1)
            end = n
        after = i + 1
        while after < m and selected[after] < end:
            after += 1
        for stripe in range(stripes):
            for j in range(i, after):
                position = shift + stripe * width + selected[j]
                key = key_of(x[start + position * step], mask, positive, infinity, flip, nan)
                keys[filled] = key
                positions[filled] = position
                filled += key >= threshold
        i = after
    return filled


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
def select(x, start, step, n, k, lanes, codes, maxima, groups, keys, positions):
    """Write the k greatest keys of a sequence and their positions, in order, to keys[:k] and positions[:k].

    maxima: of its groups, at least k; keys, positions: scratch, as `scratch` tells.
    """
    most = most_groups(k)
    candidates, places = keys[2 * (k + 1) :], positions[2 * (k + 1) :]
    selected = places[STRIPES * most + 1 :]
    counts = selected[most + 1 :]

    if groups <= HALVING:
        threshold, _ = kth_greatest(maxima, groups, k)
    else:
        threshold, _ = kth_greatest_of_many(maxima, groups, k, counts)
    m, complete = choose(maxima, groups, threshold, most, selected)
    least = threshold if complete else keys.dtype.type(threshold + 1)
    found = gather(x, start, step, n, lanes, codes, selected, m, least, candidates, places)

    wanted = min(found, k)
    if wanted > 0:
        bound, reached = kth_greatest(candidates, found, wanted)
        collect(candidates, found, wanted, bound, reached, keys, positions)
        here = sort(keys, positions, wanted, k + 1, counts)
        for j in range(wanted):
            keys[j] = keys[here + j]
            positions[j] = places[positions[here + j]]
    if wanted < k:
        append_equal(x, start, step, codes, threshold, wanted, k, keys, positions)
