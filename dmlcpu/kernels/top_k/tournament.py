"""Block-max pruning for small k in contiguous sequences: group maxima form in whole vectors while the input streams by.

A sequence is cut into tiles of GROUP cache lines. A group is one lane of a tile: GROUP elements, a cache line apart.
Elements after the last whole tile are groups of one. groups.py describes the use of the maxima.
"""

import numpy as np

from dmlcpu.kernels.top_k import groups
from dmlcpu.kernels.top_k.greatest import LineRange, flushes_subnormals, greatest_line
from dmlcpu.kernels.top_k.groups import GROUP, Sequence, append_group, capacity, workspace_of_groups
from dmlcpu.kernels.top_k.keys import key_map_of, load_keys
from dmlcpu.kernels.top_k.lines import reach
from dmlcpu.kernels.top_k.work import WORK, Problem, start_of, workspace_of, write_winners
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import line_of, lowest_bit
from dmlcpu.runtime.jit import device, inlined, shared
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.variants import specialized

# Prefetch distance in lines: processors do not prefetch so far ahead, and memory would idle during the selection.
# Measured on a Xeon with VNNI, 1,000 x 10,000 float32, one thread, us a row: none 3.8, 64 lines 2.7, 128 lines 2.5, 256
# lines 2.15, 384 lines 2.06. On two threads 128 and 256 are alike, and 64-bit types, whose lines are twice as long, are
# faster with 128. Each line that is read prefetches one: a tile's prefetches at once took 1.5 times as long (Zen 4, 43
# MB; there no prefetch at all would be faster by another tenth).
PREFETCH = 128


def supports(problem: Problem) -> bool:
    """Return whether the kernel can do this."""
    return problem.step == 1 and problem.n >= GROUP * problem.k


@shared
def workspace(n: int, k: int, lanes: int) -> tuple[int, int]:
    """Return how many keys and positions each share needs."""
    # Elements that do not fill a tile are groups of one.
    return workspace_of_groups(k, n // GROUP + GROUP * lanes)


@kernel
def tournament(part, parts, x, values, indices, works, scratch):
    """Select in a share of the sequences, each contiguous (x.step is 1)."""
    work = record_at(works, 0, WORK)
    n, k, key_map = work.n, work.k, key_map_of(x, work.key_map)
    winners = workspace_of(part, parts, x, work, scratch)
    first, last = share(part, parts, work.rows)
    for row in range(first, last):
        sequence = Sequence(x, start_of(work, work.x, row), work.x.step, n)
        maxima = group_maxima(sequence, key_map, winners.keys[k + capacity(k) :])
        select(sequence, k, key_map, maxima, winners)
        write_winners(x, sequence.start, work, row, winners.positions, values, indices)


@inlined
def group_maxima(sequence, key_map, maxima):
    """Write the greatest key of each group of a sequence, tile by tile; return the written part of maxima."""
    x, start, _, n = sequence
    lanes = line_of(x)
    tiles, needs_keys = n // (lanes * GROUP), flushes_subnormals(x, key_map.flip)
    for tile in range(tiles):
        begin = start + tile * lanes * GROUP
        lines = LineRange(x, begin, lanes, begin + lanes * GROUP, PREFETCH * lanes)
        needs_keys = greatest_line(lines, key_map, needs_keys, maxima, tile * lanes)
    done = tiles * lanes * GROUP
    load_keys(x, start + done, 1, n - done, key_map, maxima[tiles * lanes :])
    return maxima[: tiles * lanes + n - done]


@inlined
def append_groups(sequence, key_map, maxima, first, reached, least, candidates, found):
    """Append the elements that reach a bound, of all groups from `first` on whose bit is set; see groups.py."""
    lanes, none = line_of(sequence.x), np.uint64(0)
    in_tiles = sequence.n // (lanes * GROUP) * lanes
    if first >= in_tiles:  # the maxima are the elements themselves
        position = sequence.n - maxima.size + first
        return append(maxima, first, reached, position, candidates, found), none
    if reached & (reached - np.uint64(1)) == 0:  # one group, as in most tiles when k is small
        position = first * GROUP + lowest_bit(reached)
        return append_group(sequence, position, lanes, key_map, least, candidates, found), none
    return append_tile(sequence, first * GROUP, key_map, least, candidates, found), none


@device
def append_tile(sequence, position, key_map, least, candidates, found):
    """Append the elements of the tile at `position` that reach a bound."""
    keys, lanes, begin = candidates.keys, line_of(sequence.x), found  # a tile fits after the candidates found
    load_keys(sequence.x, sequence.start + position, 1, lanes * GROUP, key_map, keys[begin:])
    for line in range(0, lanes * GROUP, lanes):
        found = append(keys, begin + line, reach(keys, begin + line, least), position + line, candidates, found)
    return found


@device
def append(line, index, bits, position, candidates, found):
    """Append the elements from line[index] on whose bit is set. position: of the first.

    The line may be part of the candidates' own keys, after the candidates found.
    """
    while bits != 0:
        lane = lowest_bit(bits)
        bits &= bits - np.uint64(1)
        candidates.keys[found] = line[index + lane]
        candidates.positions[found] = position + lane
        found += 1
    return found


select = specialized(groups.select, append_groups=append_groups)
