"""The choice among the kernels of top_k, for plans and for compiled callers.

The thresholds were measured by asv_bench/thresholds.py on a Xeon with VNNI. On Zen 4, the chosen kernel is also within
a tenth of the fastest, with three exceptions: lockstep takes 1.2 to 1.7 times as long as select_sort for float32 and k
of 32 and 64, and 1.5 times as long as tournament for 256 elements and k 1; strided_insert with k 16 and 512 elements
and more takes 1.5 to 2.4 times as long as strided_tournament (with AVX2 code 1.2 to 1.7 times; half as long for 8,000).
"""

from llvmlite import ir
from numba.core import types

from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.isa import target_features
from dmlcpu.runtime.jit import shared

NAMES = ("lockstep", "tournament", "strided_insert", "strided_tournament", "select_sort")
LOCKSTEP, TOURNAMENT, STRIDED_INSERT, STRIDED_TOURNAMENT, SELECT_SORT = range(len(NAMES))

INSERT_K = 16  # at most: winners in a vector lane
INSERT_N = 10_000  # at most: elements of a column
INSERT_COLUMNS = 8  # at least: adjacent columns, or most lanes have none
LOCKSTEP_N = 256  # at most: its positions are as wide as keys, which may have 8 bits
ELEMENTS_A_WINNER = 31  # at least: with fewer, too many groups must be read again


def lockstep_work(width: int) -> int:
    """Return up to how many elements of a sequence, times k, lockstep is fastest. width: bytes of an element.

    Wide elements fill several registers, and AVX2 has no unsigned comparisons. Where lockstep and select_sort take the
    same time on Zen 4: 4 bytes 5,000 (AVX-512) and 1,300 (AVX2), 8 bytes 1,300 and 400.
    """
    has_avx512 = "avx512vl" in target_features()
    if width == 8:
        return 2048 if has_avx512 else 400
    return 1280 if width == 4 and not has_avx512 else 8192


@emitted
def lockstep_work_of(_builder, array) -> types.intp:
    """Return the `lockstep_work` for elements of an array, as a constant."""
    return ir.IntType(64)(lockstep_work(array.nbytes))


@shared
def choose(rows: int, n: int, k: int, step: int, columns: int, most_lockstep_work: int) -> int:
    """Return which of NAMES is fastest on one thread; the first arguments are a Problem's."""
    if columns >= INSERT_COLUMNS and k <= INSERT_K and n <= INSERT_N:
        return STRIDED_INSERT
    if rows > 1 and n <= LOCKSTEP_N and n * k <= most_lockstep_work:
        return LOCKSTEP
    if n < ELEMENTS_A_WINNER * k:
        return SELECT_SORT
    if columns > 1:
        return STRIDED_TOURNAMENT
    return TOURNAMENT if step == 1 else SELECT_SORT
