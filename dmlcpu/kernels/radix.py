"""Passes of a radix sort by digits of 8 bits, in descending order; words with equal digits keep their order."""

import numpy as np

from dmlcpu.runtime.intrinsics import width_of
from dmlcpu.runtime.jit import device, inlined

RADIX = 256


@inlined
def digit_of(word, shift):
    """Return a digit of a word."""
    return np.uintp(np.uint64(word) >> np.uint64(shift)) & np.uintp(RADIX - 1)


@inlined
def digits_of_window(keys):
    """Return how many digits a key has in the upper half of a word of 64 bits."""
    return min(width_of(keys), 4)


@inlined
def count_digits(words, first, last, low, digits, counts):
    """Count each of `digits` digits from bit `low` on in words[first:last]. digits: a constant, so LLVM unrolls."""
    for cell in range(digits * RADIX):
        counts[cell] = 0
    for i in range(first, last):
        for digit in range(digits):
            counts[np.uintp(digit * RADIX) + digit_of(words[i], low + 8 * digit)] += 1


@device
def places_of(counts, first):
    """Replace the counts of a digit by the place of the first word with each digit; `first`: that of the greatest."""
    total = np.int64(first)
    for cell in range(RADIX - 1, -1, -1):
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
    """Sort words[here : here + n] by `digits` digits from bit `low` on; return where the result is: here or there.

    words[there : there + n] is workspace.
    """
    count_digits(words, here, here + n, low, digits, counts)
    for digit in range(digits):
        shift, of_digit = low + 8 * digit, counts[digit * RADIX : (digit + 1) * RADIX]
        if of_digit[digit_of(words[here], shift)] == n:
            continue  # all words have the same digit
        places_of(of_digit, there)
        move(words, words, here, here + n, shift, of_digit)
        here, there = there, here
    return here
