"""Per-lane insertion for short sequences, many at a time: each vector lane keeps the k best of its sequence.

The elements of a sequence are inserted from last to first. A newcomer displaces the first key that it reaches, which
moves on to the next place in the same way. So among equal elements the last inserted one, which has the lowest
position, comes first, without a comparison of positions and without a branch.
"""

import numpy as np

from dmlcpu.kernels.top_k.choose import LOCKSTEP_N
from dmlcpu.kernels.top_k.groups import LINE
from dmlcpu.kernels.top_k.keys import key_map_of, load_keys
from dmlcpu.kernels.top_k.lines import insert
from dmlcpu.kernels.top_k.work import WORK, Candidates, Problem, workspace_of, write_winner
from dmlcpu.kernels.walk import offsets, share
from dmlcpu.runtime.intrinsics import line_of
from dmlcpu.runtime.jit import inlined, shared
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import cells_of, record, record_at

# Where the sequences of a block begin in each tensor.
STARTS = record(x=(np.int64, LINE), values=(np.int64, LINE), indices=(np.int64, LINE))
STARTS_CELLS = cells_of(STARTS)


def supports(problem: Problem) -> bool:
    """Return whether the kernel can do this."""
    return problem.n <= LOCKSTEP_N


@shared
def workspace(n: int, k: int, lanes: int) -> tuple[int, int]:
    """Return how many keys and positions each share needs."""
    return 2 * (n + k) * lanes, STARTS_CELLS


@kernel
def lockstep(part, parts, x, values, indices, works, scratch):
    """Select in a share of the sequences."""
    work = record_at(works, 0, WORK)
    key_map = key_map_of(x, work.key_map)
    n, k, lanes = work.n, work.k, line_of(x)
    space = workspace_of(part, parts, x, work, scratch)
    starts = record_at(space.positions, 0, STARTS)
    elements, lines = space.keys[: n * lanes], space.keys[n * lanes : 2 * n * lanes]
    winners = Candidates(space.keys[2 * n * lanes :], space.keys[(2 * n + k) * lanes :])
    first, last = share(part, parts, work.rows)
    for row in range(first, last, lanes):
        width = min(lanes, last - row)  # lanes beyond compute on stale data
        offsets(work.walk, work.x.strides, row, width, work.x.start, starts.x)
        offsets(work.walk, work.values.strides, row, width, work.values.start, starts.values)
        offsets(work.walk, work.indices.strides, row, width, work.indices.start, starts.indices)
        load_block(x, starts.x, width, work, key_map, elements)
        select_block(elements, n, k, lanes, lines, winners)
        write_block(x, starts, width, work, winners.positions, values, indices)


@inlined
def load_block(x, starts, rows, work, key_map, elements):
    """Write the keys of `rows` sequences, one after the other."""
    n, step = work.n, work.x.step
    if work.is_packed:
        load_keys(x, starts[0], np.int64(1), rows * n, key_map, elements)
        return
    for lane in range(rows):
        load_keys(x, starts[lane], step, n, key_map, elements[lane * n : (lane + 1) * n])


@inlined
def select_block(elements, n, k, lanes, lines, winners):
    """Find the k greatest of `lanes` sequences.

    elements: (lanes, n) keys; lines: (n, lanes), space for their transpose; winners: (k, lanes). All are flat.
    """
    for cell in range(k * lanes):
        winners.keys[cell] = 0  # the least key: every element displaces it
    for lane in range(lanes):
        for i in range(n):
            lines[i * lanes + lane] = elements[lane * n + i]
    for i in range(n - 1, -1, -1):
        insert(lines, i * lanes, i, winners, 0, lanes, k)


@inlined
def write_block(x, starts, width, work, positions, values, indices):
    """Write the winners of `width` sequences. positions: (k, lanes), but flat."""
    lanes, x_step, v_step, i_step = line_of(x), work.x.step, work.values.step, work.indices.step
    is_wide = work.index_words == 2
    for j in range(work.k):
        for lane in range(width):
            position = np.int64(positions[j * lanes + lane])
            write_winner(x, starts.x[lane] + position * x_step, position, values, starts.values[lane] + j * v_step,
                         indices, starts.indices[lane] + j * i_step, is_wide)  # fmt: skip
