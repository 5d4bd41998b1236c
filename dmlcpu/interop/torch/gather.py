"""aten::gather, which torch.take_along_dim calls."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dmlcpu.interop.torch.override import (
    ARGUMENTS,
    ASSIGNED,
    TYPE,
    TYPE_NAMES,
    Kind,
    Override,
    PassOnError,
    as_array,
    as_operand,
    numbers,
)
from dmlcpu.interop.torch.scatter import RUNGS, form_of_elements, places_of
from dmlcpu.operators.gather_elements.function import request
from dmlcpu.operators.gather_elements.plan import prepare
from dmlcpu.runtime.threads import plan_for_now


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Return an element for each index."""
    values = x.new_empty(index.shape)
    target = as_array(values)
    key, arrays = request(as_array(x), as_operand(index).view(np.uint64), dim, "raise", target)
    if plan_for_now(prepare, key, torch.get_num_threads()).run(*arrays, target, True) is not None:
        raise PassOnError(ARGUMENTS)
    return values


def _refusal(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> str:
    if x.dtype not in ASSIGNED or index.dtype is not torch.int64:
        return TYPE
    if x.ndim == 0 or not -x.ndim <= dim < x.ndim or index.ndim != x.ndim:
        return ARGUMENTS
    is_first = dim in (0, -x.ndim)
    return "whole rows" if is_first and form_of_elements(x, dim, index) not in ("elements", "columns") else ""


def _kind(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Kind:
    form = form_of_elements(x, dim, index)
    return TYPE_NAMES[x.dtype], form if form in ("elements", "lines") else "columns"


def _sample(kind: Kind, size: int) -> tuple[Any, ...]:
    dtype, form = kind
    shape, dim, index = places_of(form, size)
    return numbers(shape, dtype), dim, index


def _aside(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return torch.ops.aten.gather.out(x, *args, **kwargs, out=x.new_empty(0))


GATHER = Override(
    name="gather",
    operator="aten::gather",
    size=lambda x, others: others[1].numel(),  # indices
    least=1 << 12,
    refusal=_refusal,
    kind=_kind,
    sample=_sample,
    rungs=RUNGS,
    run=gather,
    aside=_aside,
)
