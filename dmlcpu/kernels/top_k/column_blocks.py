"""Cache blocking along an axis that is not the last: sequences that are adjacent in x form blocks of columns.

The last block of a line of x may be narrower than the others.
"""

from dmlcpu.runtime.jit import device


@device
def block_count(work, most):
    """Return how many blocks of at most `most` columns all sequences make."""
    return work.rows // work.columns * ((work.columns + most - 1) // most)


@device
def block_at(work, most, number):
    """Return the first sequence of a block, and the number of its sequences."""
    a_line = (work.columns + most - 1) // most
    column = number % a_line * most
    return number // a_line * work.columns + column, min(most, work.columns - column)
