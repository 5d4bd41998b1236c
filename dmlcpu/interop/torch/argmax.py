"""aten::argmax and aten::argmin. As in PyTorch, NaN wins, and so does the first of equal elements."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from dmlcpu.common.forms import form_of
from dmlcpu.interop.torch.override import (
    TYPE_NAMES,
    Kind,
    Override,
    as_array,
    form_along,
    refuse_along,
    sample_along,
)
from dmlcpu.reductions.plan import prepare
from dmlcpu.runtime.threads import plan_for_now
from dmlcpu.sorting.call import INT64


def find(x: Tensor, dim: int | None = None, keepdim: bool = False, *, operator: str) -> Tensor:
    """Return the places of the greatest or smallest elements along a dimension, or of all."""
    elements = as_array(x)
    key = (operator, form_of(elements), None, dim, False, keepdim, INT64)
    prepared = plan_for_now(prepare, key, torch.get_num_threads())
    places = x.new_empty(prepared.results[0].shape, dtype=torch.int64)
    prepared.run(elements, as_array(places))
    return places


def _refusal(x: Tensor, dim: int | None = None, keepdim: bool = False) -> str:
    return refuse_along(x, dim)


def _kind(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Kind:
    return TYPE_NAMES[x.dtype], "one row" if dim is None else form_along(x, dim)


def _sample(kind: Kind, size: int) -> tuple[Any, ...]:
    return sample_along(kind[1], size, kind[0]), -1


def _of(name: str, with_output: Any) -> Override:
    """Return an operator. with_output: PyTorch's overload that writes to an argument."""

    def aside(x: Tensor, *args: Any) -> Any:
        return with_output(x, *args, out=x.new_empty(0, dtype=torch.int64))

    return Override(
        name=name,
        operator=f"aten::{name}",
        size=lambda x, others: x.numel(),  # elements of x
        least=1 << 13,
        refusal=_refusal,
        kind=_kind,
        sample=_sample,
        rungs=tuple(1 << power for power in range(13, 21)),
        run=partial(find, operator=name),
        aside=aside,
    )


ARGMAX = _of("argmax", torch.ops.aten.argmax.out)
ARGMIN = _of("argmin", torch.ops.aten.argmin.out)
