"""PyTorch, by itself and with its operators on dmlcpu's kernels."""

import contextlib

import numpy as np

from . import THREADS
from .packages import package

OVERRIDDEN = "torch on dmlcpu"


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


def torch_top_k(case):
    torch = torch_package()
    if case.dtype in ("uint16", "uint32", "uint64"):
        raise NotImplementedError(f"torch.topk has no {case.dtype}")
    x = tensor(case.inputs())
    return lambda: torch.topk(x, case.k, case.axis)


def torch_scatter_nd(case):
    if case.index_type != "int64":
        raise NotImplementedError("torch takes int64")
    x, indices, updates = case.inputs()
    where, values = tuple(tensor(np.ascontiguousarray(column)) for column in indices.T), tensor(updates)
    y, accumulate = tensor(x), {"none": False, "add": True}[case.reduction]
    if case.in_place and accumulate and len(where) == 1:
        return lambda: y.index_add_(0, where[0], values)
    if case.in_place:
        return lambda: y.index_put_(where, values, accumulate)
    return lambda: y.index_put(where, values, accumulate)


def torch_quantized_matmul(case):
    """Call what torch.compile makes of a quantized linear layer."""
    torch = torch_package()
    if case.types[1] != "int8" or case.per_row or case.batch:
        raise NotImplementedError("torch takes one matrix of int8 weights, one scale for a, and one for y")
    inputs = case.inputs()
    a, b_scale = tensor(inputs.a), tensor(inputs.b_scale.reshape(-1))
    weights = tensor(np.ascontiguousarray(inputs.b.T))  # the layout torch keeps them in
    b_zero_point = torch.zeros(b_scale.shape, dtype=torch.int64)
    of_a = (inputs.a_scale.item(), inputs.a_zero_point.item())
    of_y = (inputs.y_scale.item(), inputs.y_zero_point.item(), getattr(torch, case.types[2]))
    constant = torch.ops.onednn.qlinear_prepack(weights, a.shape) if case.constant_b else None

    def call():
        packed = torch.ops.onednn.qlinear_prepack(weights, a.shape) if constant is None else constant
        return torch.ops.onednn.qlinear_pointwise(a, *of_a, packed, b_scale, b_zero_point, None, *of_y, "none", [], "")

    return call


def torch_matmul_integer(case):
    torch = torch_package()
    if case.types != ("int8", "int8"):
        raise NotImplementedError("torch takes int8")
    a, _, b, _ = case.inputs()
    mine, weights = tensor(a), tensor(b)
    return lambda: torch._int_mm(mine, weights)
