"""Selection: the k best scores of each row, chosen while a tile of sums is in the nearest cache. No score is written.

Each share has a short list of *candidates* for each row: the best scores that it has seen so far, with their columns.
It compares a tile's scores with the least that may still be selected, NR at a time. Most rows of a tile have no
candidate and cost nothing more. A list for a small k is kept in order; a longer one is cut back to little more than k
when it is full. At the end finish.py merges the lists of the shares.

A candidate is a *key*: an unsigned integer of 64 bits. The upper half is the rank of the score, the lower half encodes
the column, so that among equal scores the lower column has the greater key. The order of keys does not depend on the
order in which scores are seen. A share sees the columns of a row in ascending order.
"""

from typing import Any

import numpy as np

from dmlcpu.kernels.gemm.epilogue import Epilogue, load_row_scales, nothing
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.microkernels.rows import QUIET_NAN, load_scales
from dmlcpu.kernels.gemm.work import WORK, WORK_CELLS, Operands
from dmlcpu.kernels.selection.comparisons import (
    Columns,
    Found,
    any_affine,
    any_floats,
    any_sums,
    insert_key,
    which_affine,
    which_floats,
    which_sums,
)
from dmlcpu.kernels.selection.work import SELECTION, TILE, TILE_CELLS, Out, Terms
from dmlcpu.kernels.top_k.threshold import kth_greatest
from dmlcpu.runtime.intrinsics import Strided, as_words, lowest_bit
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.records import record_at

# The cells of a row of a share: these, then the keys. A list that is kept in order has no THRESHOLD and COUNT: the
# places after its last key are 0, which no key is, and the cell before the first key has all bits set.
LEAST, THRESHOLD, COUNT = 0, 1, 2  # LEAST: what scores are compared with; THRESHOLD: the least key that is kept
HEADER = 8  # a cache line

MOST_COLUMNS = 0x7FFFFFFF
_BEYOND = 1 << 31  # makes ranks unsigned
_SIGN, _INFINITY = 0x80000000, 0x7F800000
LOWER_HALF = np.uint64(0xFFFFFFFF)

run_tasks: Any = None  # each loop nest replaces it


def selection(part, parts, a, b, packed, packed_sums, a_scale, a_zero, b_scale, b_zero, bias, row_bias, mask, least,
              works, scratch):  # fmt: skip
    """Select in a share of a product. least: int32 (rows,), which the scores of each row have to reach."""
    operands, top = Operands(a, b, packed, packed_sums, a_zero, b_zero), record_at(works, WORK_CELLS, SELECTION)
    tile = record_at(scratch, top.tiles_start + part * TILE_CELLS, TILE)
    out = Out(scratch, top.start + part * top.share_cells, mask, tile, top)
    for row in range(top.rows):
        empty(scratch, out.first + row * top.row_cells, np.int64(least[row]) if top.has_least else top.lowest, top)
    run_tasks(part, operands, Terms(a_scale, b_scale, bias, row_bias, out), record_at(works, 0, WORK), scratch)


@device
def empty(lists, cells, least, top):
    """Empty the list of a row."""
    for i in range(HEADER + (top.capacity if top.is_sorted else 0)):
        lists[cells + i] = 0
    lists[cells + LEAST], lists[cells + HEADER - 1] = least, -1


@device
def load_column_terms(first, count, origin, terms, work, columns):
    """Fill scales and bias of `count` columns from `first` on."""
    there = min(count, work.N - first)
    step = work.y_bias.column
    load_scales(Strided(terms.bias, origin.y_bias + first * step, step, there), terms.out.tile.bias)
    if terms.out.top.is_scaled:
        step = work.b_scale.step
        load_scales(Strided(terms.b_scale, origin.b_scale + first * step, step, there), columns.scale)


@device
def load_row_terms(first, last, height, origin, terms, work, rows):
    """Fill the factors and addends of the sums of `height` rows from `first` on; the last row is repeated."""
    load_row_scales(first, last, height, origin, terms, work, rows)
    if terms.out.top.has_row_bias:
        for i in range(height):
            terms.out.tile.row_bias[i] = terms.row_bias[min(first + i, last - 1)]


@device
def selected(acc, tile, out, work, space):
    """Add the scores of a tile that may be selected to the candidates of their rows."""
    top, a_scale = out.top, space.rows.a_scale
    cells = out.first + tile.place // work.N * top.row_cells
    leasts = Strided(out.lists, cells + LEAST, top.row_cells, tile.rows)
    columns = Columns(space.columns.scale, out.tile.bias, tile.column)
    found, rows = Found(out.tile.found, out.tile.scores), np.uint32(0)
    if top.has_row_bias:
        if any_affine(acc, a_scale, out.tile.row_bias, columns, leasts, found):
            rows = which_affine(acc, a_scale, out.tile.row_bias, columns, leasts, found)
    elif top.is_scaled:
        flip = np.int32(-(_BEYOND * top.is_smallest))
        if any_floats(acc, a_scale, columns, flip, leasts, found):
            rows = which_floats(acc, a_scale, columns, flip, leasts, found)
    else:
        shift, flip = np.int32(top.shift), np.int32(-top.is_smallest)
        if any_sums(acc, columns, shift, flip, leasts, found):
            rows = which_sums(acc, columns, shift, flip, leasts, found)
    if rows:
        keep(rows, tile, cells, out, work)


