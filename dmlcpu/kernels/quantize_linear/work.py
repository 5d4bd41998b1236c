"""The work record of the quantizers' kernels, and the workspace of a share.

All elements are cut into *runs*, along which x and y have one step, and runs into tiles. Element i of a run has the
scale and the zero point i // block.
"""

import numpy as np

from dmlcpu.kernels.walk import STRIDES, WALK
from dmlcpu.runtime.records import CACHE_LINE, cells_of, record

TILE = 1024  # elements of a tile that passes through the workspace
# Elements of a tile that does not. The fixed cost of a tile was a third of the time of 1,024 elements (Zen 5).
DIRECT_TILE = 8192
# If tensors have more bytes than the caches, x is prefetched into the second-level cache. 4,096 x 4,096 to uint8,
# elements a nanosecond on two threads: on Zen 5 without prefetch 7.7, into the first cache 11.8; on Zen 4, where only
# few lines can be under way to the first cache, without prefetch 6.0, into the first 4.4, into the second 6.2. Writing
# results past the caches took 1.0 to 1.4 times as long (Zen 4).
LARGE = 32 << 20
AHEAD = 4096  # elements from a piece of x to the one that is prefetched: beyond the page, where processors stop
PIECE = 256  # elements
LONG = 16  # elements of a block from which a separate loop pays
INTEGER, NIBBLE, FLOAT32, FLOAT16, BFLOAT16 = range(5)  # of words; NIBBLE: two elements a byte, the first one low

# Where a tensor lies, in elements, and what its words are. An integer is ((word & mask) ^ flip) - flip.
TENSOR = record(
    start=np.int64,
    step=np.int64,  # from one element of a run to the next; of scale and zero: from one block to the next
    strides=STRIDES,  # from run to run
    kind=np.int64,
    mask=np.int64,
    flip=np.int64,
)

WORK = record(
    n=np.int64,  # elements of a run
    tile=np.int64,  # elements of a tile
    is_direct=np.int64,  # whether elements of x and y are adjacent, and neither gathered nor converted
    is_large=np.int64,  # whether they are direct and larger than the caches
    tiles=np.int64,  # of a run
    items=np.int64,  # tiles of all runs
    block=np.int64,  # elements that share scale and zero point; n or more if all of a run do
    lowest=np.int64,  # of y's integers
    highest=np.int64,
    walk=WALK,  # from run to run
    x=TENSOR,
    scale=TENSOR,
    zero=TENSOR,
    y=TENSOR,
)

SPACE = record(
    CACHE_LINE,
    x=(np.float32, TILE),
    scale=(np.float32, TILE),
    zero=(np.float32, TILE),
    y=(np.float32, TILE),
    words=(np.uint32, TILE),
    zero_words=(np.uint32, TILE),
    out=(np.uint32, TILE),
)
SPACE_CELLS = cells_of(SPACE)
