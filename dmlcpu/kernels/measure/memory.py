"""Reading and copying at the speed of the memory."""

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.vectors import WORD
from dmlcpu.kernels.measure.multiply import LINE
from dmlcpu.kernels.scatter_nd.copies import fence, stream
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.kernel import kernel

BLOCK = 4 * LINE  # int64 that are read in a turn


@emitted
def bits_of(builder, array, first, count) -> types.int64:
    """Return an or of some bits of array[first:][:count], int64; all are read. count: a multiple of BLOCK."""
    zero = ir.Constant(ir.VectorType(array.element, LINE), None)
    totals = [cgutils.alloca_once_value(builder, zero) for _ in range(BLOCK // LINE)]
    with cgutils.for_range_slice(builder, first.type(0), count, first.type(BLOCK), inc=True) as (index, _):
        for number, total in enumerate(totals):
            place = builder.add(builder.add(first, index), first.type(number * LINE))
            builder.store(builder.or_(builder.load(total), array.load(place, LINE)), total)
    found = builder.load(totals[0])
    for total in totals[1:]:
        found = builder.or_(found, builder.load(total))
    return builder.extract_element(found, WORD(0))


@kernel
def read(part, parts, x, found):
    """Read x, int64, of whole blocks; found, a line for each part, keeps LLVM from leaving that out."""
    first, last = share(part, parts, x.size // BLOCK)
    found[part * LINE] = bits_of(x, first * BLOCK, (last - first) * BLOCK)


@kernel
def copy(part, parts, x, y):
    """Copy x to y past the caches, as long copies are; both are int64, of whole blocks, and y is on a cache line."""
    first, last = share(part, parts, x.size // BLOCK)
    stream(x, first * BLOCK, y, first * BLOCK, (last - first) * BLOCK)
    fence()
