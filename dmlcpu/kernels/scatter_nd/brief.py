"""What the scatter_nd kernels are told; see kernels/brief.py."""

from typing import NamedTuple

from dmlcpu.kernels import brief as briefs
from dmlcpu.kernels.brief import Brief, section
from dmlcpu.kernels.grid import Grid, flatten
from dmlcpu.runtime.jit import viewer

BLOCK = 256  # updates that a share looks at together


class Layout(NamedTuple):
    """Where things lie: the dimensions that are indexed, and grids."""

    sizes: tuple[int, ...]  # of the indexed dimensions
    steps: tuple[int, ...]  # along them in out
    tuples: Grid  # strides of indices
    sources: Grid  # strides of updates from one slice to the next
    slices: Grid  # runs within a slice: strides of out and updates


def make_brief(tuples: tuple[int, ...], updates: tuple[int, ...], layout: Layout) -> Brief:
    """Return the brief: what `unpack_tuples` names and how many there are, what `unpack_updates` names, and grids."""
    sizes, steps, *grids = layout
    return briefs.make_brief(tuples, updates, sizes, steps, *map(flatten, grids))


@viewer
def places_of(brief, scratch):
    """Return the scratch for the place of each update in out."""
    return scratch[: section(brief, 0)[4]]


@viewer
def unpack_tuples(brief):
    """Return where the tuples start, the step along one, what to do about bad ones, where out starts, the sizes,
    the steps in out, and the tuples' grid.
    """  # noqa: D205
    numbers = section(brief, 0)
    return numbers[0], numbers[1], numbers[2], numbers[3], section(brief, 2), section(brief, 3), section(brief, 4)


@viewer
def unpack_updates(brief):
    """Return what `apply` is told."""
    numbers = section(brief, 1)
    updates_start, n, o_step, u_step, operation, half = (
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]
    )  # fmt: skip
    regions, unit, lists = numbers[6], numbers[7], numbers[8]
    return (updates_start, n, o_step, u_step, operation, half, regions, unit, lists,
            section(brief, 5), section(brief, 6))  # fmt: skip
