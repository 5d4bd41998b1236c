"""Products on processors with AVX2 alone, whose instruction for bytes adds pairs of products in 16 bits and saturates.

vpmaddubsw computes a0 b0 + a1 b1 of unsigned a and signed b. The sum fits int16 for any a if |b0 + b1| <= 128: its
absolute value is at most 255 |b0 + b1| if b0 and b1 have the same sign; otherwise it is between two products that fit.
A larger pair *saturates*. None does among weights of 7 bits, about 3 in 1,000 among normally distributed weights of
8 bits, and a quarter among random bytes. So each block of panels gets a form:

- BYTES: no pair saturates; the block is multiplied as it is
- CLIPPED: few pairs do; the second byte of each is brought nearer to zero, and what it lost, times a, is added to the
  tile
- INT16: many do; bytes become int16, which takes a third longer
- WIDENING: for too few rows it does not pay to examine the block or copy it; bytes are widened in registers
"""

import numpy as np

from dmlcpu.kernels.gemm.cut import WIDENED_ROWS
from dmlcpu.kernels.gemm.epilogue import Epilogue
from dmlcpu.kernels.gemm.microkernels.forms import MOST, copy_words, count_saturating, widen_lhs, widen_rhs
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, MR, NR, ROW_STEP, Microkernel, make_dot
from dmlcpu.kernels.gemm.microkernels.packing import STEP
from dmlcpu.kernels.gemm.microkernels.x86 import AVX2_INT16, AVX2_WIDENING
from dmlcpu.kernels.gemm.product import BYTES, Form, make_kernel
from dmlcpu.runtime.intrinsics import Strided, as_words, lowest_bit
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.variants import specialized

CLIPPED, INT16, WIDENING = range(BYTES + 1, BYTES + 4)
CHUNK = 128  # words of K: rows and panel then stay in a first cache of 32 KiB (with 256, 5 to 10 % slower)
FEW = 128  # at most one pair in FEW is clipped
LOWEST_BYTE = np.uint32(0xFF)

dot_widened_4, dot_widened_1 = make_dot(4, AVX2_WIDENING), make_dot(1, AVX2_WIDENING)
dot_int16 = make_dot(MR, AVX2_INT16)
dot_4 = dot_1 = dot_widened_1  # each variant replaces these two


