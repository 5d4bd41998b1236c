"""The pass that finds whether every row of packed indices repeats one index."""

from dmlcpu.kernels.elements.work import WORK
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@kernel
def repeats(part, parts, indices, works, scratch):
    """Report in scratch[part] whether any row of a share has different indices. indices: as uint32."""
    work = record_at(works, 0, WORK)
    width, length, differs = 1 + work.is_wide, work.repeated.length, 0
    first, last = share(part, parts, work.repeated.rows)
    for row in range(first, last):
        words = indices[row * length : (row + 1) * length]
        others, bits = words[width:], 0
        for i in range(length - width):
            bits |= words[i] ^ others[i]
        if bits:
            differs = 1
            break
    scratch[part] = differs
