"""Set by set: tile by tile the greatest key, by vectors; then its place in the one tile that has it."""

import numpy as np

from dmlcpu.kernels.arg_reduce.work import WORK, settle
from dmlcpu.kernels.top_k.greatest import LineRange, flushes_subnormals, greatest_line, greatest_words
from dmlcpu.kernels.top_k.keys import key_map_of, key_of, load_keys
from dmlcpu.kernels.top_k.lines import reach
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import as_words, line_of
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import CELL, record_at

TILE = 1024  # elements
FEW = 32  # elements up to which one after the other is faster than vectors
CELLS = (TILE + 64) * 8 // CELL  # of a share's workspace: the keys of a tile and of a line


@kernel
def scan(part, parts, x, y, works, scratch):
    """Find the places of the winners of a share of the sets, or of their pieces. x, y: flat words."""
    work = record_at(works, 0, WORK)
    key_map, pieces = key_map_of(x, work.key_map), work.pieces
    keys = as_words(scratch[work.found + part * CELLS :], 0, x)
    first, last = share(part, parts, work.rows * pieces)
    for item in range(first, last):
        row, piece = (item // pieces, item % pieces) if pieces > 1 else (item, 0)
        begin, end = share(piece, pieces, work.size)
        start = work.x.start + offset(work.walk, work.x.strides, row)
        key, place = find(x, start, begin, end, work, key_map, keys)
        settle(y, row, piece, key, place, work, scratch)


@device
def find(x, start, begin, end, work, key_map, keys):
    """Return the key and the place of the winner among the elements `begin` to `end` of the set at x[start]."""
    n, step, takes_last = work.n, work.step, work.takes_last
    needs_keys = flushes_subnormals(x, key_map.flip)
    best, tile, tile_start, tile_count = x.dtype.type(0), begin, start, 0
    position = begin
    while position < end:
        run, at = (position // n, position % n) if n < work.size else (0, position)
        count = min(TILE, n - at, end - position)
        first = start + offset(work.runs, work.run_strides, run) + at * step
        key, needs_keys = greatest(x, first, step, count, key_map, needs_keys, keys)
        if key > best or (takes_last and key == best) or position == begin:
            best, tile, tile_start, tile_count = key, position, first, count
        position += count
    return best, tile + place_of(x, tile_start, step, tile_count, best, takes_last, key_map, keys)


@device
def greatest(x, start, step, count, key_map, needs_keys, keys):
    """Return the greatest key of a tile, and whether the next tile needs keys, as `greatest_line` says."""
    best = x.dtype.type(0)  # the least key
    if count <= FEW:
        for i in range(count):
            best = max(best, key_of(x[start + i * step], key_map))
        return best, needs_keys
    lanes, done, filled = line_of(x), 0, 0
    if step == 1 and count >= 2 * lanes:
        done, filled = count - count % (2 * lanes), lanes
        lines = LineRange(x, start, lanes, start + done, 4 * lanes)
        needs_keys = greatest_line(lines, key_map, needs_keys, keys, 0)
    load_keys(x, start + done * step, step, count - done, key_map, keys[filled:])
    filled += count - done
    for i in range(filled, filled + -filled % lanes):
        keys[i] = 0
    greatest_words(LineRange(keys, 0, lanes, filled, 0), x.dtype.type(0), keys, 0)
    for lane in range(lanes):
        best = max(best, keys[lane])
    return best, needs_keys


@inlined
def place_of(x, start, step, count, best, takes_last, key_map, keys):
    """Return the first or last place of a key in a tile that has it."""
    lanes = line_of(x)
    line, way, place = (0, 1, 0)
    if takes_last:
        place, way = count - 1, -1
    if count > FEW:
        load_keys(x, start, step, count, key_map, keys)  # behind them, stale ones may reach `best`, too, in the last line
        line = place // lanes * lanes
        while reach(keys, line, best) == 0:
            line += way * lanes
        place = min(line + lanes, count) - 1 if takes_last else line
    while key_of(x[start + place * step], key_map) != best:
        place += way
    return place
