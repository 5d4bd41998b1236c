"""Arrays that need not be in memory: operators read and write them a region at a time."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np

from dmlcpu.common.arguments import Array

# A slice of step 1 for each dimension, with 0 <= start <= stop <= size.
Region = tuple[slice, ...]


class Tensor(NamedTuple):
    """The shape and type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


class Estimate(NamedTuple):
    """The results, memory and kernel of a call, found before its large arguments are read."""

    results: Mapping[str, Tensor | None]  # None: known only after the run
    memory: int  # peak bytes of the call in one piece: arguments, results and workspace
    least: Callable[[], int]  # bytes that the call needs in blocks: slower to compute than all other fields
    kernel: str  # of the call in one piece


class Stopped(Exception):  # noqa: N818 - no error: it was requested
    """Work was stopped on request before it was done."""


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
    """An array that is written a region at a time, every element once."""

    def write(self, region: Region, block: Array) -> None:
        """Write the elements of a region."""


def is_source(value: Any) -> TypeGuard[Source]:
    """Return whether an argument is a Source, which is read a region at a time."""
    return not isinstance(value, np.ndarray) and hasattr(value, "read") and hasattr(value, "shape")


def bind(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments but `out`, in the function's order."""
    signature, defaults = _signature(function)
    bound = {**defaults, **arguments}
    if len(bound) > len(defaults) or any(value is inspect.Parameter.empty for value in bound.values()):
        try:
            signature.bind(**arguments)  # raises the error
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
    return bound


@functools.cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return the signature and the defaults of an operator's function; `inspect.bind` is much slower.

    Without `out`, and without the others that a sort refuses.
    """
    signature = inspect.signature(function)
    named = [each for each in signature.parameters.values() if each.name not in ("out", "others")]
    return signature.replace(parameters=named), {each.name: each.default for each in named}
