"""The writing pass: the copy of the input, and the updates.

Each share of the work owns a region of the output and applies the updates that fall into it. Every share reads all
positions and applies its own in index order, so no element is ever touched by two threads, the last update wins, and
sums are formed in one order: the result does not depend on the number of shares.
"""

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.scatter_nd.brief import positions_of, unpack_updates
from dmlcpu.kernels.scatter_nd.combine import combine_slice
from dmlcpu.runtime.jit import device, kernel


@device
def apply_region(first, last, positions, count, out, out_start, targets, updates, updates_start, sources,
                 slices, n, o_step, u_step, operation, half):  # fmt: skip
    """Apply the updates whose position lies in first, ..., last - 1."""
    pieces = 1
    for d in range(slices[0]):
        pieces *= slices[1 + d]
    for i in range(count):
        position = positions[i]
        if position < first or position >= last:
            continue
        o = out_start + offset(targets, 1, position)
        u = updates_start + offset(sources, 1, i)
        for piece in range(pieces):
            combine_slice(out, o + offset(slices, 1, piece), o_step, updates, u + offset(slices, 2, piece), u_step,
                          n, operation, half)  # fmt: skip


@kernel
def copy(part, parts, x, out):
    """Copy a share of x to out; first touched by the thread that copies it. Both are laid out alike."""
    for i in range(part * x.size // parts, (part + 1) * x.size // parts):
        out[i] = x[i]


@kernel
def apply(part, parts, x, updates, out, brief, scratch):
    """Write the updates, each a slice, at their positions in a share of out.

    x, updates, out: elements of one type; x: empty, or the only share copies it to out first. A slice is a grid
    `slices`: (3, d) of runs of n elements, o_step apart in out and u_step apart in updates. See also brief.py.
    """
    (out_start, updates_start, n, o_step, u_step, operation, half, space,
     targets, sources, slices) = unpack_updates(brief)  # fmt: skip
    positions = positions_of(brief, scratch)
    for i in range(x.size):
        out[i] = x[i]
    apply_region(part * space // parts, (part + 1) * space // parts, positions, positions.size,
                 out, out_start, targets, updates, updates_start, sources,
                 slices, n, o_step, u_step, operation, half)  # fmt: skip
