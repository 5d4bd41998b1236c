"""The record of a selection, which follows the work record of its product, and what its epilogue needs of a share.

Scores are numbered like the elements of a y in C order: row `place // N` of all products, column `place % N`.
"""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.gemm.microkernels.microkernel import NR, TALLEST
from dmlcpu.kernels.gemm.work import MOST_PANELS
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record

SELECTION = record(
    k=np.int64,
    rows=np.int64,  # of all products
    is_scaled=np.int64,  # scores are float32
    is_smallest=np.int64,  # the smallest come first
    has_mask=np.int64,  # some columns are not allowed
    mask_step=np.int64,  # bytes from one row's bits to the next row's; 0: all rows share them
    has_row_bias=np.int64,  # rows have numbers that are added to their scaled sums; then the batch has one product
    shift=np.int64,  # the bits by which sums are shifted left before the bias is added
    nan_rank=np.int64,  # of NaN, beyond all other ranks
    fill=np.int64,  # the score after the last selected column, as int32
    shares=np.int64,
    tiles_start=np.int64,  # the cell where the first share's TILE begins
    start=np.int64,  # the cell where the candidates of the first share begin
    share_cells=np.int64,  # of a share's candidates, and below of a row's
    row_cells=np.int64,
    capacity=np.int64,  # candidates of a row
    is_sorted=np.int64,  # whether they are kept in order
    lowest=np.int64,  # what scores are compared with until there are k candidates, unless rows have their own number
    has_least=np.int64,  # whether rows have one
    finish_start=np.int64,  # the cell where the workspace of finish.py begins
    finish_cells=np.int64,  # of a part of it
)

# A share's space for the tallest tile and the longest block.
TILE = record(
    CACHE_LINE,
    bias=(np.int32, MOST_PANELS * NR),  # of the columns: int32, or the bits of float32
    row_bias=(np.float32, TALLEST),
    scores=(np.int32, (TALLEST, NR)),  # of a tile with scores that may be selected
    found=(np.uint32, TALLEST),  # for each row of the tile, a bit for each score that may be selected
)
TILE_CELLS = cells_of(TILE)


class Out(NamedTuple):
    """What the tiles of a share read and write."""

    lists: np.ndarray  # int64: the workspace, with the candidates of all rows of the share
    first: int  # the cell of the first row
    mask: np.ndarray  # bytes with a bit for each column, the lowest first, which says whether it may be selected
    tile: Any  # a TILE
    top: Any  # a SELECTION


class Terms(NamedTuple):
    """The flat arrays that turn sums into scores, and those that the best are written to."""

    a_scale: np.ndarray  # float32
    b_scale: np.ndarray  # float32
    bias: np.ndarray  # of the columns: int32, or the bits of float32
    row_bias: np.ndarray  # float32
    out: Out
