"""Tensors as arrays over the same memory."""

import importlib.util

import torch

from dmlcpu.common.arguments import Array, by_bits

# torch.bfloat16 is a type that NumPy has from ml_dtypes only.
HAS_BFLOAT16 = importlib.util.find_spec("ml_dtypes") is not None

# Methods of subclasses may do anything.
EXACT_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})


def as_array(tensor: torch.Tensor) -> Array:
    """Return an array over the memory of a CPU tensor, of any strides."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.numpy() if tensor.dtype is not torch.bfloat16 else by_bits(tensor)


def as_tensor(array: Array) -> torch.Tensor:
    """Return a tensor over the memory of an array."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("i2")).view(torch.bfloat16)
    return torch.from_numpy(array)
