"""Per-lane insertion of few winners along an axis that is not the last: each vector lane keeps the k best of a column.

Each line of the input is read once: the first k from last to first, then the others in order. The first k are always
inserted; each displaces the first key that it reaches. Most later elements do not exceed the last of the k best, which
one comparison checks for a whole line of columns. An element that does displaces the first key that it exceeds. The
displaced key moves on to the next place in the same way. So among equal elements the first of the sequence comes first.
"""

import numpy as np

from dmlcpu.kernels.top_k.column_blocks import block_at, block_count
from dmlcpu.kernels.top_k.keys import key_map_of, load_keys
from dmlcpu.kernels.top_k.lines import exceed, insert, insert_after_equals
from dmlcpu.kernels.top_k.work import WORK, Candidates, Problem, start_of, workspace_of, write_winner
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words, line_of, prefetch
from dmlcpu.runtime.jit import device, shared
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

# Lines of columns in a block. Measured on a Xeon with VNNI, 10,000 x 1,000 float32 along axis 0, k 10, two threads, ms:
# 4 lines 7.5, 8 lines 3.6, 16 lines 2.5.
LINES = 16
# Prefetch distance in lines of the input: processors do not foresee jumps from line to line. Same measurement: 8 lines
# 2.5 ms, 16 lines 2.8.
PREFETCH = 8


def supports(problem: Problem) -> bool:
    """Return whether the kernel can do this."""
    return problem.columns > 1 and problem.n < 2**32


@shared
def workspace(n: int, k: int, lanes: int) -> tuple[int, int]:
    """Return how many keys and positions each share needs: a line of newcomers, and k winners of each column."""
    columns = LINES * lanes
    return (k + 1) * columns, k * columns // 2


@kernel
def strided_insert(part, parts, x, values, indices, works, scratch):
    """Select in a share of the sequences, which are adjacent in x."""
    work = record_at(works, 0, WORK)
    key_map = key_map_of(x, work.key_map)
    space = workspace_of(part, parts, x, work, scratch)
    columns = LINES * line_of(x)
    newcomers = space.keys[:columns]
    winners = Candidates(space.keys[columns:], as_words(space.positions, 0, indices))
    first, last = share(part, parts, block_count(work, columns))
    for number in range(first, last):
        row, width = block_at(work, columns, number)
        start = start_of(work, work.x, row)
        insert_columns(x, start, width, work, key_map, newcomers, winners)
        write_columns(x, start, width, work, row, winners.positions, values, indices)


@device
def insert_columns(x, start, width, work, key_map, newcomers, winners):
    """Find the k greatest of `width` columns. newcomers: (columns,); winners: (k, columns), but flat."""
    n, k, step, lanes = work.n, work.k, work.x.step, line_of(x)
    columns = LINES * lanes  # a constant, unlike the size of newcomers
    for cell in range(k * columns):
        winners.keys[cell] = 0  # the least key: every element displaces it
    for turn in range(n):
        i = k - 1 - turn if turn < k else turn
        begin = start + i * step
        load_keys(x, begin, 1, width, key_map, newcomers)
        for column in range(0, width, lanes):  # lanes beyond compute on stale data
            prefetch(x, begin + PREFETCH * step + column)
            if turn < k:
                insert(newcomers, column, i, winners, column, columns, k)
            elif exceed(newcomers, column, winners.keys, (k - 1) * columns + column) != 0:
                insert_after_equals(newcomers, column, i, winners, column, columns, k)


@device
def write_columns(x, start, width, work, row, positions, values, indices):
    """Write the winners of `width` sequences from `row` on, line by line; positions: (k, columns), but flat."""
    columns, x_step, last, is_wide = LINES * line_of(x), work.x.step, work.walk.dims - 1, work.index_words == 2
    v_side, i_side = work.values.strides[last], work.indices.strides[last]  # to the next sequence
    for j in range(work.k):
        v = start_of(work, work.values, row) + j * work.values.step
        i = start_of(work, work.indices, row) + j * work.indices.step
        for column in range(width):
            position = np.int64(positions[j * columns + column])
            write_winner(x, start + column + position * x_step, position, values, v + column * v_side,
                         indices, i + column * i_side, is_wide)  # fmt: skip
