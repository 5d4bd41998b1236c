"""Sets that are columns in memory: a share reads all rows of a block of columns, and each lane keeps its winner.

Within a tile of rows, the greatest keys and the numbers of their rows are as wide as the elements. After each tile they
are merged with those of earlier tiles.
"""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.arg_reduce.work import WORK, keep, place_in, write_place
from dmlcpu.kernels.top_k.column_blocks import block_at, block_count
from dmlcpu.kernels.top_k.keys import key_map_of, key_of
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import as_words, line_of, prefetch
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import CELL, record_at

ROWS = 256  # of a tile: their numbers fit 8 bits
LINES = 128  # of columns in a block
PREFETCH = 8  # rows ahead
LANES = 64  # in a line, at most
CELLS = LINES * LANES * (CELL + 3) // CELL  # of a share's workspace; wider elements have fewer lanes


class Space(NamedTuple):
    """A share's workspace: in each array an element for each column."""

    keys: Any  # the greatest of a tile
    rows: Any  # its row in the tile
    best: Any  # the greatest of all tiles so far
    places: Any  # its place in the set


@kernel
def columns(part, parts, x, y, works, scratch):
    """Find the places of the winners of a share of the blocks, or of pieces of them. x, y: flat words."""
    work = record_at(works, 0, WORK)
    key_map, pieces, most = key_map_of(x, work.key_map), work.pieces, LINES * line_of(x)
    space = space_of(scratch[work.found + part * CELLS :], x)
    first, last = share(part, parts, block_count(work, most) * pieces)
    for item in range(first, last):
        row, width = block_at(work, most, item // pieces)
        begin, end = share(item % pieces, pieces, work.size)
        start = work.x.start + offset(work.walk, work.x.strides, row)
        find(x, start, width, begin, end, work, key_map, space)
        if pieces == 1:
            write_line(y, row, width, space.places, work)
        else:
            for column in range(width):
                keep(row + column, item % pieces, space.best[column], space.places[column], work, scratch)


@device
def write_line(y, row, width, places, work):
    """Write the places of the winners of `width` sets from `row` on."""
    low, side = place_in(row, work), work.y.strides[work.walk.dims - 1]
    for column in range(width):
        write_place(y, low + column * side, places[column], work.index_words == 2)


@device
def space_of(cells, x):
    """Return the workspace of a share that begins with these cells."""
    most = LINES * line_of(x)
    words = as_words(cells, most, x)
    return Space(words[:most], words[most : 2 * most], words[2 * most : 3 * most], cells[:most])


@device
def find(x, start, width, begin, end, work, key_map, space):
    """Find the winners among the elements `begin` to `end` of `width` sets from x[start] on."""
    n, step, takes_last = work.n, work.step, work.takes_last
    position = begin
    while position < end:
        run, at = position // n, position % n
        count = min(ROWS, n - at, end - position)
        first = start + offset(work.runs, work.run_strides, run) + at * step
        greatest(x, first, step, count, width, takes_last, key_map, space.keys, space.rows)
        for column in range(width):
            key, before = space.keys[column], space.best[column]
            if key > before or (takes_last and key == before) or position == begin:
                space.best[column] = key
                space.places[column] = position + np.int64(space.rows[column])
        position += count


@device
def greatest(x, start, step, count, width, takes_last, key_map, keys, rows):
    """Write the greatest key of each column of a tile, and the first row that has it or, if asked for, the last."""
    word = x.dtype.type
    ahead = -PREFETCH if takes_last else PREFETCH
    for turn in range(count):
        i = count - 1 - turn if takes_last else turn
        for column in range(0, width, line_of(x)):
            prefetch(x, start + (i + ahead) * step + column)
        line, row = x[start + i * step :][:width], word(i)
        for column in range(width):
            key, before, at = key_of(line[column], key_map), keys[column], rows[column]
            wins = key > before or turn == 0
            keys[column] = key if wins else before
            rows[column] = row if wins else at
