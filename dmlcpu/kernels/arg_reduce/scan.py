"""One set after the other. If its elements are adjacent, each lane takes one of a line; else they are read singly."""

import numpy as np

from dmlcpu.kernels.arg_reduce.lines import LINES, winner, winners
from dmlcpu.kernels.arg_reduce.work import WORK, keep, place_in, write_place
from dmlcpu.kernels.top_k.keys import key_map_of, key_of
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import Strided, as_words, line_of
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import CACHE_LINE, CELL, record_at

FEW = 32  # the most elements that are read faster singly than in lines
CELLS = 2 * 2 * CACHE_LINE // CELL  # of a share's workspace: a line of keys, and a line of numbers


@kernel
def scan(part, parts, x, y, works, scratch):
    """Find the places of the winners of a share of the sets, or of their pieces. x, y: flat words."""
    work = record_at(works, 0, WORK)
    key_map, pieces = key_map_of(x, work.key_map), work.pieces
    space = as_words(scratch[work.found + part * CELLS :], 0, x)
    is_wide, is_short = work.index_words == 2, work.size <= FEW and work.size == work.n
    first, last = share(part, parts, work.rows * pieces)
    for item in range(first, last):
        row = item // pieces if pieces > 1 else item
        start = work.x.start + offset(work.walk, work.x.strides, row)
        if is_short:
            _, place = find_singly(x, start, work.step, work.n, work.takes_last, key_map)
        else:
            begin, end = share(item % pieces, pieces, work.size) if pieces > 1 else (np.int64(0), work.size)
            key, place = find(x, start, begin, end, work, key_map, space)
            if pieces > 1:
                keep(row, item % pieces, key, place, work, scratch)
                continue
        write_place(y, place_in(row, work), place, is_wide)


@device
def find(x, start, begin, end, work, key_map, space):
    """Return the key and the place of the winner among the elements `begin` to `end` of the set at x[start]."""
    n, step, takes_last, lanes = work.n, work.step, work.takes_last, line_of(x)
    best, place, position = x.dtype.type(0), begin, begin
    while position < end:
        run, at = (position // n, position % n) if n < work.size else (0, position)
        count = min(LINES * lanes, n - at, end - position)
        first = start + offset(work.runs, work.run_strides, run) + at * step
        if step == 1 and count > FEW and count >= lanes:
            count -= count % lanes
            key, found = find_in_lines(x, first, count, takes_last, key_map, space)
        else:
            key, found = find_singly(x, first, step, count, takes_last, key_map)
        if key > best or (takes_last and key == best) or position == begin:
            best, place = key, position + found
        position += count
    return best, place


@inlined
def find_in_lines(x, start, count, takes_last, key_map, space):
    """Return the key and the place of the winner among adjacent elements that fill lines."""
    lanes = line_of(x)
    numbers, lines = space[lanes:], count // lanes
    first, way = (start + count - lanes, -lanes) if takes_last else (start, lanes)
    winners(Strided(x, first, way, lines), key_map, space, numbers)
    lane, line = winner(space, numbers, takes_last), np.intp(numbers[0])
    return space[0], (lines - 1 - line if takes_last else line) * lanes + lane


@inlined
def find_singly(x, start, step, n, takes_last, key_map):
    """Return the key and the place of the winner among elements of any step, one after the other."""
    first, way = (start + (n - 1) * step, -step) if takes_last else (start, step)
    best, place = key_of(x[np.uintp(first)], key_map), 0
    for i in range(1, n):
        key = key_of(x[np.uintp(first + i * way)], key_map)
        wins = key > best
        best = key if wins else best
        place = i if wins else place
    return best, n - 1 - place if takes_last else place
