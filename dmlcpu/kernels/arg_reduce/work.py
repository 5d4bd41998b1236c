"""The work record of argmax and argmin, and what is done with the winner of a set or of a piece of one.

The elements of a set are numbered in the order of the tensor. They lie in runs of `n` elements with even steps; there
is one run if the reduced dimensions merge into one. A long set may be cut into pieces, which are ranges of its
elements. Then each piece writes its winner to the workspace, as a key and a place, and `merge` chooses among them.
"""

import numpy as np

from dmlcpu.kernels.top_k.keys import KEY_MAP
from dmlcpu.kernels.walk import STRIDES, WALK, offset
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record, record_at

# Where the sets or the places lie, in words.
TENSOR = record(
    start=np.int64,  # of the first set, or its place
    strides=STRIDES,  # from set to set
)

WORK = record(
    n=np.int64,  # elements of a run
    size=np.int64,  # elements of a set
    rows=np.int64,  # sets
    columns=np.int64,  # adjacent sets, one word of x apart: the size of the walk's last dimension, or 1
    pieces=np.int64,  # into which each set is cut
    step=np.int64,  # words of x from one element of a run to the next
    takes_last=np.int64,  # whether the last of equal elements wins
    index_words=np.int64,  # 32-bit words of a place, 1 or 2, the low one first
    found=np.int64,  # cells of the workspace for winners of pieces, before the workspaces of the shares
    walk=WALK,  # from set to set
    runs=WALK,  # from run to run
    run_strides=STRIDES,  # of x, from run to run
    x=TENSOR,
    y=TENSOR,
    key_map=KEY_MAP,
)


@device
def keep(row, piece, key, place, work, scratch):
    """Keep the winner of a piece of set `row`."""
    cell = 2 * (row * work.pieces + piece)
    scratch[cell] = np.int64(key)
    scratch[cell + 1] = place


@inlined
def place_in(row, work):
    """Return where in y the place of set `row` begins."""
    return work.y.start + offset(work.walk, work.y.strides, row)


@inlined
def write_place(y, low, place, is_wide):
    """Write a place to one or two words of y from `low` on."""
    y[np.uintp(low)] = place & 0xFFFFFFFF
    if is_wide:
        y[np.uintp(low) + np.uintp(1)] = place >> 32


@kernel
def merge(part, parts, y, works, scratch):
    """Write the places of all sets from the winners of their pieces."""
    work = record_at(works, 0, WORK)
    for row in range(work.rows):
        first = 2 * row * work.pieces
        best = first
        for cell in range(first + 2, first + 2 * work.pieces, 2):
            key, greatest = np.uint64(scratch[cell]), np.uint64(scratch[best])
            if key > greatest or (work.takes_last and key == greatest):
                best = cell
        write_place(y, place_in(row, work), scratch[best + 1], work.index_words == 2)
