"""aten::sort, which also computes argsort, msort and quantiles, and aten::_unique2 of torch.unique."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dmlcpu.common.forms import Form, form_of, strides_of
from dmlcpu.interop.torch.override import (
    ARGUMENTS,
    ORDERED,
    TYPE,
    TYPE_NAMES,
    Kind,
    Override,
    as_array,
    form_along,
    refuse_along,
    sample_along,
)
from dmlcpu.runtime.threads import plan_for_now
from dmlcpu.sorting.call import INT64, Call
from dmlcpu.sorting.plan import plan

_INTEGERS = frozenset(each for each in ORDERED if not each.is_floating_point)


def _sort(x: Tensor, dim: int, descending: bool, *outputs: Tensor) -> None:
    """Sort into values, or into values and indices; NaN is the greatest."""
    elements, arrays = as_array(x), [as_array(each) for each in outputs]
    index_dtype = INT64 if len(outputs) == 2 else None
    call = Call("sort", Form(*form_of(elements)), dim % x.ndim, descending, False, True, index_dtype)
    strides = tuple([strides_of(each) for each in arrays])
    plan_for_now(plan, (call, strides), torch.get_num_threads()).run(elements, *arrays)


def _refusal(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> str:
    return refuse_along(x, dim)


def _run(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)
    _sort(x, dim, descending, values, indices)
    return values, indices


def _aside(x: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    values, indices = x.new_empty(0), x.new_empty(0, dtype=torch.int64)
    torch.ops.aten.sort.values_stable(x, **{"stable": True, **options}, values=values, indices=indices)
    return values, indices


def _kind(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Kind:
    return TYPE_NAMES[x.dtype], form_along(x, dim)


def _sample(kind: Kind, size: int) -> tuple[Tensor]:
    return (sample_along(kind[1], size, kind[0]),)


# With an inverse, PyTorch's own kernel is faster than a sort that also writes positions.
def _refuse_unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> str:
    if return_inverse:
        return ARGUMENTS
    return "" if x.dtype in _INTEGERS else TYPE


def _unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """Sort, then keep one of each run of equal numbers."""
    flat = x.reshape(-1)
    values = torch.empty_like(flat)
    _sort(flat, 0, False, values)
    found = torch.ops.aten.unique_consecutive(values, False, return_counts)  # in memory for all elements
    return tuple([each.clone() if each.numel() < flat.numel() else each for each in found])


def _kind_of_unique(x: Tensor, *_: Any) -> Kind:
    return TYPE_NAMES[x.dtype], "values"


def _sample_of_unique(kind: Kind, size: int) -> tuple[Tensor]:
    """Return numbers most of which differ: PyTorch's hash table then outgrows the caches."""
    dtype = getattr(torch, kind[0])
    most = min(size, torch.iinfo(dtype).max)
    return (torch.from_numpy(np.random.default_rng(1).integers(0, most, size)).to(dtype),)


def _elements(x: Tensor, _: tuple[Any, ...]) -> int:
    return int(x.numel())


_RUNGS = tuple(1 << power for power in range(10, 21))
SORT = Override(
    name="sort",
    operator="aten::sort.stable",
    size=_elements,
    least=1 << 10,
    refusal=_refusal,
    kind=_kind,
    sample=_sample,
    rungs=_RUNGS,
    run=_run,
    aside=_aside,
)
UNIQUE = Override(
    name="unique",
    operator="aten::_unique2",
    size=_elements,
    least=1 << 10,
    refusal=_refuse_unique,
    kind=_kind_of_unique,
    sample=_sample_of_unique,
    rungs=_RUNGS,
    run=_unique,
    aside=None,
)
