"""aten::topk, by top_k. With outputs of its caller it stays PyTorch's, which resizes them."""

from typing import Any

import torch
from torch import Tensor

from dmlcpu.interop.torch.override import (
    ARGUMENTS,
    LEAST_ELEMENTS,
    ORDERED,
    SMALL,
    TYPE,
    Kind,
    Override,
    numbers,
    refuse_tensors,
)
from dmlcpu.interop.torch.tensors import as_array
from dmlcpu.operators.top_k.function import execute


def _refuse_topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> str:
    if x.numel() < LEAST_ELEMENTS:
        return SMALL
    if x.dtype not in ORDERED:
        return TYPE
    if not -x.ndim <= dim < x.ndim or not 0 < k <= x.shape[dim]:
        return ARGUMENTS
    return refuse_tensors(x)


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    shape = list(x.shape)
    shape[dim] = k
    values, indices = torch.empty(shape, dtype=x.dtype), torch.empty(shape, dtype=torch.int64)
    execute(as_array(x), k, dim % x.ndim, largest, as_array(values), as_array(indices), ordered=sorted)
    return values, indices


_SHORT_ROW = 256
_FEW = 32  # elements at least for each that is selected


def _kind_of_topk(x: Tensor, k: int, dim: int = -1, *_: Any, **__: Any) -> tuple[Kind, int]:
    n, size = x.shape[dim], x.numel()
    if x.stride(dim) > 1:
        form = "columns"
    elif n == size:
        form = "one row"
    else:
        form = "short rows" if n < _SHORT_ROW else "rows"
    return (str(x.dtype), form, "few" if k * _FEW <= n else "many"), size


def _sample_topk(kind: Kind, size: int) -> tuple[Any, ...]:
    dtype, form, count = kind
    n = {"one row": size, "short rows": 64}.get(form, 1024)
    n = min(n, size)
    x = numbers((size // n, n), dtype)
    k = min(50, max(1, n // 64)) if count == "few" else n // 2
    return (x.T.contiguous(), k, 0) if form == "columns" else (x, k)


TOPK = Override(
    name="topk",
    operator="aten::topk",
    refusal=_refuse_topk,
    run=_topk,
    kind=_kind_of_topk,
    sample=_sample_topk,
    rungs=tuple(1 << power for power in range(12, 21, 2)),  # elements of x
)
