"""Writing sorted sequences: elements by their positions, or keys that become elements again."""

import numpy as np

from dmlcpu.kernels.sort.windows import position_of
from dmlcpu.kernels.top_k.work import start_of
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device, inlined


@device
def write_indices(work, row, words, here, first, last, indices):
    """Write the positions of words[here + j] to places [first, last) of sequence `row`."""
    i, step = start_of(work, work.indices, row), work.indices.step
    if work.index_words == 2 and step == 2:  # whole vectors
        wide = as_words(indices, i, np.uint64)
        for j in range(first, last):
            wide[np.uintp(j)] = words[np.uintp(here + j)] & np.uint64(0xFFFFFFFF)
    elif work.index_words == 1 and step == 1:
        narrow = indices[i:]
        for j in range(first, last):
            narrow[np.uintp(j)] = np.uint32(words[np.uintp(here + j)] & np.uint64(0xFFFFFFFF))
    else:
        for j in range(first, last):
            low = np.uintp(i + j * step)
            indices[low] = np.uint32(words[np.uintp(here + j)] & np.uint64(0xFFFFFFFF))
            if work.index_words == 2:
                indices[low + np.uintp(1)] = 0


@device
def write_by_position(x, start, work, row, words, here, first, last, values, indices):
    """Write places [first, last) of sequence `row`, which begins at x[start]; words[here + j]: the word of place j."""
    if work.index_words:
        write_indices(work, row, words, here, first, last, indices)
    if work.has_values:
        v, v_step, x_step = start_of(work, work.values, row), work.values.step, work.x.step
        for j in range(first, last):
            values[np.uintp(v + j * v_step)] = x[np.uintp(start + position_of(words[np.uintp(here + j)]) * x_step)]


@device
def write_by_window(x, start, work, row, words, here, first, last, key_map, values, indices):
    """Do the same for words whose windows are whole keys: only zeros and NaNs are read from x."""
    if work.index_words:
        write_indices(work, row, words, here, first, last, indices)
    if work.has_values:
        v, v_step, x_step = start_of(work, work.values, row), work.values.step, work.x.step
        zero = x.dtype.type(key_map.flip)
        for j in range(first, last):
            word = words[np.uintp(here + j)]
            key = x.dtype.type(word >> np.uint64(32))
            element = element_of(key, key_map)
            if key == zero or key == key_map.nan:
                element = x[np.uintp(start + position_of(word) * x_step)]
            values[np.uintp(v + j * v_step)] = element


@device
def write_in_order(x, start, work, row, first, last, values, indices):
    """Write places [first, last) of a sequence whose elements are in order."""
    if work.has_values:
        v, v_step, x_step = start_of(work, work.values, row), work.values.step, work.x.step
        for j in range(first, last):
            values[np.uintp(v + j * v_step)] = x[np.uintp(start + j * x_step)]
    if work.index_words:
        i, i_step = start_of(work, work.indices, row), work.indices.step
        for j in range(first, last):
            low = np.uintp(i + j * i_step)
            indices[low] = np.uint32(j)
            if work.index_words == 2:
                indices[low + np.uintp(1)] = 0


@inlined
def element_of(key, key_map):
    """Return the element of a key; zeros share a key, and so do NaNs: one of them."""
    word = type(key)
    value = word(key ^ key_map.flip)
    return word(word(word(0) - value) | word(~key_map.mask)) if value > key_map.mask else value


@device
def write_keys(work, row, keys, here, first, last, key_map, values):
    """Write the elements of keys[here + j] to places [first, last) of sequence `row`."""
    v, v_step = start_of(work, work.values, row), work.values.step
    for j in range(first, last):
        values[np.uintp(v + j * v_step)] = element_of(keys[np.uintp(here + j)], key_map)


@device
def restore(x, start, work, row, keys, here, key_map, values):
    """Write zeros and NaNs again, in the order of x, because all zeros share a key, and all NaNs.

    No two integers share a key: their mask is all ones. keys[here + j]: the key at place j.
    """
    word = x.dtype.type
    if key_map.mask == word(~word(0)):
        return
    v, v_step, x_step = start_of(work, work.values, row), work.values.step, work.x.step
    zero = word(key_map.flip)
    zeros, nans = first_of(keys, here, work.n, zero), first_of(keys, here, work.n, key_map.nan)
    if zeros == work.n and nans == work.n:
        return
    for i in range(work.n):
        element = x[np.uintp(start + i * x_step)]
        magnitude = word(element & key_map.mask)
        if magnitude == 0:
            values[np.uintp(v + zeros * v_step)] = element
            zeros += 1
        elif magnitude > key_map.infinity:
            values[np.uintp(v + nans * v_step)] = element
            nans += 1


@device
def first_of(keys, here, n, key):
    """Return the first place of a key in descending keys[here : here + n]; n if it has none."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if keys[here + middle] > key:
            low = middle + 1
        else:
            high = middle
    return low if low < n and keys[here + low] == key else n
