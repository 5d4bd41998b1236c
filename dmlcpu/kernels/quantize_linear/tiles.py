"""Tiles: elements of any step and type become adjacent float32, and results are written to where they belong."""

import numpy as np

from dmlcpu.kernels.half import bfloat16_to_float32, float16_to_float32, float32_to_bfloat16, float32_to_float16
from dmlcpu.kernels.quantize_linear.work import BFLOAT16, FLOAT16, FLOAT32, NIBBLE, PIECE
from dmlcpu.runtime.intrinsics import as_words, line_of, prefetch_to_second
from dmlcpu.runtime.jit import device


@device
def gather(words, start, step, block, first, count, kind, line):
    """Write the words of elements first, first + 1, ... to line[:count]; element i is at start + i // block * step."""
    is_packed = kind == NIBBLE
    if block == 1 and step == 1 and not is_packed:
        row = words[start + first : start + first + count]
        for i in range(count):
            line[i] = row[i]
        return
    if block == 1 and step != 0 and not is_packed:
        for i in range(count):
            line[i] = words[np.uintp(start + (first + i) * step)]
        return
    done = 0
    while done < count:
        group = (first + done) // block
        place = start + group * step
        word = (words[place >> 1] >> ((place & 1) << 2)) & 15 if is_packed else words[place]
        end = count if step == 0 else min(count, (group + 1) * block - first)
        same = line[done:end]
        for i in range(end - done):
            same[i] = word
        done = end


@device
def convert(line, count, kind, mask, flip, floats):
    """Write words as float32 to floats[:count]; exact, except that integers beyond 24 bits are rounded."""
    bits = as_words(floats, 0, np.uint32)
    if kind == FLOAT32:
        for i in range(count):
            bits[i] = line[i]
    elif kind == FLOAT16:
        for i in range(count):
            floats[i] = float16_to_float32(np.uint32(line[i]))
    elif kind == BFLOAT16:
        for i in range(count):
            floats[i] = bfloat16_to_float32(np.uint32(line[i]))
    else:
        mask, flip = np.uint32(mask), np.uint32(flip)
        for i in range(count):
            flipped = np.uint32((np.uint32(line[i]) & mask) ^ flip)
            floats[i] = np.float32(np.int32(np.uint32(flipped - flip)))


@device
def round_to_16_bits(floats, count, kind, line):
    """Write float32 as float16 or bfloat16 to line[:count]; any NaN becomes quiet, without sign and payload."""
    if kind == FLOAT16:
        for i in range(count):
            line[i] = float32_to_float16(floats[i])
    else:
        for i in range(count):
            line[i] = float32_to_bfloat16(floats[i])


@device
def scatter(line, count, words, start, step, kind):
    """Write line[:count] to words, from `start` on."""
    if kind == NIBBLE:
        for i in range(count):
            place = start + i * step
            shift = (place & 1) << 2
            words[place >> 1] = (words[place >> 1] & (240 >> shift)) | (line[i] << shift)
    else:
        for i in range(count):
            words[start + i * step] = line[i]


@device
def piece_of(line, done, end, ahead):
    """Return the end of the next piece of line[done:end], and prefetch the piece `ahead` of it; 0: all is one piece."""
    if ahead == 0:
        return end
    for i in range(done + ahead, done + ahead + min(PIECE, end - done), line_of(line)):
        prefetch_to_second(line, i)
    return min(end, done + PIECE)
