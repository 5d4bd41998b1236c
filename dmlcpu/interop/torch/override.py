"""An operator of PyTorch that these kernels take over."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dmlcpu.common.arguments import Array
from dmlcpu.interop.torch.tensors import HAS_BFLOAT16, PLAIN, as_array
from dmlcpu.runtime.memory import spans_meet

Kind = tuple[str, ...]  # of calls: type, form and what else decides how fast they are


class Override(NamedTuple):
    """One operator. Functions take the arguments of a call, unless a comment says otherwise."""

    name: str  # as people type it
    operator: str  # PyTorch's full name of the overload
    # About how much work a call is: what is read, written or added; of the first argument, and a tuple of the others.
    size: Callable[[Any, tuple[Any, ...]], int]
    least: int  # size; PyTorch is faster below on any machine, as a call of these functions takes 8 microseconds
    refusal: Callable[..., str]  # why a call is not taken, or nothing; `run` does the checks that take long
    # Calls of one kind are worth it from some size on, which is measured; a sample is what it is measured with.
    kind: Callable[..., Kind]
    sample: Callable[[Kind, int], tuple[Any, ...]]  # arguments of a kind and a size
    rungs: tuple[int, ...]  # sizes that are measured
    run: Callable[..., Any]  # raises PassOnError, before it writes, if the call cannot be taken after all
    aside: Callable[..., Any] | None  # PyTorch's kernel, by another overload; see switches.py


class PassOnError(Exception):
    """Why a call is not taken after all."""


# Why a call is passed on. What PyTorch refuses is among ARGUMENTS, so that it is PyTorch that says so.
SMALL = "small"
TYPE = "type"
ARGUMENTS = "arguments"
LAYOUT = "layout"
SHARED = "memory is shared"
SUBCLASS = "subclass of Tensor"
NO_COMPILATION = "compilation is switched off"

_HALVES = [torch.float16, torch.bfloat16] if HAS_BFLOAT16 else [torch.float16]
# PyTorch adds halves in float32 and rounds once; these kernels round each sum, so they do not add them here.
SUMMED = frozenset([torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
ORDERED = frozenset([*SUMMED, *_HALVES])
ASSIGNED = frozenset([*ORDERED, torch.bool, torch.complex64, torch.complex128])
NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in ASSIGNED}


def as_operand(tensor: Tensor) -> Array:
    """Return a tensor as an array that is read, or pass the call on."""
    if type(tensor) not in PLAIN:
        raise PassOnError(SUBCLASS)
    return as_array(tensor)


def as_target(tensor: Tensor, *others: Array) -> Array:
    """Return a tensor as an array that is written to while others are read, or pass the call on."""
    if not tensor.is_contiguous():
        raise PassOnError(LAYOUT)
    array = as_array(tensor)
    if any(spans_meet(array, other) for other in others):
        raise PassOnError(SHARED)
    return array


def numbers(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Return numbers in random order that all types hold."""
    small = np.random.default_rng(1).integers(0, 127, shape, dtype=np.int8)
    return torch.from_numpy(small).to(getattr(torch, dtype))
