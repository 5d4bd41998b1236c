"""Words of keys: in the upper half the key's *window*, in the lower half the element's position.

The window of a key of up to 32 bits is the key itself. For a longer key, subtract the least key and drop the leading
bits that are 0 in all differences. The window is the highest 32 bits of the rest. `settle` sorts keys with equal
windows.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from dmlcpu.kernels.radix import sort_words
from dmlcpu.runtime.intrinsics import emitted, width_of
from dmlcpu.runtime.jit import device, inlined

WINDOW = 32  # bits
# Runs of equal windows of up to this many words are sorted by insertion.
INSERTED = 24


@inlined
def position_of(word):
    """Return the position of a word's element."""
    return np.int64(np.uint64(word) & np.uint64(0xFFFFFFFF))


class Windows(NamedTuple):
    """Where the windows of long keys are: the least key, and how many leading bits are 0 in all differences from it."""

    least: Any
    zeros: Any


@inlined
def window_of(keys, i, windows):
    """Return the window of keys[i]."""
    key = np.uint64(keys[i])
    if width_of(keys) < 8:
        return key
    return ((key - windows.least) << np.uint64(windows.zeros)) >> np.uint64(64 - WINDOW)


@inlined
def rest_of(keys, i, windows):
    """Return the bits of keys[i] after its window."""
    return ((np.uint64(keys[i]) - windows.least) << np.uint64(windows.zeros)) & np.uint64(0xFFFFFFFF)


@device
def is_in_order(keys, first, last):
    """Return whether no key of keys[first:last] exceeds the one before it."""
    for i in range(first + 1, last):  # noqa: SIM110 (Numba has no all)
        if keys[np.uintp(i)] > keys[np.uintp(i - 1)]:
            return False
    return True


@device
def extremes(keys, first, last):
    """Return the least and the greatest of keys[first:last]."""
    least = greatest = keys[first]
    for i in range(first, last):
        key = keys[np.uintp(i)]
        least, greatest = min(least, key), max(greatest, key)
    return np.uint64(least), np.uint64(greatest)


@inlined
def windows_between(least, greatest):
    """Return the windows of keys with these extremes."""
    return Windows(least, min(64 - WINDOW, leading_zeros(greatest - least)))


@inlined
def windows_of(keys, n):
    """Return the windows of keys[:n]; short keys need none."""
    if width_of(keys) < 8:
        return Windows(np.uint64(0), 64 - WINDOW)
    least, greatest = extremes(keys, np.intp(0), n)
    return windows_between(least, greatest)


@inlined
def are_whole(windows):
    """Return whether windows contain all bits in which keys differ."""
    return windows.zeros == 64 - WINDOW


@emitted
def leading_zeros(builder, bits: types.uint64) -> types.intp:
    """Return how many of the highest of 64 bits are 0."""
    return builder.ctlz(bits, ir.IntType(1)(0))


@device
def make_words(keys, first, last, windows, words):
    """Write the words of keys[first:last] to the same places of `words`."""
    for i in range(first, last):
        words[np.uintp(i)] = window_of(keys, np.uintp(i), windows) << np.uint64(32) | np.uint64(i)


@device
def settle(keys, windows, words, here, first, last, n, there, counts):
    """Sort the runs of equal windows that begin in places [first, last) of n by the rest of their keys.

    words[here + i]: the word at place i; words[there + i] is workspace. Another thread may already have sorted another
    run, which changes the windows in its words. So windows of other shares' words are computed from the keys.
    """
    begin = first
    if first > 0:
        before = window_of(keys, position_of(words[here + first - 1]), windows)
        while begin < last and window_of(keys, position_of(words[here + begin]), windows) == before:
            begin += 1
    while begin < last:
        window, stop = words[here + begin] >> np.uint64(32), begin + 1
        while stop < last and words[here + stop] >> np.uint64(32) == window:
            stop += 1
        if stop == last:
            while stop < n and window_of(keys, position_of(words[here + stop]), windows) == window:
                stop += 1
        if stop > begin + 1:
            settle_run(keys, windows, words, here + begin, here + stop, there + begin, counts)
        begin = stop


@device
def settle_run(keys, windows, words, begin, stop, spare, counts):
    """Sort a run by the bits after the windows, which replace the windows in its words."""
    for i in range(begin, stop):
        position = position_of(words[i])
        words[i] = rest_of(keys, position, windows) << np.uint64(32) | np.uint64(position)
    if stop - begin > INSERTED:
        if sort_words(words, begin, spare, stop - begin, 32, 4, counts) == spare:
            for i in range(stop - begin):
                words[begin + i] = words[spare + i]
        return
    for i in range(begin + 1, stop):
        word, place = words[i], i
        while place > begin and words[place - 1] >> np.uint64(32) < word >> np.uint64(32):
            words[place] = words[place - 1]
            place -= 1
        words[place] = word
