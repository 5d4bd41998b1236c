"""The pass that finds whether an index is out of range before anything is written."""

from dmlcpu.kernels.elements.work import PIECE, WORK
from dmlcpu.kernels.scatter_nd.offsets import LANES, Indices, is_any_out, load_index
from dmlcpu.kernels.walk import offset, share
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def validate(part, parts, indices, works, scratch):
    """Report in scratch[part] whether a share of the indices has one that is out of range. indices: as uint32."""
    work = record_at(works, 0, WORK)
    checked, bad = work.checked, 0
    pieces = -(-checked.length // PIECE)
    first, last = share(part, parts, checked.runs * pieces)
    for number in range(first, last):
        run = number // pieces
        begin = (number - run * pieces) * PIECE
        place = work.indices.start + offset(checked.walk, checked.strides, run) + begin * checked.step
        bad |= has_bad(indices, place, min(PIECE, checked.length - begin), work)
        if bad:
            break
    scratch[part] = bad


@device
def has_bad(indices, first, count, work):
    """Return whether any of the indices from indices[first] on is out of range."""
    step, size, is_wide, is_signed = work.checked.step, work.size, work.is_wide, work.is_signed
    whole, bad = count // LANES * LANES, 0
    if whole > 0:
        bad = is_any_out(Indices(indices, first, step, is_wide, is_signed, size), whole)
    lowest = -size if is_signed else 0
    for k in range(whole, count):
        index = load_index(indices, first + k * step, is_wide, is_signed)
        bad |= index < lowest or index >= size
    return bad
