"""Radix-select, one bit a pass: the k-th greatest key is found by halving the range of keys and counting."""

import numpy as np

from dmlcpu.kernels.top_k.lines import count_bits, reach
from dmlcpu.runtime.intrinsics import line_of
from dmlcpu.runtime.jit import device

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@device
def bits_of_line(keys, line, n, threshold):
    """Return bits that say which keys of the line at keys[line] reach the threshold; 0 from keys[n] on."""
    bits = reach(keys, line, threshold)
    beyond = line + line_of(keys) - n
    return bits if beyond <= 0 else bits & ALL >> np.uint64(64 - line_of(keys) + beyond)


@device
def count_at_least(keys, n, threshold):
    """Count the keys that are at least `threshold`."""
    count, whole = 0, n // line_of(keys) * line_of(keys)
    for line in range(0, whole, line_of(keys)):
        count += count_bits(reach(keys, line, threshold))
    if whole < n:
        count += count_bits(bits_of_line(keys, whole, n, threshold))
    return count


@device
def kth_greatest(keys, n, k, enough):
    """Return (threshold, count): count keys reach the threshold, from k to `enough` of them if ties allow it.

    If ties do not, count exceeds `enough`, and the threshold is the k-th greatest key.

    A pass compares a line of keys at a time. Some 15 such passes are cheaper than a histogram, also beyond the caches:
    k 100,000 of 2,000,000 takes 11 ms this way and 20 with histograms. Bits in which the extremes agree need no pass.
    keys: readable to the end of the last line.
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
def collect(keys, n, k, threshold, reached, enough, chosen, order):
    """Write the keys that reach the threshold and their positions, by ascending position; return how many.

    If more than `enough` reach it, write k: all that exceed the threshold, and the first that equal it. chosen, order:
    enough + 1 long; the last cell is scratch.
    """
    filled = np.uintp(0)
    if reached <= enough:
        for i in range(n):
            chosen[filled] = keys[i]
            order[filled] = i
            filled += np.uintp(1) if keys[i] >= threshold else np.uintp(0)
        return reached
    above = type(threshold)(threshold + type(threshold)(1))
    equal = k - (count_at_least(keys, n, above) if above > 0 else 0)
    i = 0
    while filled < np.uintp(k):
        wins = keys[i] > threshold or (keys[i] == threshold and equal > 0)
        equal -= keys[i] == threshold
        chosen[filled] = keys[i]
        order[filled] = i
        filled += np.uintp(1) if wins else np.uintp(0)
        i += 1
    return k
