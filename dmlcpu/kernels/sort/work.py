"""The work record of the sort kernels, and the workspace of a share."""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.radix import RADIX
from dmlcpu.kernels.top_k.keys import KEY_MAP
from dmlcpu.kernels.top_k.work import SEQUENCES
from dmlcpu.kernels.walk import WALK
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import inlined
from dmlcpu.runtime.records import CELL, LINE_CELLS, record

WORK = record(
    n=np.int64,  # elements of a sequence
    rows=np.int64,  # sequences
    columns=np.int64,  # adjacent sequences, one word of x apart: the size of the walk's last dimension, or 1
    lanes=np.int64,  # sequences that are sorted together
    has_values=np.int64,  # the call returns values
    index_words=np.int64,  # words of an index, 1 or 2, the low one first; 0: the call returns no indices
    walk=WALK,  # from sequence to sequence
    x=SEQUENCES,
    values=SEQUENCES,
    indices=SEQUENCES,
    key_map=KEY_MAP,
    words=np.int64,  # of a share's workspace; 0: keys are sorted, because the call returns only values
    share_cells=np.int64,  # of a share's workspace
)


LANES = 16  # at most this many sequences are sorted together: a cache line of float32
# The network sorts sequences of up to this many elements. With 256, an element passes 15 comparators, each of seven
# operations for 4 lanes (AVX2), which takes as long as radix passes.
SHORT = 256

COUNTS = 4 * RADIX  # a histogram for each digit of a word


class Space(NamedTuple):
    """The workspace of a share."""

    counts: Any  # int64: histograms
    words: Any  # uint64
    keys: Any  # of x's type: two times n, or n for each of several lanes


def words_of(kernel: str, n: int, lanes: int) -> int:
    """Return the words that a share needs: two times n, and an order for each lane."""
    return lines_of({"network": (2 + lanes) * n, "columns": 2 * n + -(-lanes * n // 2)}.get(kernel, 2 * n))


def share_cells(words: int, n: int, width: int, lanes: int) -> int:
    """Return the cells of a share. width: bytes of an element. Lines of keys may be read beyond the last key."""
    return COUNTS + words + lines_of(-(-max(2, lanes) * n * width // CELL)) + 2 * LINE_CELLS


def lines_of(cells: int) -> int:
    """Return a number of cells, rounded up to whole cache lines."""
    return cells + -cells % LINE_CELLS


@inlined
def space_of(part, x, work, scratch):
    """Return the workspace of a share. scratch: int64 cells."""
    own = scratch[part * work.share_cells : (part + 1) * work.share_cells]
    return Space(own[:COUNTS], as_words(own, COUNTS, np.uint64), as_words(own, COUNTS + work.words, x))
