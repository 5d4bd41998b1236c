"""Tensors as arrays over the same memory."""

import importlib.util

import numpy as np
import torch

from dmlcpu.common.arguments import Array

# torch.bfloat16 is a type that NumPy has from ml_dtypes only.
HAS_BFLOAT16 = importlib.util.find_spec("ml_dtypes") is not None

# Of subclasses, methods may do anything.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def as_array(tensor: torch.Tensor) -> Array:
    """Return an array over the memory of a CPU tensor, of any strides."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is not torch.bfloat16:
        array: Array = tensor.numpy()
        return array
    import ml_dtypes

    bits: Array = tensor.view(torch.int16).numpy()
    return bits.view(np.dtype(ml_dtypes.bfloat16))
