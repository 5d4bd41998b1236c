"""The k-th greatest of a set of keys, found by halving the range of keys and counting; and the keys that reach it."""

import numpy as np

from dmlcpu.runtime.jit import device

DIGITS = 256
# Counts of so many keys fit an int32, as wide as a key: counters of 64 bits would halve the speed.
BLOCK = 1 << 30
# Beyond so many keys, which no longer lie in a near cache, few passes of histograms beat many of comparisons.
HALVING = 16384


@device
def count_at_least(keys, n, threshold):
    """Count the keys that are at least `threshold`."""
    total = np.int64(0)
    for first in range(0, n, BLOCK):
        block = keys[first : min(first + BLOCK, n)]
        count = np.uint32(0)
        for i in range(block.size):
            count = np.uint32(count + (np.uint32(1) if block[i] >= threshold else np.uint32(0)))
        total += np.int64(count)
    return total


@device
def kth_greatest(keys, n, k, enough):
    """Return (threshold, count): count keys reach the threshold, from k to `enough` of them if ties allow it.

    With `enough` equal to k, or if they do not, the threshold is the k-th greatest key.

    A pass compares n keys in whole vectors, which is so much faster than a histogram that halving the range some 15
    times is cheaper. Bits in which the extremes agree need no pass.
    """
    word = keys.dtype.type
    some = keys[:n]
    lowest, greatest = some[0], some[0]
    for i in range(some.size):
        lowest = min(lowest, some[i])
        greatest = max(greatest, some[i])
    differing = np.uint64(lowest ^ greatest)
    width = 0
    while differing >> np.uint64(width) != 0 and width < 8 * keys.itemsize:
        width += 1
    threshold = np.uint64(greatest) >> np.uint64(width) << np.uint64(width) if width < 64 else np.uint64(0)
    reached = n
    for shift in range(width - 1, -1, -1):
        if reached <= enough:
            break
        candidate = threshold | np.uint64(1) << np.uint64(shift)
        count = count_at_least(keys, n, word(candidate))
        threshold = candidate if count >= k else threshold
        reached = count if count >= k else reached
    return word(threshold), reached


@device
def kth_greatest_of_many(keys, n, k, counts):
    """Return what `kth_greatest` does, by histograms of 8-bit digits. counts: DIGITS int64."""
    mask = np.uint64(0)
    prefix = np.uint64(0)
    above = 0  # keys known to be greater than any with this prefix
    count = n
    for shift in range(8 * keys.itemsize - 8, -1, -8):
        for digit in range(DIGITS):
            counts[digit] = 0
        for i in range(n):
            key = np.uint64(keys[i])
            if key & mask == prefix:
                counts[(key >> np.uint64(shift)) & np.uint64(DIGITS - 1)] += 1
        digit = DIGITS - 1
        while above + counts[digit] < k:
            above += counts[digit]
            digit -= 1
        mask |= np.uint64(DIGITS - 1) << np.uint64(shift)
        prefix |= np.uint64(digit) << np.uint64(shift)
        count = counts[digit]
        if above + count == k:
            break
    return keys.dtype.type(prefix), above + count


@device
def count_equal(keys, threshold):
    """Count the keys that equal the threshold."""
    count = 0
    for i in range(keys.size):
        count += keys[i] == threshold
    return count


@device
def collect(keys, n, k, threshold, reached, enough, chosen, order):
    """Write the keys that reach the threshold and their positions, by ascending position; return how many.

    If they are more than `enough`, k of them: of those equal to the threshold the first. chosen, order: enough + 1
    long; the last cell is written in passing.
    """
    some = keys[:n]
    filled = np.uintp(0)
    if reached <= enough:
        for i in range(some.size):
            chosen[filled] = some[i]
            order[filled] = i
            filled += np.uintp(1) if some[i] >= threshold else np.uintp(0)
        return reached
    need = k - (reached - count_equal(some, threshold))
    for i in range(some.size):
        equal = some[i] == threshold
        wins = some[i] > threshold or (equal and need > 0)
        need -= equal
        chosen[filled] = some[i]
        order[filled] = i
        filled += np.uintp(1) if wins else np.uintp(0)
        if filled == np.uintp(k):
            break
    return k
