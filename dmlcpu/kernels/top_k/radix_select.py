"""Top-k by radix: histograms of 8-bit digits find the k-th greatest key, a pass collects, a stable sort orders."""

import numpy as np
from numba import prange

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k.keys import load_keys, write_row
from dmlcpu.runtime.jit import device, kernel

DIGITS = 256
# Below this many candidates an insertion sort beats counting, whose histogram alone has 256 cells.
SMALL = 32


@device
def find_threshold(keys, n, k, counts):
    """Return (mask, prefix, need): winners are all keys with key & mask > prefix and the first `need` equal to it."""
    mask = np.uint64(0)
    prefix = np.uint64(0)
    need = k
    for shift in range(8 * keys.itemsize - 8, -1, -8):
        counts[:DIGITS] = 0
        for i in range(n):
            key = np.uint64(keys[i])
            if key & mask == prefix:
                counts[(key >> np.uint64(shift)) & np.uint64(DIGITS - 1)] += 1
        digit = DIGITS - 1
        while counts[digit] < need:
            need -= counts[digit]
            digit -= 1
        mask |= np.uint64(DIGITS - 1) << np.uint64(shift)
        prefix |= np.uint64(digit) << np.uint64(shift)
        if counts[digit] == need:  # everything under this prefix wins: no further digit matters
            break
    return mask, prefix, need


@device
def collect(keys, n, mask, prefix, need, chosen, order):
    """Write the winning keys and their positions, in ascending position, to `chosen` and `order`."""
    filled = 0
    for i in range(n):
        masked = np.uint64(keys[i]) & mask
        if masked >= prefix:
            if masked == prefix:
                if need == 0:
                    continue
                need -= 1
            chosen[filled] = keys[i]
            order[filled] = i
            filled += 1


@device
def sort_small(chosen, order, k):
    """Sort descending and stably, in place, by insertion."""
    for i in range(1, k):
        key = chosen[i]
        position = order[i]
        j = i
        while j > 0 and chosen[j - 1] < key:
            chosen[j] = chosen[j - 1]
            order[j] = order[j - 1]
            j -= 1
        chosen[j] = key
        order[j] = position


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
def sort(chosen, order, k, counts):
    """Sort 2 * k words and positions, of which the first k are filled; return where the result starts: 0 or k."""
    if k <= SMALL:
        sort_small(chosen, order, k)
        return 0
    here, there = 0, k
    for shift in range(0, 8 * chosen.itemsize, 8):
        if sort_pass(shift, chosen[here:], order[here:], chosen[there:], order[there:], k, counts):
            here, there = there, here
    return here


@device
def select_rows(first, last, x, x_start, x_step, values, v_start, v_step, indices, i_start, i_step,
                words, grid, n, k, kind, infinity, largest, keys, order):  # fmt: skip
    """Do the sequences first, ..., last - 1. keys: n + 2k words; order: 2k int64, then the histogram."""
    counts = order[2 * k :]
    chosen = keys[n:]
    for row in range(first, last):
        start = x_start + offset(grid, 1, row)
        load_keys(x, start, x_step, n, kind, infinity, largest, keys)
        mask, prefix, need = find_threshold(keys, n, k, counts)
        collect(keys, n, mask, prefix, need, chosen, order)
        here = sort(chosen, order, k, counts)
        v = v_start + offset(grid, 2, row)
        i = i_start + offset(grid, 3, row)
        write_row(x, start, x_step, order[here:], k, values, v, v_step, indices, i, i_step, words)


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of `keys` and of `order` each share of the work needs."""
    return n + 2 * k, 2 * k + DIGITS


@kernel
def radix_select(parts, x, x_start, x_step, values, v_start, v_step, indices, i_start, i_step,
                 words, grid, rows, n, k, kind, infinity, largest, keys, order):  # fmt: skip
    """Select by radix in every sequence. x, values: words of one width; grid: (4, d); scratch: a row a part."""
    for part in prange(parts):
        select_rows(part * rows // parts, (part + 1) * rows // parts, x, x_start, x_step,
                    values, v_start, v_step, indices, i_start, i_step,
                    words, grid, n, k, kind, infinity, largest, keys[part], order[part])  # fmt: skip