@device
def keep(rows, tile, cells, out, work):
    """Add the scores of a tile that were found to the candidates of their rows, a bit for each."""
    top, lists, first = out.top, out.lists, tile.place % work.N
    there = np.uint32(LOWER_HALF >> np.uint64(NR - tile.columns))
    while rows:
        row = lowest_bit(np.uint64(rows))
        rows &= rows - np.uint32(1)
        here, bits = cells + row * top.row_cells, out.tile.found[row] & there
        line = (tile.place // work.N + row) * top.mask_step
        threshold = np.uint64(0)
        while bits:
            j = lowest_bit(np.uint64(bits))
            bits &= bits - np.uint32(1)
            key = key_of(out.tile.scores[row, j], first + j, top)
            # 0 until a key is added: `add` compares with the list itself. In the first tile all scores are found, but
            # after k of them few are kept.
            if key > threshold and (top.has_mask == 0 or has_bit(out.mask, line, first + j)):
                threshold = add(key, lists, here, top)
        if threshold:
            lists[here + LEAST] = least_of(threshold, first + tile.columns - 1, top)


@inlined
def has_bit(mask, line, column):
    """Return whether the bit of a column is set; its line of bits begins at mask[line]."""
    return (mask[line + (column >> 3)] >> (column & 7)) & 1 != 0


@inlined
def add(key, lists, cells, top):
    """Add a key to the list of a row; return the least key that may be kept from now on."""
    keys = cells + HEADER
    if top.is_sorted:
        insert_key(lists, keys, key, top.capacity)
        return np.uint64(lists[keys + top.k - 1])
    threshold, count = np.uint64(lists[cells + THRESHOLD]), lists[cells + COUNT]
    if key >= threshold:
        lists[keys + count] = np.int64(key)
        count += 1
        if count == top.capacity:
            threshold, count = cut_back(as_words(lists, keys, np.uint64), count, top.k)
        lists[cells + THRESHOLD], lists[cells + COUNT] = np.int64(threshold), count
    return threshold


@inlined
def key_of(score, column, top):
    """Return the key of a score: int32, or the bits of float32."""
    value, is_negative_zero = np.int64(score), np.uint64(0)
    if top.is_scaled:
        size = value & MOST_COLUMNS
        value = size if score >= 0 else -size
        is_negative_zero = np.uint64(score < 0 and size == 0)
        rank = top.nan_rank if size > _INFINITY else -value if top.is_smallest else value
    else:
        rank = ~value if top.is_smallest else value
    return (
        np.uint64(rank + _BEYOND) << np.uint64(32) | np.uint64(MOST_COLUMNS - column) << np.uint64(1) | is_negative_zero
    )


@inlined
def column_of(key):
    """Return the column of a key."""
    return MOST_COLUMNS - np.int64((key & LOWER_HALF) >> np.uint64(1))


@inlined
def score_of(key, top):
    """Return the score of a key: int32, or the bits of float32."""
    rank = np.int64(key >> np.uint64(32)) - _BEYOND
    if not top.is_scaled:
        return np.int32(~rank if top.is_smallest else rank)
    if rank == top.nan_rank:
        return np.int32(QUIET_NAN)
    value = -rank if top.is_smallest else rank
    is_negative = value < 0 or (value == 0 and key & np.uint64(1) != 0)
    return np.int32((abs(value) | _SIGN) - 2 * _BEYOND if is_negative else value)


@device
def cut_back(keys, count, k):
    """Keep the k greatest keys, or some more; return the least key that may be kept from now on, and the new count."""
    threshold, _ = kth_greatest(keys, count, k, k + (count - k) // 4)
    kept = 0
    for i in range(count):
        key = keys[i]
        keys[kept] = key
        kept += key >= threshold
    return threshold, kept


@device
def least_of(threshold, column, top):
    """Return the least score of a column after `column` whose key may reach a threshold, in the form of LEAST.

    It is an int32, or the bits of a float32: those of the score without its direction.
    """
    if threshold == 0:
        return np.int64(top.lowest)
    rank = np.int64(threshold >> np.uint64(32)) - _BEYOND
    if np.int64(threshold & LOWER_HALF) >= 2 * (MOST_COLUMNS - column):
        rank += 1  # later columns lose a tie
    if not top.is_scaled:
        return min(rank, _BEYOND - 1)
    if rank > _INFINITY:
        return np.int64(QUIET_NAN)  # all scores pass this; their keys are compared
    return rank if rank >= 0 else (min(-rank, np.int64(_INFINITY)) | _SIGN) - 2 * _BEYOND


SELECT = Epilogue(selection, load_column_terms, load_row_terms, selected, nothing)
