"""PyTorch, by itself and with its operators on dmlcpu's kernels."""

import contextlib

import numpy as np

from . import THREADS
from .packages import package


@contextlib.contextmanager
def switched():
    """Let PyTorch's operators run on dmlcpu's kernels for a while."""
    package("torch")
    from dmlcpu.interop import torch

    torch.enable()
    try:
        yield
    finally:
        torch.disable()


def torch_package():
    torch = package("torch")
    torch.set_num_threads(THREADS)
    return torch


def tensor(array):
    """Return an array as a tensor that shares its memory."""
    torch = torch_package()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
