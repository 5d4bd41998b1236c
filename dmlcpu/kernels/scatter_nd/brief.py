"""What the scatter_nd kernels are told; see kernels/brief.py."""

from typing import NamedTuple

from dmlcpu.kernels import brief as briefs
from dmlcpu.kernels.brief import Brief, section
from dmlcpu.kernels.grid import Grid, flatten
from dmlcpu.runtime.jit import viewer


class Layout(NamedTuple):
    """Where things lie: the dimensions that are indexed, and grids."""

    sizes: tuple[int, ...]  # of the indexed dimensions
    tuples: Grid  # strides of indices
    targets: Grid  # the indexed dimensions: strides of out
    sources: Grid  # strides of updates from one slice to the next
    slices: Grid  # runs within a slice: strides of out and updates


def make_brief(tuples: tuple[int, ...], updates: tuple[int, ...], layout: Layout) -> Brief:
    """Return the brief: what `unpack_tuples` names and how many there are, what `unpack_updates` names, and grids."""
    sizes, *grids = layout
    return briefs.make_brief(tuples, updates, sizes, *map(flatten, grids))


@viewer
def positions_of(brief, scratch):
    """Return the scratch for the position of each update."""
    return scratch[: section(brief, 0)[3]]


@viewer
def unpack_tuples(brief):
    """Return where the tuples start, the step along one, what to do about bad ones, the sizes and the tuples' grid."""
    numbers = section(brief, 0)
    return numbers[0], numbers[1], numbers[2], section(brief, 2), section(brief, 3)


@viewer
def unpack_updates(brief):
    """Return what `apply` is told."""
    numbers = section(brief, 1)
    out_start, updates_start, n, o_step, u_step = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    operation, half, space = numbers[5], numbers[6], numbers[7]
    targets, sources = section(brief, 4), section(brief, 5)
    slices = section(brief, 6)
    return out_start, updates_start, n, o_step, u_step, operation, half, space, targets, sources, slices
