"""Stand-ins for Sources, with which the checks of a call run before anything is read."""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeGuard

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Source
from dmlcpu.runtime.memory import packed_strides


def stand_in(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array that takes no memory, and cannot be written to."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def is_source(value: Any) -> TypeGuard[Source]:
    """Return whether an argument is a Source, which is read a region at a time."""
    return not isinstance(value, np.ndarray) and hasattr(value, "read") and hasattr(value, "shape")


def bind(function: Callable[..., Any], arguments: dict[str, Any], sources: Collection[str]) -> dict[str, Any]:
    """Return all arguments but `out`, in the function's order; a Source becomes a stand-in without memory."""
    signature, defaults = _signature(function)
    bound = {**defaults, **arguments}
    if len(bound) > len(defaults) or any(value is inspect.Parameter.empty for value in bound.values()):
        try:
            signature.bind(**arguments)  # says what is wrong
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
    for name in sources:
        value = bound[name]
        if is_source(value):
            bound[name] = stand_in(value.shape, value.dtype)
    return bound


@functools.cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return the signature and the defaults of an operator's function, without `out`; `inspect.bind` is much slower."""
    signature = inspect.signature(function)
    named = [each for each in signature.parameters.values() if each.name != "out"]
    return signature.replace(parameters=named), {each.name: each.default for each in named}


def strides_of(array: Array) -> tuple[int, ...]:
    """Return the strides of an array; for a stand-in, those of the array that is read."""
    is_stand_in = array.size > 1 and not any(array.strides)
    return packed_strides(array.shape, array.itemsize) if is_stand_in else array.strides
