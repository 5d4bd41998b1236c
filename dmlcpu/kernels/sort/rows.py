"""Sequences that are sorted by one thread each: keys become words, which are sorted by digits; few words by rank."""

import numpy as np

from dmlcpu.kernels.radix import digits_of_window, sort_words
from dmlcpu.kernels.sort.windows import are_whole, is_in_order, make_words, settle, windows_of
from dmlcpu.kernels.sort.work import WORK, space_of
from dmlcpu.kernels.sort.write import restore, write_by_position, write_by_window, write_keys
from dmlcpu.kernels.top_k.keys import key_map_of, load_keys
from dmlcpu.kernels.top_k.order import RANKED, sort_by_rank
from dmlcpu.kernels.top_k.work import start_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import width_of
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def rows(part, parts, x, values, indices, works, scratch):
    """Sort a share of the sequences."""
    work = record_at(works, 0, WORK)
    key_map, begin, n, is_long = key_map_of(x, work.key_map), np.intp(0), work.n, work.n > RANKED
    space = space_of(part, x, work, scratch)
    keys, words, counts = space.keys, space.words, space.counts
    first, last = share(part, parts, work.rows)
    for row in range(first, last):
        start = start_of(work, work.x, row)
        load_keys(x, start, work.x.step, n, key_map, keys)
        if work.words == 0:
            here = sort_words(keys, begin, np.intp(n), n, 0, width_of(x), counts)
            write_keys(work, row, keys, here, begin, n, key_map, values)
            restore(x, start, work, row, keys, here, key_map, values)
            continue
        here = order_of(keys, n, words, counts)
        if is_long and width_of(x) < 8:
            write_by_window(x, start, work, row, words, here, begin, n, key_map, values, indices)
        else:
            write_by_position(x, start, work, row, words, here, begin, n, values, indices)


@device
def order_of(keys, n, words, counts):
    """Write the words of keys[:n] in order; return where they start. If keys are few, words are only positions."""
    begin = np.intp(0)  # a literal 0 would compile helpers again
    if n <= RANKED:
        sort_by_rank(keys, n, words, counts)
        return begin
    windows = windows_of(keys, n)
    make_words(keys, begin, n, windows, words)
    if is_in_order(keys, begin, n):
        return begin
    here = sort_words(words, begin, np.intp(n), n, 32, digits_of_window(keys), counts)
    if not are_whole(windows):
        settle(keys, windows, words, here, begin, n, n, n - here, counts)
    return here
