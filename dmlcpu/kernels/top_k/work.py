"""The work record of the top_k kernels, the workspace of a share, and the writing of winners."""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels.top_k.keys import KEY_MAP
from dmlcpu.kernels.walk import STRIDES, WALK, offset
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.records import record

# Where the sequences lie in one tensor, in words: as wide as an element in x and values, 32 bits in indices.
SEQUENCES = record(
    start=np.int64,  # of the first sequence
    step=np.int64,  # from one element of a sequence to the next
    strides=STRIDES,  # from sequence to sequence
)

WORK = record(
    n=np.int64,  # elements of a sequence
    k=np.int64,
    rows=np.int64,  # sequences
    columns=np.int64,  # adjacent sequences, one word of x apart: the size of the walk's last dimension, or 1
    is_packed=np.int64,  # the sequences of x follow one another without gaps
    is_sorted=np.int64,  # the winners must be in order
    index_words=np.int64,  # words of an index, the low one first: 1 or 2
    walk=WALK,  # from sequence to sequence
    x=SEQUENCES,
    values=SEQUENCES,
    indices=SEQUENCES,
    key_map=KEY_MAP,
    workspace=record(keys=np.int64, positions=np.int64),  # the number of each in a share
)


class Problem(NamedTuple):
    """The facts of a top-k that decide the kernel: fields of WORK, and the `step` of its x."""

    rows: int
    n: int
    k: int
    step: int
    columns: int


class Candidates(NamedTuple):
    """Keys of elements, and their positions in the sequence."""

    keys: Any
    positions: Any


@device
def workspace_of(part, parts, x, work, scratch):
    """Return the workspace of a share. scratch: int64, positions (parts, ...), then keys (parts, ...)."""
    keys, positions = work.workspace.keys, work.workspace.positions
    words = as_words(scratch, parts * positions, x)
    return Candidates(words[part * keys : (part + 1) * keys], scratch[part * positions : (part + 1) * positions])


@device
def start_of(work, tensor, row):
    """Return where sequence `row` begins in a tensor: x, values or indices of the work."""
    return tensor.start + offset(work.walk, tensor.strides, row)


@inlined
def write_winner(x, source, position, values, target, indices, low, is_wide):
    """Write the element x[source] to values[target], and its position to one or two words of indices from `low` on."""
    # Unsigned indices avoid Numba's wrap-around check.
    values[np.uintp(target)] = x[np.uintp(source)]
    indices[np.uintp(low)] = position & 0xFFFFFFFF
    if is_wide:
        indices[np.uintp(low) + np.uintp(1)] = position >> 32


@device
def write_winners(x, start, work, row, positions, values, indices):
    """Write the winners of sequence `row`, which begins at x[start]: the elements at positions[:k]."""
    v, i = start_of(work, work.values, row), start_of(work, work.indices, row)
    x_step, v_step, i_step, is_wide = work.x.step, work.values.step, work.indices.step, work.index_words == 2
    for j in range(work.k):
        position = positions[j]
        write_winner(x, start + position * x_step, position, values, v + j * v_step, indices, i + j * i_step, is_wide)
