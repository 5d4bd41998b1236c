"""The validating pass: index tuples become positions in the indexed space, or the first bad one is reported."""

import numpy as np

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.scatter_nd.brief import positions_of, unpack_tuples
from dmlcpu.runtime.jit import device, kernel

RAISE, DROP, CLIP = 0, 1, 2
GOOD = -1  # reported for a share of the tuples that are all in range
DROPPED = -1  # the position of an update that is skipped


@device
def resolve_tuples(first, last, indices, start, step, grid, sizes, mode, positions):
    """Resolve tuples first, ..., last - 1; return where the first bad coordinate lies (tuple * T + t), or GOOD."""
    coordinates = sizes.size
    for i in range(first, last):
        base = start + offset(grid, 1, i)
        position = np.int64(0)
        dropped = False
        for t in range(coordinates):
            size = sizes[t]
            raw = indices[base + t * step]
            index = np.int64(raw)
            if raw > 0 and index < 0:  # a uint64 above 2**63 - 1 is too large, not negative
                index = size
            elif index < 0:
                index += size
            if index < 0 or index >= size:
                if mode == RAISE:
                    return i * coordinates + t
                dropped = mode == DROP or dropped
                index = min(max(index, np.int64(0)), size - 1)
            position = position * size + index
        positions[i] = DROPPED if dropped else position
    return GOOD


@kernel
def resolve(part, parts, indices, brief, scratch):
    """Resolve a share of the tuples to positions; what `resolve_tuples` returns goes to the cell `part` behind them.

    indices: words of any index type; brief, scratch: see brief.py.
    """
    start, step, mode, sizes, tuples = unpack_tuples(brief)
    positions = positions_of(brief, scratch)
    count = positions.size
    scratch[count + part] = resolve_tuples(part * count // parts, (part + 1) * count // parts,
                                           indices, start, step, tuples, sizes, mode, positions)  # fmt: skip