@device
def form_rhs(words, saturating, panels, rows, slot, work, scratch):
    """Choose the form of a block, and copy the block if it changes. slot: the place of the copy, NC panels of int16."""
    groups, copy = work.groups, as_words(scratch, slot, np.uint32)
    clips = as_words(scratch, slot + work.NC * groups * NR // 2, np.int64)  # the second half
    size = panels * groups * NR
    if saturating < 0 and rows > WIDENED_ROWS:
        saturating = count_saturating(words, 0, size // STEP)
    if saturating == 0:
        return Form(BYTES, words, clips, groups)
    if rows <= WIDENED_ROWS:
        return Form(WIDENING, words, clips, groups)
    if FEW * saturating <= 2 * size and not work.is_wide:
        clip_pairs(words, panels, groups, copy, clips)
        return Form(CLIPPED, copy, clips, groups)
    widen_rhs(words, 0, panels * groups, copy, 0)
    return Form(INT16, copy, clips, 2 * groups)


@device
def clip_pairs(words, panels, groups, copy, clips):
    """Copy panels, and clip their saturating pairs.

    clips: where the clipped bytes of each panel begin, and where those of the last end; then a number for each clipped
    byte: its row (from bit 13 on), its column in the panel (from bit 8 on), and what it lost (int8).
    """
    end = panels + 1
    for panel in range(panels):
        clips[panel] = end
        for line in range(groups * NR // STEP):
            group, first, at = line * STEP // NR, line * STEP % NR, panel * groups * NR + line * STEP
            mask = copy_words(words, copy, at)
            while mask:
                pair = lowest_bit(mask)  # in memory order; a word has two
                mask &= mask - np.uint32(1)
                column, shift = pair // 2, np.uint32(16 * (pair % 2))
                lost = clip_pair(copy, at + column, shift)
                row = 4 * group + 2 * (pair % 2) + 1
                clips[end] = row << 13 | (first + column) << 8 | (lost & 255)
                end += 1
    clips[panels] = end


@inlined
def clip_pair(words, at, shift):
    """Bring the second byte of a saturating pair of words[at] as far toward zero as needed; return what it lost."""
    pair = words[at] >> shift
    one, other = np.int64(np.int8(pair)), np.int64(np.int8(pair >> np.uint32(8)))
    kept = (MOST if other > 0 else -MOST) - one
    above = shift + np.uint32(8)
    words[at] = words[at] & ~(LOWEST_BYTE << above) | (np.uint32(kept) & LOWEST_BYTE) << above
    return other - kept


@inlined
def complete(form, panel, lhs, acc):
    """Add the products of a and what the clipped bytes lost."""
    if form.number == CLIPPED:
        for i in range(form.clips[panel], form.clips[panel + 1]):
            clip = form.clips[i]
            k, column, lost = clip >> 13, clip >> 8 & (NR - 1), np.int32(np.int8(clip))
            at, shift = k // 4 // KC * MR * ROW_STEP + k // 4 % KC, np.uint32(8 * (k % 4))
            for row in range(lhs.height):
                acc[row, column] += np.int32(lhs.words[at + row * ROW_STEP] >> shift & LOWEST_BYTE) * lost


@inlined
def has_form(form, space):
    """Return whether kept rows have the form of a block, and note that they have it from now on."""
    is_int16 = np.int64(form.number == INT16)
    had = space.is_int16[0] == is_int16
    space.is_int16[0] = is_int16
    return had


@device
def form_lhs(form, lhs, work):
    """Widen packed rows in place if the form requires it, backwards, because one word becomes two."""
    if form.number != INT16:
        return
    last = (work.groups - 1) // KC * KC
    for chunk in range(last, -1, -KC):
        depth = min(KC, work.groups - chunk)
        for half in range(KC // 2, -1, -KC // 2):
            count = min(depth - half, KC // 2)
            source, target = chunk // KC * MR * ROW_STEP + half, (2 * chunk // KC + 2 * half // KC) * MR * ROW_STEP
            for row in range(lhs.height if count > 0 else 0):
                at = row * ROW_STEP
                widen_lhs(lhs.words, source + at, (count + STEP - 1) // STEP, lhs.words, target + at)


@inlined
def multiply_tile(form, lhs, lhs_at, rhs_at, depth, c_in, acc):
    """Add rows @ panel for a chunk of K, four rows at a time.

    int16 rows are multiplied MR at a time; the sums of rows from lhs.height on are meaningless and not used.
    """
    if form.number == INT16:
        dot_int16(lhs.words, lhs_at, form.words, rhs_at, depth, c_in, acc)
        return
    for row in range(0, lhs.height, 4):
        at, rows = lhs_at + row * ROW_STEP, as_words(acc, row * NR, acc)
        four = Strided(c_in.array, row * c_in.step, c_in.step, 4)
        if form.number == WIDENING:
            if lhs.height == 1:
                dot_widened_1(lhs.words, at, form.words, rhs_at, depth, four, rows)
            else:
                dot_widened_4(lhs.words, at, form.words, rhs_at, depth, four, rows)
        elif lhs.height == 1:
            dot_1(lhs.words, at, form.words, rhs_at, depth, four, rows)
        else:
            dot_4(lhs.words, at, form.words, rhs_at, depth, four, rows)


def make_formed_product(name: str, microkernel: Microkernel, using: Epilogue) -> Kernel:
    """Return the kernel of a microkernel that multiplies bytes if no pair saturates, and of an epilogue."""
    dots = {f"dot_{rows}": make_dot(rows, microkernel) for rows in (4, 1)}
    return make_kernel(
        name,
        using,
        COUNTS=True,
        CHUNK=CHUNK,
        form_rhs=form_rhs,
        form_lhs=form_lhs,
        has_form=has_form,
        multiply_tile=specialized(multiply_tile, **dots),
        complete=complete,
        **using.names(),
    )
