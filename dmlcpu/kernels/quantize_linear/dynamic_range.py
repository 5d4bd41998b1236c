"""The kernels that find the range of x, and the scale and zero point for it.

Floats are compared as integers whose order is theirs: vectors of integers have a minimum and a maximum, and NaNs are
beyond the infinities.
"""

import numpy as np

from dmlcpu.kernels.half import bfloat16_to_float32, float16_to_float32
from dmlcpu.kernels.quantize_linear.tiles import gather, piece_of
from dmlcpu.kernels.quantize_linear.work import AHEAD, FLOAT16, FLOAT32, SPACE, SPACE_CELLS, WORK
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import as_words, either, width_of
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import LINE_CELLS, record_at

RANGE_CELLS = LINE_CELLS  # of a share: the least and the greatest key, before the workspaces of all shares


@kernel
def find_range(part, parts, x, works, scratch):
    """Write the least and the greatest key of a share of the tiles; 0 is always one of them."""
    work = record_at(works, 0, WORK)
    space = record_at(scratch, parts * RANGE_CELLS + part * SPACE_CELLS, SPACE)
    least, greatest = np.int64(0), np.int64(0)
    first, last = share(part, parts, work.items)
    for item in range(first, last):
        row = item // work.tiles
        begin = (item - row * work.tiles) * work.tile
        count = min(work.tile, work.n - begin)
        at = work.x.start + offset(work.walk, work.x.strides, row)
        gathered = as_words(space.words, 0, x)
        if work.x.step != 1:
            gather(x, at, work.x.step, 1, begin, count, False, gathered)
        line = either(work.x.step == 1, x, at + begin, gathered)
        if width_of(x) == 4:
            low, high = extremes(as_words(line, 0, np.int32), count, AHEAD * work.is_large)
        else:
            low, high = extremes(as_words(line, 0, np.int16), count, 0)
        least, greatest = min(least, low), max(greatest, high)
    scratch[part * RANGE_CELLS] = least
    scratch[part * RANGE_CELLS + 1] = greatest


@device
def extremes(line, count, ahead):
    """Return the least and the greatest key of floats, given as signed integers of their width."""
    integer, sign = line.dtype.type, 8 * width_of(line) - 1
    least = greatest = integer(0)
    done = 0
    while done < count:
        last = piece_of(line, done, count, ahead)
        mine = line[done:last]
        for i in range(last - done):
            key = integer(mine[i] ^ ((mine[i] >> sign) & ((1 << sign) - 1)))
            least, greatest = min(least, key), max(greatest, key)
        done = last
    return np.int64(least), np.int64(greatest)


@device
def value_of(key, kind):
    """Return the float32 that a key stands for."""
    if kind != FLOAT32:
        bits = np.uint32((key ^ ((key >> 15) & 0x7FFF)) & 0xFFFF)
        return float16_to_float32(bits) if kind == FLOAT16 else bfloat16_to_float32(bits)
    return np.uint32((key ^ ((key >> 31) & 0x7FFFFFFF)) & 0xFFFFFFFF).view(np.float32)


@kernel
def settle(part, parts, scale, zero, found, works, scratch):
    """Write the scale and zero point for the ranges of `found[1]` shares; found[0]: whether the range is finite.

    scale: flat float32; zero: flat words.
    """
    work = record_at(works, 0, WORK)
    least, greatest = np.int64(0), np.int64(0)
    for each in range(found[1]):
        least = min(least, scratch[each * RANGE_CELLS])
        greatest = max(greatest, scratch[each * RANGE_CELLS + 1])
    low, high = value_of(least, work.x.kind), value_of(greatest, work.x.kind)
    width = np.float32(high - low)
    found[0] = width < np.inf
    if found[0] == 0:
        return
    step = np.float32(width / np.float32(255))
    step = step if step > 0 else np.float32(1)
    place = np.float32(np.float32(work.lowest) - np.float32(low / step))
    place = min(max(place, np.float32(work.lowest)), np.float32(work.highest))
    scale[0] = step
    zero[0] = np.int64(np.rint(place)) & work.y.mask
