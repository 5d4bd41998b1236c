"""Packing: bytes become 32-bit words of four that follow one another along K, as the multipliers want them.

Left rows are unsigned, right columns signed: flipping the highest bit of the others adds 128, or takes it away, and the
same is done to their zero points, so nothing else has to know. 32 columns make a panel: (groups of four along K, 32).
Every instruction set reads this one layout. What is missing at the edges is zero.
"""

import numpy as np

from dmlcpu.kernels.gemm.microkernels.microkernel import KC, NR, ROW_STEP
from dmlcpu.kernels.gemm.microkernels.packing import STEP, pack_groups, pack_words, sum_of_words
from dmlcpu.kernels.gemm.work import groups_of, panels_of
from dmlcpu.runtime.intrinsics import load_word
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel

LAYOUT = f"s8_k4_n{NR}"  # signed bytes, four along K in a word, panels of NR columns

# Groups that are packed before the next panel's: so many rows of B are read side by side.
RUN = 64
EVERY_HIGH_BIT = np.uint32(0x80808080)
LOW_BYTES = np.uint32(0x00FF00FF)


@device
def word_at(x, place, step, count, flip):
    """Return `count` (up to four) bytes, `step` apart, as one word; flip: 0 or 0x80."""
    word = np.uint32(0)
    for i in range(count):
        word |= np.uint32(x[place + i * step] ^ np.uint8(flip)) << np.uint32(8 * i)
    return word


@device
def sum_of_bytes(word):
    """Return the sum of the four bytes of a word, unsigned."""
    pairs = (word & LOW_BYTES) + (word >> np.uint32(8) & LOW_BYTES)
    return np.int64((pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16)))


@device
def pack_rows(a, start, row_step, depth_step, count, height, depth, flip, words, tall, sums, wants_sums):
    """Pack `count` rows and zeros up to `height`: each KC words beside those of the others, ROW_STEP apart.

    tall: how many rows there is room for; sums: int64, of each row's unsigned bytes, if they are wanted.
    """
    groups = groups_of(depth)
    for row in range(height):
        total = 0
        for first in range(0, groups, KC):
            at = (first // KC * tall + row) * ROW_STEP
            place = start + row * row_step + 4 * first * depth_step
            last = min(KC, groups - first)
            done = 0
            if row < count and depth_step == 1:
                done = min(last, depth // 4 - first) // STEP * STEP
                pack_words(a, place, done // STEP, flip, words, at)
                if wants_sums:
                    total += sum_of_words(words, at, done // STEP)
            for i in range(done, last):
                left = min(4, depth - 4 * (first + i)) if row < count else 0
                word = word_at(a, place + 4 * i * depth_step, depth_step, left, flip)
                words[at + i] = word
                total += sum_of_bytes(word)
        sums[row] = total


@device
def pack_run(b, place, depth_step, column_step, width, first, last, depth, flip, words, sums):
    """Pack groups first, ..., last - 1 of a panel of `width` columns. words: (groups, NR), but flat.

    sums: int64, get the sums of the signed bytes of each column added.
    """
    whole = min(last, depth // 4)  # groups of four rows
    if width == NR and column_step == 1:
        pack_groups(b, place + 4 * first * depth_step, depth_step, whole - first, flip, words, first * NR, sums, 0)
        first = whole
    elif width == NR and depth_step == 1:
        flips = EVERY_HIGH_BIT if flip else np.uint32(0)
        for j in range(NR):
            for group in range(first, whole):
                word = load_word(b, place + j * column_step + 4 * group) ^ flips
                words[group * NR + j] = word
                sums[j] += sum_of_bytes(word ^ EVERY_HIGH_BIT) - 512
        first = whole
    for group in range(first, last):
        left = min(4, depth - 4 * group)
        for j in range(NR):
            first_byte = place + 4 * group * depth_step + j * column_step
            word = word_at(b, first_byte, depth_step, left if j < width else 0, flip)
            words[group * NR + j] = word
            sums[j] += sum_of_bytes(word ^ EVERY_HIGH_BIT) - 512


@device
def pack_panels(b, start, depth_step, column_step, first, last, columns, depth, flip, words, sums):
    """Pack panels first, ..., last - 1 of one matrix, one behind the other, with the sums of their columns, int64."""
    groups = groups_of(depth)
    for j in range((last - first) * NR):
        sums[j] = 0
    for run in range(0, groups, RUN):
        end = min(run + RUN, groups)
        for panel in range(first, last):
            place = start + panel * NR * column_step
            mine = words[(panel - first) * groups * NR :]
            width = min(NR, columns - panel * NR)
            pack_run(b, place, depth_step, column_step, width, run, end, depth, flip, mine,
                     sums[(panel - first) * NR :])  # fmt: skip


@kernel
def pack(part, parts, b, start, depth_step, column_step, batch_offsets, columns, depth, flip, words, sums):
    """Pack a share of the panels of some matrices. words: uint32, sums: int64, both of all panels, but flat."""
    panels = panels_of(columns)
    groups = groups_of(depth)
    first, last = part * batch_offsets.size * panels // parts, (part + 1) * batch_offsets.size * panels // parts
    while first < last:
        batch = first // panels
        end = min(last, (batch + 1) * panels)
        pack_panels(b, start + batch_offsets[batch], depth_step, column_step, first - batch * panels,
                    end - batch * panels, columns, depth, flip, words[first * groups * NR :],
                    sums[first * NR :])  # fmt: skip
        first = end
