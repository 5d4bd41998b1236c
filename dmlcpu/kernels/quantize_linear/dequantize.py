"""The kernel of dequantize_linear: (x - zero point) * scale, tile by tile."""

import numpy as np

from dmlcpu.kernels.quantize_linear.quantize import convert_tile, load_parameters
from dmlcpu.kernels.quantize_linear.tiles import gather, piece_of, round_to_16_bits, scatter
from dmlcpu.kernels.quantize_linear.work import AHEAD, FLOAT32, SPACE, SPACE_CELLS, WORK
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.intrinsics import as_words, either, width_of
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def dequantize(part, parts, x, scale, zero, y, works, scratch):
    """Dequantize a share of the tiles. x, zero, y: flat words; scale: flat float32."""
    work = record_at(works, 0, WORK)
    space = record_at(scratch, part * SPACE_CELLS, SPACE)
    first, last = share(part, parts, work.items)
    for item in range(first, last):
        row = item // work.tiles
        begin = (item - row * work.tiles) * work.tile
        count = min(work.tile, work.n - begin)
        x_at = work.x.start + offset(work.walk, work.x.strides, row)
        y_at = work.y.start + offset(work.walk, work.y.strides, row) + begin * work.y.step
        block = load_parameters(scale, zero, row, begin, count, work, space)
        if width_of(x) < 4 and work.is_direct:
            result = either(True, as_words(y, 0, np.float32), y_at, space.y)
            dequantize_integers(either(True, x, x_at + begin, x), begin, count, block, work, space, result)
            continue
        # The tile is converted to float32 first, or its result is converted or scattered.
        if width_of(x) == 4:
            differences(x, x_at, begin, count, block, work, space)
        else:
            convert_tile(x, x_at, begin, count, work.x, space)
        dequantize_tile(begin, count, block, work, space, y, y_at)


@device
def dequantize_tile(begin, count, block, work, space, y, y_at):
    """Dequantize space.x[:count], in blocks, to y from y_at on; begin: the place in the run."""
    is_plain = work.y.step == 1
    result = either(is_plain and work.y.kind == FLOAT32, as_words(y, 0, np.float32), y_at, space.y)
    if block == 1:
        dequantize_by_each(space.x, count, space.scale, space.zero, result)
    else:
        dequantize_by_blocks(space.x, begin, count, block, space.scale, space.zero, result)
    if work.y.kind != FLOAT32:
        line = either(is_plain, y, y_at, as_words(space.out, 0, y))
        round_to_16_bits(result, count, work.y.kind, line)
        if not is_plain:
            scatter(line, count, y, y_at, work.y.step, work.y.kind)
    elif not is_plain:
        scatter(as_words(result, 0, y), count, y, y_at, work.y.step, work.y.kind)


@inlined
def differences(x, start, begin, count, block, work, space):
    """Fill space.x with 32-bit elements less their zero points, rounded once; the zero points become 0."""
    line, zeros = as_words(space.words, 0, x), as_words(space.zero_words, 0, x)
    gather(x, start, work.x.step, 1, begin, count, work.x.kind, line)
    flip, done, group = np.uint32(work.x.flip), 0, 0
    while done < count:
        end = min(count, done + block - (begin + done) % block)
        zero = np.int64(np.uint32(zeros[group] ^ flip))
        for i in range(done, end):
            space.x[i] = np.float32(np.int64(np.uint32(line[i] ^ flip)) - zero)
        space.zero[group] = 0
        done, group = end, group + 1


@device
def dequantize_integers(line, begin, count, block, work, space, result):
    """Dequantize line[:count], words of 8 or 16 bits, in blocks; begin: the place in the run."""
    flip, scales, zeros, ahead = work.x.flip, space.scale, space.zero, AHEAD * work.is_large
    done, group, end = np.int64(0), 0, min(count, block - begin % block)  # a literal 0 would compile `piece_of` twice
    while done < count:
        scale, less = scales[group], np.int32(np.int32(zeros[group]) + np.int32(flip))
        while done < end:
            last = piece_of(line, done, end, ahead)
            mine, into = line[done:last], result[done:last]
            for i in range(last - done):
                difference = np.int32(np.int32(np.int32(mine[i]) ^ np.int32(flip)) - less)
                product = np.float32(np.float32(difference) * scale)
                into[i] = product if product == product else np.float32(np.nan)
            done = last
        group, end = group + 1, min(count, end + block)


@device
def dequantize_by_blocks(floats, begin, count, block, scales, zeros, result):
    """Dequantize floats[:count], blocks of elements by one scale and one zero point; begin: the place in the run."""
    done, group, end = 0, 0, min(count, block - begin % block)
    while done < count:
        scale, zero = scales[group], zeros[group]
        mine, into = floats[done:end], result[done:end]
        for i in range(end - done):
            product = np.float32(np.float32(mine[i] - zero) * scale)
            into[i] = product if product == product else np.float32(np.nan)
        done, group, end = end, group + 1, min(count, end + block)


@device
def dequantize_by_each(floats, count, scales, zeros, result):
    """Dequantize floats[:count], each element by its own scale and zero point."""
    for i in range(count):
        product = np.float32(np.float32(floats[i] - zeros[i]) * scales[i])
        result[i] = product if product == product else np.float32(np.nan)
