"""The kernel of quantize_linear: clip(round(x / scale) + zero point), tile by tile."""

import numpy as np

from dmlcpu.kernels.quantize_linear.tiles import convert, gather, piece_of, scatter
from dmlcpu.kernels.quantize_linear.work import AHEAD, FLOAT32, LONG, NIBBLE, SPACE, SPACE_CELLS, WORK
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import as_words, either
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

# Added to a number of less than 2**22, it leaves an integer in the low bits, rounded half to even.
_ROUND = 12582912.0  # 1.5 * 2**23
_ROUND_BITS = 0x4B400000


@kernel
def quantize(part, parts, x, scale, zero, y, works, scratch):
    """Quantize a share of the tiles. x, zero, y: flat words; scale: flat float32."""
    work = record_at(works, 0, WORK)
    space = record_at(scratch, part * SPACE_CELLS, SPACE)
    first, last = share(part, parts, work.items)
    for item in range(first, last):
        row = item // work.tiles
        begin = (item - row * work.tiles) * work.tile
        count = min(work.tile, work.n - begin)
        start = work.x.start + offset(work.walk, work.x.strides, row)
        is_float32 = work.x.kind == FLOAT32 and work.x.step == 1
        if not is_float32:
            convert_tile(x, start, begin, count, work.x, space)
        floats = either(is_float32, as_words(x, 0, np.float32), start + begin, space.x)
        at = work.y.start + offset(work.walk, work.y.strides, row) + begin * work.y.step
        is_plain = work.y.step == 1 and work.y.kind != NIBBLE
        target = either(is_plain, y, at, as_words(space.out, 0, y))
        block = load_parameters(scale, zero, row, begin, count, work, space)
        if block == 1:
            quantize_by_each(floats, count, space.scale, space.zero, work.lowest, work.highest, work.y.mask, target)
        else:
            quantize_by_blocks(floats, begin, count, block, work, space, target)
        if not is_plain:
            scatter(target, count, y, at, work.y.step, work.y.kind)


@inlined
def convert_tile(x, start, begin, count, tensor, space):
    """Write `count` elements of a run, from `begin` on, to space.x as float32."""
    is_plain = tensor.step == 1 and tensor.kind != NIBBLE
    if not is_plain:  # the literal 1 compiles a separate `gather`: 0.85 of the time for strided bytes (Xeon)
        gather(x, start, tensor.step, 1, begin, count, tensor.kind, as_words(space.words, 0, x))
    line = either(is_plain, x, start + begin, as_words(space.words, 0, x))
    convert(line, count, tensor.kind, tensor.mask, tensor.flip, space.x)


@inlined
def load_parameters(scale, zero, row, begin, count, work, space):
    """Fill scales and zero points of a tile with float32, and return how many elements share one.

    If many do, one is written for each block; otherwise one for each element, and 1 is returned.
    """
    block, first, few = work.block, begin, count
    if block >= LONG:
        first = begin // block
        few, block = (begin + count - 1) // block + 1 - first, 1
    at = work.scale.start + offset(work.walk, work.scale.strides, row)
    line = as_words(space.scale, 0, np.uint32)
    gather(as_words(scale, 0, np.uint32), at, work.scale.step, block, first, few, work.scale.kind, line)
    at = work.zero.start + offset(work.walk, work.zero.strides, row)
    zeros = as_words(space.zero_words, 0, zero)
    gather(zero, at, work.zero.step, block, first, few, work.zero.kind, zeros)
    convert(zeros, few, work.zero.kind, work.zero.mask, work.zero.flip, space.zero)
    return work.block if work.block >= LONG else np.int64(1)


@device
def quantize_by_blocks(floats, begin, count, block, work, space, y):
    """Quantize floats[:count], blocks of elements by one scale and one zero point; begin: the place in the run."""
    lowest, highest, mask = np.float32(work.lowest), np.float32(work.highest), np.uint32(work.y.mask)
    ahead = AHEAD * work.is_large
    done, group, end = np.int64(0), 0, min(count, block - begin % block)  # a literal 0 would compile `piece_of` twice
    while done < count:
        scale, zero = space.scale[group], space.zero[group]
        low, high = np.float32(lowest - zero), np.float32(highest - zero)
        less = np.uint32(np.int64(_ROUND_BITS) - np.int64(zero))
        while done < end:
            last = piece_of(floats, done, end, ahead)
            mine, result = floats[done:last], y[done:last]
            for i in range(last - done):
                quotient = np.float32(mine[i] / scale)
                quotient = quotient if quotient > low else low  # NaN becomes the lowest
                quotient = quotient if quotient < high else high
                rounded = np.float32(quotient + np.float32(_ROUND))
                result[i] = np.uint32(np.uint32(rounded.view(np.uint32) - less) & mask)
            done = last
        group, end = group + 1, min(count, end + block)


@device
def quantize_by_each(floats, count, scales, zeros, lowest, highest, mask, y):
    """Quantize floats[:count], each element by its own scale and zero point."""
    lowest, highest, mask = np.float32(lowest), np.float32(highest), np.uint32(mask)
    for i in range(count):
        quotient, zero = np.float32(floats[i] / scales[i]), zeros[i]
        low, high = np.float32(lowest - zero), np.float32(highest - zero)
        quotient = quotient if quotient > low else low
        quotient = quotient if quotient < high else high
        rounded = np.float32(np.float32(quotient + np.float32(_ROUND)) + zero)
        y[i] = np.uint32(np.uint32(rounded.view(np.uint32) - np.uint32(_ROUND_BITS)) & mask)
