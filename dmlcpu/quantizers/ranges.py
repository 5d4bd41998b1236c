"""Integers of an array that is read twice, a block at a time: for its ranges, and to quantize it by them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import cut_within, extent, read_blocks, regions_of
from dmlcpu.common.forms import Form, Shape, form_of
from dmlcpu.common.regions import Region, Source, Tensor
from dmlcpu.quantizers.arguments import FLOAT, QUANTIZE, Call
from dmlcpu.quantizers.blocks import tiles_of
from dmlcpu.quantizers.dynamic import check_limits, check_range, kept_shape, limits_of, scales_of
from dmlcpu.quantizers.plan import plan, workspace_of
from dmlcpu.runtime.threads import plan_for_now

_HELD = 32  # bytes for each range: limits, scale, zero point and temporary values


class Quantized:
    """A Source of another Source's elements as integers, after `find` has found scales and zero points.

    axis: its elements share a range, counted from the first; None: all elements share one.
    """

    def __init__(self, operator: str, x: Source, axis: int | None, dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = x.shape, dtype
        kept = kept_shape(x.shape, axis)
        self.scale, self.zero_point = np.ones(kept, FLOAT), np.zeros(kept, dtype)
        self.held = _HELD * math.prod(kept)
        self._operator, self._x, self._axis = operator, x, axis

    def find(self, memory: int, stopping: Callable[[], bool]) -> None:
        """Find scales and zero points within `memory` bytes, or refuse elements without a range."""
        operator, axis = self._operator, self._axis
        limits = np.zeros((*self.scale.shape, 2), FLOAT)
        tile = cut_within(operator, memory, self.tiles(), self.needs)
        for region, block in read_blocks(self._x, regions_of(self.shape, tile), stopping):
            found = limits_of(block, axis)
            if not np.isfinite(found).all():
                check_range(block, axis, operator, "x", tuple(each.start for each in region))
            mine = limits[() if axis is None else _part(self.scale.shape, region)]
            np.minimum(mine[..., 0], found[..., 0], out=mine[..., 0])
            np.maximum(mine[..., 1], found[..., 1], out=mine[..., 1])
        check_limits(limits, axis, operator, "x")
        self.scale[...], self.zero_point[...] = scales_of(limits, self.dtype)

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        """Return the integers of a region."""
        region = tuple(slice(0, n) for n in self.shape) if region is None else region
        y = np.empty(extent(region), self.dtype) if into is None else into
        self.quantize(region, self._x.read(region), y)
        return y

    def quantize(self, region: Region, x: Array, y: Array) -> None:
        """Write the integers of a region; x: its elements."""
        if 0 in x.shape:
            return
        wide = self.scale.shape or (1,) * x.ndim
        place: Any = ..., *_part(wide, region)  # `...` keeps an array of no dimensions
        scale, zero = (each.reshape(wide)[place] for each in (self.scale, self.zero_point))
        of_x, of_scale, of_zero = [Form(*form_of(each)) for each in (x, scale, zero)]
        call = Call(QUANTIZE, of_x, of_scale, of_zero, zero=0, dtype=self.dtype, is_checked=True)
        plan_for_now(plan, (call, None)).run(x, scale, zero, y)

    def tiles(self) -> Any:
        """Return the shapes of blocks, the fastest one first."""
        return tiles_of(Form(self.shape, self._x.dtype))

    def needs(self, tile: Shape) -> int:
        """Return the bytes of two blocks of x, one as float32, of its integers or ranges, and of what is held."""
        of_x, floats, y = (Tensor(tile, each).nbytes for each in (self._x.dtype, FLOAT, self.dtype))
        ranges = 1 if self._axis is None else math.prod(tile) // max(1, tile[self._axis])
        return 2 * of_x + floats + max(y, _HELD * ranges) + self.held + workspace_of()


def _part(shape: Shape, region: Region) -> Region:
    """Return the position of the scales of a region."""
    return tuple(slice(0, 1) if n == 1 else each for n, each in zip(shape, region, strict=True))
