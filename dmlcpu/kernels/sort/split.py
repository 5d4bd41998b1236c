"""One long sequence, sorted by several threads: each pass moves the words of all parts to their places.

A kernel call does one step, for all parts of the sequence; the plan makes the calls. Each part counts the digits of its
words, and computes from all counts where they go: after the words with greater digits, and after words of earlier parts
with the same digit.
"""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.radix import RADIX, count_digits, digits_of_window, move
from dmlcpu.kernels.sort.windows import Windows, extremes, is_in_order, make_words, settle
from dmlcpu.kernels.sort.work import COUNTS, WORK, lines_of
from dmlcpu.kernels.sort.write import restore, write_by_position, write_by_window, write_in_order, write_keys
from dmlcpu.kernels.top_k.keys import key_map_of, key_of, load_keys
from dmlcpu.kernels.top_k.work import start_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words, width_of
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import CACHE_LINE, CELL, LINE_CELLS, cells_of, record, record_at

LOAD, COUNT, MOVE, SETTLE, WRITE, RESTORE = range(6)  # steps
ALL = -1  # digits

# What the plan says about a step.
STEP = record(
    CACHE_LINE,
    step=np.int64,
    row=np.int64,
    n=np.int64,  # elements
    digit=np.int64,  # the number of a digit, or ALL
    source=np.int64,  # which half of the words is read, 0 or 1
    is_ordered=np.int64,  # the sequence is already in order
    least=np.int64,  # see Windows
    zeros=np.int64,
)
# What a part has found out about its keys.
FOUND = record(CACHE_LINE, is_ordered=np.int64, least=np.int64, greatest=np.int64)
STEP_CELLS, FOUND_CELLS = cells_of(STEP), cells_of(FOUND)
OWN = COUNTS + RADIX  # cells of a part: counts, and where its words go


class Sequence(NamedTuple):
    """The workspace of a sequence."""

    counts: Any  # int64: OWN of each part
    words: Any  # uint64: two times n
    keys: Any  # of x's type, two times n


def counts_at(parts: int) -> int:
    """Return where the counts begin in the workspace, after what the parts have found."""
    return STEP_CELLS + parts * FOUND_CELLS


def words_at(parts: int) -> int:
    """Return where the words begin, after the counts; after them are the keys."""
    return counts_at(parts) + parts * OWN


def split_cells(words: int, n: int, width: int, parts: int) -> int:
    """Return the cells of workspace for a sequence of n elements."""
    return words_at(parts) + words + lines_of(-(-2 * n * width // CELL)) + 2 * LINE_CELLS


@inlined
def sequence_of(parts, x, work, scratch):
    """Return the workspace of a sequence. scratch: int64 cells."""
    counts = STEP_CELLS + parts * FOUND_CELLS
    words = counts + parts * OWN
    return Sequence(
        scratch[counts:words], as_words(scratch, words, np.uint64), as_words(scratch, words + work.words, x)
    )


@kernel
def split(part, parts, x, values, indices, works, scratch):
    """Do a step of a sort for a part of a sequence."""
    work, step = record_at(works, 0, WORK), record_at(scratch, 0, STEP)
    space, key_map = sequence_of(parts, x, work, scratch), key_map_of(x, work.key_map)
    first, last = share(part, parts, work.n)
    if step.step == LOAD:
        load(part, x, first, last, work, key_map, space.keys, scratch)
    elif step.is_ordered:
        write_in_order(x, start_of(work, work.x, step.row), work, step.row, first, last, values, indices)
    elif work.words == 0:
        step_of_keys(part, parts, x, first, last, work, step, key_map, space, values)
    else:
        step_of_words(part, parts, x, first, last, work, step, key_map, space, values, indices)


@device
def load(part, x, first, last, work, key_map, keys, scratch):
    """Write the keys of a part; find their extremes, and whether they, and the key before them, are in order."""
    step, found = record_at(scratch, 0, STEP), record_at(scratch, STEP_CELLS + part * FOUND_CELLS, FOUND)
    begin, x_step = start_of(work, work.x, step.row), work.x.step
    load_keys(x, begin + first * x_step, x_step, last - first, key_map, keys[first:last])
    found.is_ordered = is_in_order(keys, first, last) and (
        first == 0 or keys[first] <= key_of(x[begin + (first - 1) * x_step], key_map)
    )
    if width_of(x) == 8:
        least, greatest = extremes(keys, first, last)
        found.least, found.greatest = np.int64(least), np.int64(greatest)


@inlined
def step_of_keys(part, parts, x, first, last, work, step, key_map, space, values):
    """Do a step of a sort of keys, where only values are wanted."""
    source = step.source * work.n
    if step.step == WRITE:
        write_keys(work, step.row, space.keys, source, first, last, key_map, values)
    elif step.step == RESTORE:
        if part == 0:
            restore(x, start_of(work, work.x, step.row), work, step.row, space.keys, source, key_map, values)
    else:
        count_or_move(part, parts, first, last, 0, step, space.keys, space)


@inlined
def step_of_words(part, parts, x, first, last, work, step, key_map, space, values, indices):
    """Do a step of a sort of words."""
    words, source, n = space.words, step.source * work.n, work.n
    begin, windows = start_of(work, work.x, step.row), Windows(np.uint64(step.least), step.zeros)
    if step.step == SETTLE:
        counts = space.counts[part * OWN : (part + 1) * OWN]
        settle(space.keys, windows, words, source, first, last, n, n - source, counts)
    elif step.step == WRITE:
        if width_of(x) == 8:
            write_by_position(x, begin, work, step.row, words, source, first, last, values, indices)
        else:
            write_by_window(x, begin, work, step.row, words, source, first, last, key_map, values, indices)
    else:
        if step.step == COUNT and step.digit == ALL:
            make_words(space.keys, first, last, windows, words)
        count_or_move(part, parts, first, last, 32, step, words, space)


@inlined
def count_or_move(part, parts, first, last, low, step, words, space):
    """Count digits of a part's words, or move them by a digit. low: the bit where the digits begin."""
    own, source = space.counts[part * OWN : (part + 1) * OWN], step.source * step.n
    shift, of_digit = low + 8 * step.digit, step.digit * RADIX
    if step.step == MOVE:
        places = own[COUNTS:]
        find_places(part, parts, space.counts, of_digit, step.n - source, places)
        move(words, words, source + first, source + last, shift, places)
    elif step.digit == ALL:
        count_digits(words, source + first, source + last, low, digits_of_window(space.keys), own)
    else:
        count_digits(words, source + first, source + last, shift, 1, own[of_digit:])


@device
def find_places(part, parts, counts, of_digit, target, places):
    """Write where a part's words go, by all parts' counts of a digit; target: where the first word goes."""
    for digit in range(RADIX - 1, -1, -1):
        for other in range(parts):
            if other == part:
                places[digit] = target
            target += counts[other * OWN + of_digit + digit]
