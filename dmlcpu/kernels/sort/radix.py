"""Radix sort of words by digits of 8 bits, the lowest first: in descending order, and equal words keep theirs.

A word is a key, if only values are wanted. Else its upper half is the key's *window*, and its lower half the element's
position. The window of a key of up to 32 bits is the key. For longer ones it has the highest 32 bits of what the key exceeds
the least one by, without those that are 0 in all; `settle` sorts what is equal in these.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from dmlcpu.kernels.sort.work import DIGITS
from dmlcpu.runtime.intrinsics import emitted, width_of
from dmlcpu.runtime.jit import device, inlined

WINDOW = 32  # bits
# Up to this many words are sorted by insertion, where windows are equal.
INSERTED = 24


@inlined
def digit_of(word, shift):
    """Return a digit of a word."""
    return np.uintp(np.uint64(word) >> np.uint64(shift)) & np.uintp(DIGITS - 1)


@inlined
def position_of(word):
    """Return the position of the element that a word stands for."""
    return np.int64(np.uint64(word) & np.uint64(0xFFFFFFFF))


class Windows(NamedTuple):
    """Where the windows of long keys are: the least key, and how many bits of a difference from it are 0 in all."""

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


@inlined
def digits_of_window(keys):
    """Return how many digits the window of a key has."""
    return min(width_of(keys), 4)


@device
def is_in_order(keys, first, last):
    """Return whether no key of keys[first:last] exceeds the one before it."""
    for i in range(first + 1, last):
        if keys[i] > keys[i - 1]:
            return False
    return True


@device
def extremes(keys, first, last):
    """Return the least and the greatest of keys[first:last]."""
    least = greatest = keys[first]
    for i in range(first, last):
        least, greatest = min(least, keys[i]), max(greatest, keys[i])
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
    least, greatest = extremes(keys, 0, n)
    return windows_between(least, greatest)


@inlined
def are_whole(windows):
    """Return whether windows hold all bits in which keys differ."""
    return windows.zeros == 64 - WINDOW


@emitted
def leading_zeros(builder, bits: types.uint64) -> types.intp:
    """Return how many of the highest of 64 bits are 0."""
    return builder.ctlz(bits, ir.IntType(1)(0))


@device
def make_words(keys, first, last, windows, words):
    """Write the words of keys[first:last] to the same places of `words`."""
    for i in range(first, last):
        words[i] = window_of(keys, i, windows) << np.uint64(32) | np.uint64(i)


@inlined
def count_digits(words, first, last, low, digits, counts):
    """Count each of `digits` digits from bit `low` on in words[first:last]. digits: a constant, so LLVM unrolls."""
    for cell in range(digits * DIGITS):
        counts[cell] = 0
    for i in range(first, last):
        for digit in range(digits):
            counts[np.uintp(digit * DIGITS) + digit_of(words[i], low + 8 * digit)] += 1


@device
def places_of(counts, first):
    """Let the counts of a digit become the places of the first word with each digit; `first`: that of the greatest."""
    total = np.int64(first)
    for cell in range(DIGITS - 1, -1, -1):
        count = counts[cell]
        counts[cell] = total
        total += count


@device
def move(source, target, first, last, shift, places):
    """Write source[first:last] to target, each word to the next place of its digit."""
    for i in range(first, last):
        word = source[i]
        digit = digit_of(word, shift)
        place = places[digit]
        places[digit] = place + 1
        target[np.uintp(place)] = word


@inlined
def sort_words(words, here, there, n, low, digits, counts):
    """Sort words[here : here + n] by `digits` digits from bit `low` on; return where the result starts: here or there.

    words[there : there + n] is workspace.
    """
    count_digits(words, here, here + n, low, digits, counts)
    for digit in range(digits):
        shift, of_digit = low + 8 * digit, counts[digit * DIGITS : (digit + 1) * DIGITS]
        if of_digit[digit_of(words[here], shift)] == n:
            continue  # all words have the same
        places_of(of_digit, there)
        move(words, words, here, here + n, shift, of_digit)
        here, there = there, here
    return here


@device
def settle(keys, windows, words, here, first, last, n, there, counts):
    """Sort the runs of equal windows that begin in places [first, last) of n by the rest of their keys.

    words[here + i]: that at place i; words[there + i] is workspace. Other threads may sort runs that begin elsewhere,
    after which words have other windows: so windows of words that are not this share's come from the keys.
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
    """Sort a run by the bits behind the windows; its words get these for their windows."""
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
