"""aten::_int_mm, by matmul_integer."""

import math

import numpy as np
import torch
from torch import Tensor

from dmlcpu.interop.torch.override import ARGUMENTS, TYPE, Kind, Override, as_array, as_operand, numbers
from dmlcpu.operators.matmul_integer.function import prepare, request
from dmlcpu.runtime.threads import plan_for_now

_FEW_ROWS = 8


def _size(a: Tensor, others: tuple[Tensor]) -> int:
    (b,) = others
    return a.numel() * b.shape[-1] if a.ndim == b.ndim == 2 else 0


def _refusal(a: Tensor, b: Tensor) -> str:
    if a.dtype is not torch.int8 or b.dtype is not torch.int8:
        return TYPE
    return "" if a.shape[1] == b.shape[0] else ARGUMENTS


def _run(a: Tensor, b: Tensor) -> Tensor:
    result, left, right = _empty(a, b), as_operand(a), as_operand(b)
    out = as_array(result)
    key, arrays = request(left, None, right, None, np.int32, out)
    plan_for_now(prepare, key, torch.get_num_threads()).run(*arrays, out)
    return result


def _aside(a: Tensor, b: Tensor) -> Tensor:
    result: Tensor = torch.ops.aten._int_mm.out(a, b, out=_empty(a, b))
    return result


def _empty(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]), dtype=torch.int32)


def _kind(a: Tensor, b: Tensor) -> Kind:
    rows = a.shape[0]
    order = "rows" if b.stride(1) == 1 else "columns"  # how b lies in memory
    # Packing b takes as long for one row as for eight, so two rows count as one.
    return "one" if rows <= 2 else "few" if rows <= _FEW_ROWS else "many", order


def _sample(kind: Kind, size: int) -> tuple[Tensor, Tensor]:
    rows = {"one": 1, "few": 4}.get(kind[0]) or round(size ** (1 / 3))
    n = math.isqrt(size // rows)
    a, b = numbers((rows, n), "int8"), numbers((n, n), "int8")
    return a, (b if kind[1] == "rows" else b.T)


def make_int_mm(has_vnni: bool) -> Override:
    """Return the override for a processor with VNNI of AVX-512, or without.

    Without it PyTorch runs a reference loop (pytorch/pytorch#136746), which takes 0.6 ns for a product on Zen 4: it is
    slower from 2**15 products on.
    """
    power = 17 if has_vnni else 15
    return Override(
        name="_int_mm",
        operator="aten::_int_mm",
        size=_size,  # products that are added
        least=1 << power,
        refusal=_refusal,
        kind=_kind,
        sample=_sample,
        rungs=tuple(1 << rung for rung in range(power + 1, 31, 3)),
        run=_run,
        aside=_aside,
    )


# PyTorch's private test of the processor may disappear; then calls use the thresholds of the loop.
INT_MM = make_int_mm(getattr(torch.cpu, "_is_vnni_supported", bool)())
