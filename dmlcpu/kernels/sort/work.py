"""The work record of the sort kernels, and the workspace of a share."""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.radix import DIGITS
from dmlcpu.kernels.top_k.keys import KEY_MAP
from dmlcpu.kernels.top_k.work import SEQUENCES
from dmlcpu.kernels.walk import WALK
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import inlined, shared
from dmlcpu.runtime.records import LINE_CELLS, record

WORK = record(
    n=np.int64,  # elements of a sequence
    rows=np.int64,  # sequences
    columns=np.int64,  # sequences side by side in x, one word apart: the size of the walk's last dimension, or 1
    lanes=np.int64,  # sequences that are sorted together
    has_values=np.int64,  # values are wanted
    index_words=np.int64,  # words of an index, the low one first: 1 or 2; 0: no indices are wanted
    walk=WALK,  # from sequence to sequence
    x=SEQUENCES,
    values=SEQUENCES,
    indices=SEQUENCES,
    key_map=KEY_MAP,
    share_cells=np.int64,  # of workspace
)


LANES = 16  # sequences that are sorted together, at most: a cache line of float32 side by side
# Elements of a sequence that the network sorts, at most. With 256 an element meets 15 comparators, of seven operations
# for 4 lanes (AVX2): as long as radix passes take.
SHORT = 256

COUNTS = 8 * DIGITS  # of the digits of a key


class Space(NamedTuple):
    """The workspace of a share."""

    counts: Any  # int64: histograms
    words: Any  # uint64: two times n, then n for each of several lanes
    keys: Any  # of x's type: two times n, or n for each of several lanes


def share_cells(n: int, width: int, lanes: int = 1) -> int:
    """Return the cells of a share for sequences of n elements, of which `lanes` are sorted together."""
    return COUNTS + words_of(n, lanes) + _lines(-(-max(2, lanes) * n * width // 8)) + 2 * LINE_CELLS


@shared
def words_of(n: int, lanes: int) -> int:
    """Return the words of a share."""
    return _lines((2 + (lanes if lanes > 1 else 0)) * n)


@shared
def _lines(cells: int) -> int:
    """Return so many cells in whole cache lines."""
    return cells + -cells % LINE_CELLS


@inlined
def space_of(part, x, work, scratch):
    """Return the workspace of a share. scratch: int64 cells. Lines of keys can be read beyond their end."""
    own = scratch[part * work.share_cells : (part + 1) * work.share_cells]
    keys = COUNTS + words_of(work.n, work.lanes)
    return Space(own[:COUNTS], as_words(own, COUNTS, np.uint64), as_words(own, keys, x))
