"""Kernels that read and copy at the speed of the memory."""

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.vectors import WORD
from dmlcpu.kernels.scatter_nd.rows import fence, stream
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import LINE_CELLS

READ_CELLS = 4 * LINE_CELLS  # int64 that an iteration reads


@emitted
def bits_of(builder, array, first, count) -> types.int64:
    """Read array[first:][:count], int64, and return the or of some bits. count: a multiple of READ_CELLS."""
    zero = ir.Constant(ir.VectorType(array.element, LINE_CELLS), None)
    totals = [cgutils.alloca_once_value(builder, zero) for _ in range(READ_CELLS // LINE_CELLS)]
    with cgutils.for_range_slice(builder, first.type(0), count, first.type(READ_CELLS), inc=True) as (index, _):
        for number, total in enumerate(totals):
            place = builder.add(builder.add(first, index), first.type(number * LINE_CELLS))
            builder.store(builder.or_(builder.load(total), array.load(place, LINE_CELLS)), total)
    found = builder.load(totals[0])
    for total in totals[1:]:
        found = builder.or_(found, builder.load(total))
    return builder.extract_element(found, WORD(0))


@kernel
def read(part, parts, x, found):
    """Read whole blocks of x, int64; writing to found, a line for each part, keeps LLVM from omitting that."""
    first, last = share(part, parts, x.size // READ_CELLS)
    found[part * LINE_CELLS] = bits_of(x, first * READ_CELLS, (last - first) * READ_CELLS)


@kernel
def copy(part, parts, x, y):
    """Copy x to y past the caches, like long copies; both are whole blocks of int64, and y starts at a cache line."""
    first, last = share(part, parts, x.size // READ_CELLS)
    stream(x, first * READ_CELLS, y, first * READ_CELLS, (last - first) * READ_CELLS)
    fence()
