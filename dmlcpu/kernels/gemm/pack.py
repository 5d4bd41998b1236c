"""Packing: four bytes that follow one another along K become a 32-bit word, as the microkernels read them.

The left-hand side is unsigned, the right-hand side signed. In other bytes the highest bit is flipped, which adds or
subtracts 128. The same is done to their zero points, so no other code depends on signs. NR columns make a panel:
(groups of four along K, NR). All instruction sets read this layout. Edges are filled with zeros.
"""

from typing import NamedTuple

import numpy as np

from dmlcpu.kernels.gemm.microkernels.forms import count_saturating
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, NR, ROW_STEP
from dmlcpu.kernels.gemm.microkernels.packing import STEP, load_word, pack_groups, pack_lines, pack_words, sum_of_words
from dmlcpu.kernels.gemm.work import MATRIX, groups_of, panels_of
from dmlcpu.kernels.walk import WALK, offset, share
from dmlcpu.runtime.intrinsics import Strided, as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import LINE_CELLS, record, record_at

LAYOUT = f"s8_k4_n{NR}"  # signed bytes, four along K in a word, panels of NR columns

# Groups of a panel that are packed before the next panel's: this many rows of b are read side by side.
RUN = 64
EVERY_HIGH_BIT = np.uint32(0x80808080)
LOW_BYTES = np.uint32(0x00FF00FF)

WORK = record(N=np.int64, K=np.int64, sign_flip=np.int64, matrices=np.int64, walk=WALK, b=MATRIX)


@device
def word_at(x, place, step, count, sign_flip):
    """Return `count` (up to four) bytes, `step` apart, as one word; sign_flip: 0 or 0x80."""
    word = np.uint32(0)
    for i in range(count):
        word |= np.uint32(x[place + i * step] ^ np.uint8(sign_flip)) << np.uint32(8 * i)
    return word


@device
def sum_of_bytes(word):
    """Return the sum of the four bytes of a word, unsigned."""
    pairs = (word & LOW_BYTES) + (word >> np.uint32(8) & LOW_BYTES)
    return np.int64((pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16)))


class Lhs(NamedTuple):
    """Packed rows of a: those of a tile, or all rows if a product has few."""

    height: int
    words: np.ndarray  # uint32, flat: (chunks of KC, rows, ROW_STEP)
    sums: np.ndarray  # of each row's unsigned bytes, if they are needed


class Rhs(NamedTuple):
    """One matrix b as it lies in memory."""

    b: np.ndarray
    place: int  # of the first element
    N: int
    K: int
    row: int  # elements from row to row, and from column to column
    column: int
    sign_flip: int  # exclusive or with it makes the bytes signed


