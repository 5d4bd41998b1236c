"""aten::topk, by top_k. PyTorch's kernel runs calls with `out`, which it resizes."""

from typing import Any

import torch
from torch import Tensor

from dmlcpu.common.forms import Form, form_of
from dmlcpu.interop.torch.override import (
    ARGUMENTS,
    TYPE_NAMES,
    Kind,
    Override,
    as_array,
    form_along,
    refuse_along,
    sample_along,
)
from dmlcpu.operators.top_k.call import INT64, Call
from dmlcpu.operators.top_k.plan import select


def _refusal(x: Tensor, k: int, dim: int = -1, *_: Any) -> str:
    return refuse_along(x, dim) or ("" if 0 < k <= x.shape[dim] else ARGUMENTS)


def find(x: Tensor, k: int, dim: int, largest: bool, *, is_sorted: bool) -> tuple[Tensor, Tensor]:
    """Return the k greatest or smallest elements along a dimension, and their indices."""
    shape = list(x.shape)
    shape[dim] = k
    values, indices = x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)
    elements = as_array(x)
    call = Call(Form(*form_of(elements)), k, dim % x.ndim, INT64, largest, is_sorted)
    select(call, elements, as_array(values), as_array(indices), most_threads=torch.get_num_threads())
    return values, indices


def _run(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    # Always sorted: the order, which PyTorch does not specify, decides the last bits of sums over the selected
    # elements.
    return find(x, k, dim, largest, is_sorted=True)


def _aside(x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    values, indices = x.new_empty(0), x.new_empty(0, dtype=torch.int64)
    torch.ops.aten.topk.values(x, *args, values=values, indices=indices)
    return values, indices


_FEW = 32  # least number of elements for each selected one


def _kind(x: Tensor, k: int, dim: int = -1, *_: Any) -> Kind:
    return TYPE_NAMES[x.dtype], form_along(x, dim), "few" if k * _FEW <= x.shape[dim] else "many"


def _sample(kind: Kind, size: int) -> tuple[Any, ...]:
    dtype, form, count = kind
    x = sample_along(form, size, dtype)
    n = x.shape[-1]
    return x, min(50, n // 64) if count == "few" else n // 2


TOPK = Override(
    name="topk",
    operator="aten::topk",
    size=lambda x, others: x.numel(),  # elements of x
    least=1 << 12,
    refusal=_refusal,
    kind=_kind,
    sample=_sample,
    rungs=tuple(1 << power for power in range(12, 21)),
    run=_run,
    aside=_aside,
)
