"""Arrays that need not be in memory: what operators read and write a region at a time."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmlcpu.common.arguments import Array

# A slice of step 1 for each dimension, with 0 <= start <= stop <= size.
Region = tuple[slice, ...]


class Tensor(NamedTuple):
    """What is known of an array before it is there."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take."""
        return math.prod(self.shape) * self.dtype.itemsize


class Estimate(NamedTuple):
    """What is told of a call before any of its large arguments is read."""

    results: Mapping[str, Tensor | None]  # None: only the run tells
    memory: int  # bytes that it takes in one piece at its peak: arguments, results and workspace
    least: Callable[[], int]  # which takes longer to find than all the rest
    kernel: str  # that it runs with in one piece

    @property
    def least_memory(self) -> int:
        """The fewest bytes that it can do with, in blocks."""
        return self.least()


class Stopped(Exception):  # noqa: N818 - no error: somebody asked for it
    """Work was ended before it was done, as somebody asked for it."""


class Source(Protocol):
    """An array that is read a region at a time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements, in native byte order."""

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        """Return the elements of a region, by default of all; `into`: a C-contiguous array of its shape to use.

        Several threads may call it at once.
        """


class Sink(Protocol):
    """An array that is written a region at a time; every element once."""

    def write(self, region: Region, block: Array) -> None:
        """Write the elements of a region."""