@device
def pack_rows(a, lhs, tall, work, wants_sums):
    """Pack rows of a, Strided, and zeros up to lhs.height; tall: rows of a chunk of lhs.words."""
    depth_step, sign_flip, total, words = work.a.column, work.a_sign_flip, work.groups, lhs.words
    for row in range(lhs.height):
        lhs.sums[row] = 0
    for first in range(0, total, KC):
        at, here, groups = first // KC * tall * ROW_STEP, a.first + 4 * first * depth_step, min(KC, total - first)
        done = min(groups, work.K // 4 - first) if depth_step == 1 else 0
        pack_words(Strided(a.array, here, a.step, a.count), done, sign_flip, words, at)
        for row in range(lhs.height):
            line, is_there = at + row * ROW_STEP, row < a.count
            for i in range(done if is_there else 0, groups):
                there, place = min(4, work.K - 4 * (first + i)) if is_there else 0, here + row * a.step
                words[line + i] = word_at(a.array, place + 4 * i * depth_step, depth_step, there, sign_flip)
            if wants_sums:
                lhs.sums[row] += sum_of_words(words, line, groups)


@device
def pack_panels(rhs, first, last, words, sums, counts):
    """Pack panels first, ..., last - 1 of b, one after the other, and sum their columns.

    words: uint32 (panels, groups, NR), sums: int64 (panels, NR), both flat. Return how many pairs of bytes saturate if
    `counts` is true: see forms.py.
    """
    groups, saturating = groups_of(rhs.K), 0
    length = max(groups, 1) if rhs.row == 1 else RUN  # contiguous columns are read to their ends
    for j in range((last - first) * NR):
        sums[j] = 0
    for run in range(0, groups, length):
        for panel in range(first, last):
            number = panel - first
            pack_run(rhs, panel, run, min(run + length, groups),
                     as_words(words, number * groups * NR, words), as_words(sums, number * NR, sums))  # fmt: skip
            if counts:
                there = (min(run + length, groups) - run) * NR
                saturating += count_saturating(words, (number * groups + run) * NR, there // STEP)
    return saturating


@device
def pack_run(rhs, panel, first, last, words, sums):
    """Pack groups first, ..., last - 1 of a panel, and add to the sums of its columns."""
    b, place, width = rhs.b, rhs.place + panel * NR * rhs.column, min(NR, rhs.N - panel * NR)
    whole = min(last, rhs.K // 4)  # groups of four rows
    if rhs.column == 1 and (width == NR or rhs.row > 0):
        if width < NR:  # a row of NR bytes is read where the next rows follow
            whole = max(first, min(whole, ((b.size - place - NR) // rhs.row + 1) // 4))
        rows = Strided(b, place + 4 * first * rhs.row, rhs.row, 4 * (whole - first))
        pack_groups(rows, rhs.sign_flip, words, first * NR, sums, 0)
        for j in range(width, NR):
            sums[j] = 0
            for group in range(first, whole):
                words[group * NR + j] = 0
        first = whole
    elif width == NR and rhs.row == 1:
        pack_columns(rhs, place, first, whole, words, sums)
        first = whole
    for group in range(first, last):
        count = min(4, rhs.K - 4 * group)
        for j in range(NR):
            here = place + 4 * group * rhs.row + j * rhs.column
            word = word_at(b, here, rhs.row, count if j < width else 0, rhs.sign_flip)
            words[group * NR + j] = word
            sums[j] += sum_of_bytes(word ^ EVERY_HIGH_BIT) - 512


@device
def pack_columns(rhs, place, first, last, words, sums):
    """Pack whole groups of a panel at rhs.b[place] whose columns are contiguous; add to the sums."""
    lines = (last - first) // STEP
    for j in range(0, NR, STEP):
        columns = Strided(rhs.b, place + j * rhs.column + 4 * first, rhs.column, STEP)
        pack_lines(columns, lines, rhs.sign_flip, words, first * NR + j, sums, j)
    flips = EVERY_HIGH_BIT if rhs.sign_flip else np.uint32(0)
    for j in range(NR):
        for group in range(first + lines * STEP, last):
            word = load_word(rhs.b, place + j * rhs.column + 4 * group) ^ flips
            words[group * NR + j] = word
            sums[j] += sum_of_bytes(word ^ EVERY_HIGH_BIT) - 512


@kernel
def pack(part, parts, b, words, sums, saturating, works):
    """Pack a share of the panels of some matrices. words: uint32, sums: int64, both flat and of all panels.

    saturating: for each share the number of pairs that saturate, on a separate cache line.
    """
    work, found = record_at(works, 0, WORK), 0
    panels, groups = panels_of(work.N), groups_of(work.K)
    first, last = share(part, parts, work.matrices * panels)
    while first < last:
        number = first // panels
        end = min(last, (number + 1) * panels)
        place = work.b.start + offset(work.walk, work.b.strides, number)
        rhs = Rhs(b, place, work.N, work.K, work.b.row, work.b.column, work.sign_flip)
        found += pack_panels(rhs, first - number * panels, end - number * panels,
                             as_words(words, first * groups * NR, words), as_words(sums, first * NR, sums),
                             True)  # fmt: skip
        first = end
    saturating[part * LINE_CELLS] = found
