"""Sorting the winners: descending keys, equal ones by ascending position."""

import numpy as np

from dmlcpu.runtime.jit import device

DIGITS = 256
# Up to so many keys counting the greater ones of each, in whole vectors, beats the histograms of a radix sort.
RANKED = 96


@device
def sort_by_rank(source, source_order, target, target_order, k, seen):
    """Put each key behind those greater than it; equal keys follow one another as they come. seen: k cells."""
    some = source[:k]
    seen[:k] = 0
    for i in range(k):
        key = some[i]
        greater = np.uint32(0)
        for j in range(some.size):
            greater = np.uint32(greater + (np.uint32(1) if some[j] > key else np.uint32(0)))
        place = greater + seen[greater]
        seen[greater] += 1
        target[place] = key
        target_order[place] = source_order[i]


@device
def sort_pass(shift, source, source_order, target, target_order, k, counts):
    """Distribute by one digit, greatest first, keeping the order of equals; return False if it changes nothing."""
    counts[:DIGITS] = 0
    for i in range(k):
        counts[(np.uint64(source[i]) >> np.uint64(shift)) & np.uint64(DIGITS - 1)] += 1
    total = 0
    for digit in range(DIGITS - 1, -1, -1):
        count = counts[digit]
        if count == k:  # all keys share this digit
            return False
        counts[digit] = total
        total += count
    for i in range(k):
        cell = (np.uint64(source[i]) >> np.uint64(shift)) & np.uint64(DIGITS - 1)
        target[counts[cell]] = source[i]
        target_order[counts[cell]] = source_order[i]
        counts[cell] += 1
    return True


@device
def sort(chosen, order, k, room, counts):
    """Sort k keys and positions, both arrays of `room` and as much again; return where the result starts."""
    if k <= RANKED:
        sort_by_rank(chosen, order, chosen[room:], order[room:], k, counts)
        return room
    here, there = 0, room
    for shift in range(0, 8 * chosen.itemsize, 8):
        if sort_pass(shift, chosen[here:], order[here:], chosen[there:], order[there:], k, counts):
            here, there = there, here
    return here
