"""The copy of the input, cut into shares so that each thread first touches the pages it copies."""

from numba import prange

from dmlcpu.runtime.jit import kernel


@kernel
def copy(parts, source, target):
    """Copy bytes. source, target: (n,) uint8."""
    n = source.size
    for part in prange(parts):
        first, last = part * n // parts, (part + 1) * n // parts
        target[first:last] = source[first:last]
