"""A PyTorch operator that these kernels replace."""

import importlib.util
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dmlcpu.common.arguments import Array, bfloat16_of_tensors
from dmlcpu.runtime.memory import spans_meet

Kind = tuple[str, ...]  # the properties of a call that its speed depends on: type, form and others


class Override(NamedTuple):
    """One operator. Functions take the arguments of a call, unless a comment says otherwise."""

    name: str  # in `enable` and `report`
    operator: str  # PyTorch's full name of the overload
    # The work in elements that are read, written or added. Its arguments: the first one, and a tuple of the others.
    size: Callable[[Any, tuple[Any, ...]], int]
    least: int  # PyTorch is faster below this size on any machine: a call of these functions takes 8 microseconds
    refusal: Callable[..., str]  # the reason not to take a call, or ""; `run` makes the slow checks
    kind: Callable[..., Kind]  # a size threshold is measured for each kind
    sample: Callable[[Kind, int], tuple[Any, ...]]  # arguments of a kind and a size, to be measured
    rungs: tuple[int, ...]  # sizes that are measured
    run: Callable[..., Any]  # raises PassOnError, before it writes, if a slow check fails
    aside: Callable[..., Any] | None  # PyTorch's kernel, by another overload; see switches.py


class PassOnError(Exception):
    """The reason not to take a call, found by `run`."""


# Reasons to pass a call on. Bad arguments are passed on as ARGUMENTS: PyTorch raises its own errors about them.
SMALL = "small"
TYPE = "type"
ARGUMENTS = "arguments"
LAYOUT = "layout"
SHARED = "memory is shared"
SUBCLASS = "subclass of Tensor"
NO_COMPILATION = "compilation is switched off"

_NUMBERS = frozenset([torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
ORDERED = _NUMBERS | {torch.float16}
if importlib.util.find_spec("ml_dtypes") is not None:  # the only source of the type for NumPy
    ORDERED |= {torch.bfloat16}
# PyTorch adds 16-bit floats in float32 and rounds once; these kernels round each sum, so PyTorch adds them.
_ADDED = _NUMBERS | {torch.bool, torch.complex64, torch.complex128}
ASSIGNED = ORDERED | _ADDED
# By reduction of a scatter, the types that are taken.
REDUCED = {"none": ASSIGNED, "add": _ADDED, "mul": _NUMBERS, "max": ORDERED, "min": ORDERED}
TYPE_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in ASSIGNED}
EXACT_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})  # subclasses may override any method


class _Exported:
    """The memory of a tensor for np.from_dlpack. After Tensor.numpy, its storage could not be resized."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return torch._C._to_dlpack_versioned(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # a CPU


# Before NumPy 2.1, and with PyTorch's own function, arrays from DLPack are read-only.
_HAS_DLPACK_1 = hasattr(torch._C, "_to_dlpack_versioned") and np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def as_array(tensor: Tensor) -> Array:
    """Return an array over the memory of a CPU tensor, of any strides."""
    if tensor.dtype is torch.bfloat16:
        return as_array(tensor.view(torch.int16)).view(bfloat16_of_tensors())
    return np.from_dlpack(_Exported(tensor)) if _HAS_DLPACK_1 else tensor.detach().numpy()


def as_operand(tensor: Tensor) -> Array:
    """Return a tensor as an array that is read, or pass the call on."""
    if type(tensor) not in EXACT_TYPES:
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


_DISTINCT = 1 << 20


def numbers(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Return random numbers that every type holds. Large arrays repeat: drawing them takes longer than the calls."""
    few = np.random.default_rng(1).integers(0, 127, min(math.prod(shape), _DISTINCT), dtype=np.int8)
    return torch.from_numpy(np.resize(few, shape)).to(getattr(torch, dtype))


# Forms of calls along a dimension.
_SHORT_ROW = 256


def form_along(x: Tensor, dim: int) -> str:
    """Return how the elements of x lie that a call along a dimension takes together."""
    n = x.shape[dim]
    if x.stride(dim) > 1:
        return "strided"
    if n == x.numel():
        return "one row"
    return "short rows" if n < _SHORT_ROW else "rows"


def refuse_along(x: Tensor, dim: int | None) -> str:
    """Return why elements cannot be ordered along a dimension, or all of them, if it is None."""
    if x.dtype not in ORDERED:
        return TYPE
    return "" if dim is None or -x.ndim <= dim < x.ndim else ARGUMENTS


def sample_along(form: str, size: int, dtype: str) -> Tensor:
    """Return random numbers of a form along the last dimension."""
    n = {"one row": size, "short rows": 64}.get(form, 1024)
    return numbers((n, size // n), dtype).T if form == "strided" else numbers((size // n, n), dtype)
