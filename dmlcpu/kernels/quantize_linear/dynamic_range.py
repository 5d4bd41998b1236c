"""The kernels that find the range of x, and the scale and zero point for it.

Floats are compared as integers that have the same order, because processors have vector instructions for the minimum
and maximum of integers, and because NaNs are then beyond the infinities.
"""

import numpy as np

from dmlcpu.kernels.half import bfloat16_to_float32, float16_to_float32
from dmlcpu.kernels.quantize_linear.tiles import gather, piece_of
from dmlcpu.kernels.quantize_linear.work import AHEAD, FLOAT16, FLOAT32, SPACE, SPACE_CELLS, WORK
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import as_words, either, width_of
from dmlcpu.runtime.jit import device, inlined
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
        at = work.x.start + offset(work.walk, work.x.strides, row)
        low, high = extremes_of_tile(x, at, (item - row * work.tiles) * work.tile, work, space)
        least, greatest = min(least, low), max(greatest, high)
    scratch[part * RANGE_CELLS] = least
    scratch[part * RANGE_CELLS + 1] = greatest


@inlined
def extremes_of_tile(x, start, begin, work, space):
    """Return the least and the greatest key of a run's tile, whose elements begin at `begin`."""
    count = min(work.tile, work.n - begin)
    gathered = as_words(space.words, 0, x)
    if work.x.step != 1:
        gather(x, start, work.x.step, 1, begin, count, work.x.kind, gathered)
    line = either(work.x.step == 1, x, start + begin, gathered)
    if width_of(x) == 4:
        return extremes(as_words(line, 0, np.int32), count, AHEAD * work.is_large)
    return extremes(as_words(line, 0, np.int16), count, 0)


@device
def extremes(line, count, ahead):
    """Return the least and the greatest key of floats, given as signed integers of their width."""
    integer, sign = line.dtype.type, 8 * width_of(line) - 1
    least = greatest = integer(0)
    done = np.int64(0)  # a literal 0 would compile `piece_of` twice
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
    """Return the float32 of a key."""
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
    width, step, place = scale_of(least, greatest, work)
    found[0] = width < np.inf
    if found[0] == 0:
        return
    scale[0] = step
    zero[0] = place & work.y.mask


@kernel
def settle_rows(part, parts, x, scale, zero, found, works, scratch):
    """Write the scale and zero point of each of a share of the rows; found[0] becomes 0 if a range is not finite.

    scale: flat float32; zero: flat words; both have one for each row.
    """
    work = record_at(works, 0, WORK)
    space = record_at(scratch, part * SPACE_CELLS, SPACE)
    first, last = share(part, parts, work.items)
    for row in range(first, last):
        at = work.x.start + offset(work.walk, work.x.strides, row)
        least, greatest = np.int64(0), np.int64(0)
        for begin in range(0, work.n, work.tile):
            low, high = extremes_of_tile(x, at, begin, work, space)
            least, greatest = min(least, low), max(greatest, high)
        width, step, place = scale_of(least, greatest, work)
        if not width < np.inf:
            found[0] = 0
            return
        scale[row] = step
        zero[row] = place & work.y.mask


@inlined
def scale_of(least, greatest, work):
    """Return the range between two keys, extended to 0, and its scale and zero point if it is finite."""
    low, high = value_of(least, work.x.kind), value_of(greatest, work.x.kind)
    width = np.float32(high - low)
    step = np.float32(width / np.float32(255))
    step = step if step > 0 else np.float32(1)
    place = np.float32(np.float32(work.lowest) - np.float32(low / step))
    place = min(max(place, np.float32(work.lowest)), np.float32(work.highest))
    return width, step, np.int64(np.rint(place))
