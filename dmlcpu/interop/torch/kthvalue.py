"""aten::kthvalue, median and nanmedian: top_k selects from the nearer end; its last winner is the result.

PyTorch does not specify which of equal elements it returns.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dmlcpu.interop.torch import argmax, topk
from dmlcpu.interop.torch.gather import gather
from dmlcpu.interop.torch.override import (
    ARGUMENTS,
    TYPE_NAMES,
    Kind,
    Override,
    PassOnError,
    as_array,
    form_along,
    refuse_along,
    sample_along,
)

Results = tuple[Tensor, Tensor]  # values and indices


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Results:
    from_above = x.shape[dim] - k + 1
    is_above = from_above < k
    winners, places = topk.find(x, min(k, from_above), dim, is_above, is_sorted=False)
    values, last = topk.find(winners, 1, dim, not is_above, is_sorted=True)
    return _shaped((values, gather(places, dim, last)), dim, keepdim)


def _shaped(results: Results, dim: int, keepdim: bool) -> Results:
    return results if keepdim else (results[0].squeeze(dim), results[1].squeeze(dim))


def _refuse_kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> str:
    return topk.TOPK.refusal(x, k, dim)


def _kind_of_kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Kind:
    return topk.TOPK.kind(x, min(k, x.shape[dim] - k + 1), dim)


def _median(x: Tensor, dim: int, keepdim: bool = False, *, ignores_nan: bool) -> Results:
    """Return the median, the lower one of an even number of elements; the first NaN if there is one.

    With `ignores_nan`, PyTorch runs calls with NaN: their medians have different positions.
    """
    found = _kthvalue(x, (x.shape[dim] + 1) // 2, dim, True)
    if x.dtype.is_floating_point:
        first = argmax.find(x, dim, True, operator="argmax")  # a NaN, if there is one
        greatest = gather(x, dim, first)
        is_nan = np.isnan(as_array(greatest))
        if is_nan.any():
            if ignores_nan:
                raise PassOnError("NaN")
            for result, each in zip(found, (greatest, first), strict=True):
                np.copyto(as_array(result), as_array(each), where=is_nan)
    return _shaped(found, dim, keepdim)


def _refuse_median(x: Tensor, dim: int, keepdim: bool = False) -> str:
    return refuse_along(x, dim) or ("" if x.numel() else ARGUMENTS)  # no elements have no median


def _kind_of_median(x: Tensor, dim: int, keepdim: bool = False) -> Kind:
    return TYPE_NAMES[x.dtype], form_along(x, dim)


def _sample_median(kind: Kind, size: int) -> tuple[Any, ...]:
    return sample_along(kind[1], size, kind[0]), -1


_RUNGS = tuple(1 << power for power in range(12, 21))


def _of(name: str, overload: str, with_outputs: Any, refusal: Any, kind: Any, sample: Any, run: Any) -> Override:
    """Return an operator. with_outputs: PyTorch's overload that writes to arguments."""

    def aside(x: Tensor, *args: Any) -> Any:
        return with_outputs(x, *args, values=x.new_empty(0), indices=x.new_empty(0, dtype=torch.int64))

    operator = f"aten::{name}{overload}"
    return Override(name, operator, lambda x, _: x.numel(), _RUNGS[0], refusal, kind, sample, _RUNGS, run, aside)


def _of_median(name: str, with_outputs: Any, ignores_nan: bool) -> Override:
    run = partial(_median, ignores_nan=ignores_nan)
    return _of(name, ".dim", with_outputs, _refuse_median, _kind_of_median, _sample_median, run)


aten = torch.ops.aten
KTHVALUES = (
    _of("kthvalue", "", aten.kthvalue.values, _refuse_kthvalue, _kind_of_kthvalue, topk.TOPK.sample, _kthvalue),
    _of_median("median", aten.median.dim_values, False),
    _of_median("nanmedian", aten.nanmedian.dim_values, True),
)
