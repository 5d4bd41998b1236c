"""Rank sort and LSD radix sort of the winners: descending keys, equal keys in input order, by ascending position.

The upper half of a sorted word is half a key, the lower half the element's number in the input. So a pass moves one
word, and keys of 64 bits take two sorts: by their lower half, then by their upper half.
"""

import numpy as np

from dmlcpu.kernels.radix import RADIX, digits_of_window, sort_words
from dmlcpu.kernels.top_k.lines import count_bits, reach
from dmlcpu.runtime.intrinsics import line_of
from dmlcpu.runtime.jit import device

# The workspace of `sort`: a histogram for each digit of half a key.
CELLS = 4 * RADIX
# Up to this many keys, counting ranks in whole vectors beats the histograms of a radix sort.
RANKED = 192


@device
def sort_by_rank(keys, k, words, seen):
    """Write each key's number to its place, which is the number of keys that come before it.

    Equal keys keep their order. keys: readable to the end of the last line; seen: k + 1 cells.
    """
    lanes = line_of(keys)
    last = (k - 1) // lanes * lanes
    in_last = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - (k - last))
    for place in range(k + 1):
        seen[place] = 0
    for i in range(k - 1, -1, -1):
        key = keys[i]
        place = count_bits(reach(keys, last, key) & in_last)
        for line in range(0, last, lanes):
            place += count_bits(reach(keys, line, key))
        seen[place] += 1
        words[place - seen[place]] = i


@device
def sort(keys, k, words, capacity, counts):
    """Sort k keys; return where the sorted words start in `words`.

    The lower half of a word is the number of an element. words: two times `capacity`, which is at least k.
    """
    if k <= RANKED:
        if k > 0:
            sort_by_rank(keys, k, words, counts)
        return 0
    width = keys.itemsize
    for i in range(k):
        words[i] = np.int64(np.uint64(keys[i]) << np.uint64(32)) | i
    here = np.intp(0)  # a literal 0 would compile `sort_words` twice
    for half in range((width + 3) // 4):  # one call in a loop: two would be compiled twice
        if half == 1:
            for i in range(here, here + k):
                number = words[i] & 0xFFFFFFFF
                words[i] = np.int64(np.uint64(keys[number]) & np.uint64(0xFFFFFFFF00000000)) | number
        here = sort_words(words, here, capacity - here, k, 32, digits_of_window(keys), counts)
    return here
