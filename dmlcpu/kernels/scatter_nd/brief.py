"""What the scatter_nd kernels are told; see kernels/brief.py."""

from typing import NamedTuple

from dmlcpu.kernels import brief as briefs
from dmlcpu.kernels.brief import Brief, section
from dmlcpu.kernels.grid import Grid, flatten
from dmlcpu.runtime.jit import viewer

BLOCK = 256  # updates that a share looks at together
# Cells of what a share keeps of a block: places, those of its own updates, their numbers, and as many values. What is
# behind keeps the shares of two threads apart.
BLOCK_CELLS = 4 * BLOCK + 16


class Layout(NamedTuple):
    """Where things lie: the dimensions that are indexed, and grids."""

    sizes: tuple[int, ...]  # of the indexed dimensions
    steps: tuple[int, ...]  # along them in out
    tuples: Grid  # strides of indices
    sources: Grid  # strides of updates from one slice to the next
    slices: Grid  # runs within a slice: strides of out and updates


def make_brief(tuples: tuple[int, ...], updates: tuple[int, ...], buckets: tuple[int, ...], layout: Layout) -> Brief:
    """Return the brief: what `unpack_tuples`, `unpack_updates` and `unpack_buckets` name, and grids."""
    sizes, steps, *grids = layout
    return briefs.make_brief(tuples, updates, buckets, sizes, steps, *map(flatten, grids))


@viewer
def unpack_tuples(brief):
    """Return where the tuples start, the step along one, whether indices have 64 bits and a sign, what to do about bad
    ones, where out starts, how many tuples there are, the sizes, the steps in out, and the tuples' grid.
    """  # noqa: D205
    numbers = section(brief, 0)
    return (numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6],
            section(brief, 3), section(brief, 4), section(brief, 5))  # fmt: skip


@viewer
def unpack_updates(brief):
    """Return where the updates start, the run of a slice, how it is applied, the regions, whether to look for bad
    indices, and grids.
    """  # noqa: D205
    numbers = section(brief, 1)
    start, n, o_step, u_step = numbers[0], numbers[1], numbers[2], numbers[3]
    operation, half, regions, unit, checks = numbers[4], numbers[5], numbers[6], numbers[7], numbers[8]
    return start, n, o_step, u_step, operation, half, regions, unit, checks, section(brief, 6), section(brief, 7)


@viewer
def unpack_buckets(brief):
    """Return how many buckets there are, the bits of a place in one, the shares that fill them, and the words of out;
    and where in the scratch their tables lie, the ticket, and pairs of a place and a value, near ones and all.
    """  # noqa: D205
    numbers = section(brief, 2)
    return numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7]


@viewer
def block_of(part, parts, scratch):
    """Return a share's scratch for a block: places, its own places, their numbers, cells for values."""
    begin = parts + part * BLOCK_CELLS
    own, numbers, values = begin + BLOCK, begin + 2 * BLOCK, begin + 3 * BLOCK
    return scratch[begin:own], scratch[own:numbers], scratch[numbers:values], scratch[values : values + BLOCK]


@viewer
def table_of(part, buckets, tables, scratch):
    """Return a share's scratch for buckets: how many updates it has for each, where they must end, and where they do.

    One more is for updates that are skipped.
    """
    begin, row = tables + part * 3 * (buckets + 1), buckets + 1
    return (
        scratch[begin : begin + row],
        scratch[begin + row : begin + 2 * row],
        scratch[begin + 2 * row : begin + 3 * row],
    )
