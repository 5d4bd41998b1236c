"""Index tuples become offsets in the output.

Offsets are not kept, because linearizing a block of tuples again, in vectors, takes no longer than reading its offsets.
"""

from dmlcpu.kernels.scatter_nd.offsets import LANES, Indices, add_lines, load_index
from dmlcpu.kernels.scatter_nd.work import DROP, RAISE, SKIPPED, VALID
from dmlcpu.kernels.walk import offset
from dmlcpu.runtime.jit import device, inlined


@inlined
def indices_of(words, tuples, first, t):
    """Return coordinate t of the evenly spaced tuples from `first` on."""
    step = tuples.strides[0]
    start = tuples.start + first * step + t * tuples.step
    return Indices(words, start, step, tuples.is_wide, tuples.is_signed, tuples.sizes[t])


@device
def linearize(indices, tuples, first, last, mode, offsets):
    """Write the offsets of tuples first, ..., last - 1; return the place of the first bad coordinate, or VALID.

    The place of a coordinate is its tuple's number times the coordinates of a tuple, plus its number in the tuple.
    """
    done = 0
    if tuples.walk.dims == 1:  # evenly spaced: no branch within a line, unless an index is out of range
        count, bad = (last - first) // LANES * LANES, 0
        for i in range(count):
            offsets[i] = tuples.out_start
        for t in range(tuples.coordinates):
            given = indices_of(indices, tuples, first, t)
            bad |= add_lines(given, tuples.out_steps[t], offsets, count)
        done = 0 if bad else count
    return linearize_singly(indices, tuples, first + done, last, mode, offsets, done)


@device
def linearize_singly(indices, tuples, first, last, mode, offsets, at):
    """Do the same for tuples of any layout, one by one, from offsets[at] on."""
    for i in range(first, last):
        begin = tuples.start + offset(tuples.walk, tuples.strides, i)
        target = tuples.out_start
        for t in range(tuples.coordinates):
            size = tuples.sizes[t]
            index = load_index(indices, begin + t * tuples.step, tuples.is_wide, tuples.is_signed)
            if index < 0:  # counts from the end; a uint64 above 2**63 - 1 is too large, not negative
                index = index + size if tuples.is_signed else size
            is_bad = index < 0 or index >= size
            if is_bad and mode == RAISE:
                return i * tuples.coordinates + t
            if is_bad and mode == DROP:
                target = SKIPPED
                break
            target += min(max(index, 0), size - 1) * tuples.out_steps[t]
        offsets[at + i - first] = target
    return VALID
