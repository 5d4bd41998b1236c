"""aten::index_add_, index_put_, scatter_add_ and scatter_: all of them are scatter_nd in place."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dmlcpu.common.arguments import Array
from dmlcpu.interop.torch.override import (
    ARGUMENTS,
    ASSIGNED,
    SUMMED,
    TYPE,
    TYPE_NAMES,
    Kind,
    Override,
    PassOnError,
    as_operand,
    as_target,
    numbers,
)
from dmlcpu.operators.scatter_nd.function import update

aten = torch.ops.aten


def _reduce(x: Tensor, places: Array, updates: Array, reduction: str) -> Tensor:
    target = as_target(x, places, updates)
    update(target, places, updates, reduction, most=torch.get_num_threads())
    return x


# Updates of rows, slices along the first dimension; a row may be a single element.


def _refuse_rows(x: Tensor, dim: int, index: Tensor, source: Tensor, types: frozenset[torch.dtype]) -> str:
    if x.dtype not in types or source.dtype is not x.dtype or index.dtype is not torch.int64:
        return TYPE
    if dim not in (0, -x.ndim):
        return "not along the first dimension"
    return ""


def _refuse_index_add(
    x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1, types: frozenset[torch.dtype]
) -> str:
    return ARGUMENTS if index.ndim != 1 or alpha != 1 else _refuse_rows(x, dim, index, source, types)


def _refuse_scatter(x: Tensor, dim: int, index: Tensor, source: Tensor, types: frozenset[torch.dtype]) -> str:
    if index.shape != source.shape or index.ndim == 0:
        return ARGUMENTS
    if any(index.stride()[1:]):
        return "an index for each element"
    return _refuse_rows(x, dim, index, source, types)


def _update_rows(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1, reduction: str) -> Tensor:
    if index.ndim > 1:  # scatter_ has an index for each element; `_refuse_scatter` leaves only the same ones in a row
        index = index.movedim(0, -1)[(0,) * (index.ndim - 1)]
    if x.ndim == 0 or source.shape[1:] != x.shape[1:] or index.shape[0] != source.shape[0]:
        raise PassOnError(ARGUMENTS)
    # As unsigned numbers, negative ones are out of range, which they are in PyTorch.
    return _reduce(x, as_operand(index).view(np.uint64)[:, None], as_operand(source), reduction)


# Forms of rows: the most elements of a row, and the elements of a row in samples.
_FORMS = {"elements": (1, 1), "short rows": (32, 16), "rows": (256, 128), "long rows": (math.inf, 1024)}


def _form_of_rows(elements: int) -> str:
    return next(form for form, (most, _) in _FORMS.items() if elements <= most)


def _kind_of_rows(x: Tensor, dim: int, index: Tensor, source: Tensor, **_: Any) -> Kind:
    return TYPE_NAMES[x.dtype], _form_of_rows(source.numel() // max(1, index.shape[0]))


def _sample_rows(kind: Kind, size: int) -> tuple[Any, ...]:
    dtype, form = kind[:2]
    width = int(_FORMS[form][1])
    rows = size // width
    places = torch.from_numpy(np.random.default_rng(2).integers(0, 2 * rows, rows))
    shape = (width,) if width > 1 else ()
    return numbers((2 * rows, *shape), dtype), 0, places, numbers((rows, *shape), dtype)


def _sample_scatter(kind: Kind, size: int) -> tuple[Any, ...]:
    x, dim, places, source = _sample_rows(kind, size)
    return x, dim, places.reshape(-1, *[1] * (source.ndim - 1)).expand(source.shape), source


# index_put_


def _size_of_index_put(x: Tensor, others: tuple[Any, ...]) -> int:
    indices: list[Tensor | None] = others[0]
    first = indices[0] if indices else None
    return 0 if first is None else first.numel() * math.prod(x.shape[len(indices) :])


def _refuse_index_put(
    x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> str:
    if x.dtype not in (SUMMED if accumulate else ASSIGNED) or values.dtype is not x.dtype:
        return TYPE
    for each in indices:
        if each is None:
            return ARGUMENTS
        if each.dtype is not torch.int64:
            return TYPE
    return ""


def _index_put(x: Tensor, indices: list[Tensor], values: Tensor, accumulate: bool = False, *_: Any) -> Tensor:
    arrays = [as_operand(each) for each in indices]
    if len(arrays) > x.ndim or any(each.shape != arrays[0].shape for each in arrays):
        raise PassOnError(ARGUMENTS)
    places = arrays[0][..., None] if len(arrays) == 1 else np.stack(arrays, axis=-1)
    try:
        updates: Array = np.broadcast_to(as_operand(values), (*places.shape[:-1], *x.shape[len(arrays) :]))
    except ValueError:
        raise PassOnError(ARGUMENTS) from None
    return _reduce(x, places, updates, "add" if accumulate else "none")


def _kind_of_index_put(x: Tensor, indices: list[Tensor], values: Tensor, accumulate: bool = False, *_: Any) -> Kind:
    coordinates = "one index" if len(indices) == 1 else "several indices"
    form = _form_of_rows(math.prod(x.shape[len(indices) :]))
    return TYPE_NAMES[x.dtype], form, coordinates, "add" if accumulate else "assign"


def _sample_index_put(kind: Kind, size: int) -> tuple[Any, ...]:
    x, _, places, values = _sample_rows(kind, size)
    if kind[2] == "one index":
        return x, [places], values, kind[3] == "add"
    return x.reshape(2, -1, *x.shape[1:]), [places % 2, places // 2], values, kind[3] == "add"


_LEAST, _RUNGS = 1 << 12, tuple(1 << power for power in range(12, 23, 2))  # elements of the updates


def _of_rows(name: str, operator: str, with_output: Any, sample: Any, refusal: Any, reduction: str) -> Override:
    """Return an operator of updates of rows. with_output: PyTorch's overload that writes to an argument."""

    def aside(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with_output(x, *args, out=x, **kwargs)
        return x

    def size(x: Tensor, others: tuple[Any, ...]) -> Any:
        return others[2].numel()  # of the source

    refusal = partial(refusal, types=SUMMED if reduction == "add" else ASSIGNED)
    run = partial(_update_rows, reduction=reduction)
    return Override(name, operator, size, _LEAST, refusal, _kind_of_rows, sample, _RUNGS, run, aside)


SCATTER = (
    _of_rows("index_add_", "aten::index_add_", aten.index_add.out, _sample_rows, _refuse_index_add, "add"),
    _of_rows("scatter_add_", "aten::scatter_add_", aten.scatter_add.out, _sample_scatter, _refuse_scatter, "add"),
    _of_rows("scatter_", "aten::scatter_.src", aten.scatter.src_out, _sample_scatter, _refuse_scatter, "none"),
    Override(
        "index_put_",
        operator="aten::_index_put_impl_",  # what index_put_ and the gradient of x[i] call
        size=_size_of_index_put,
        least=_LEAST,
        refusal=_refuse_index_put,
        kind=_kind_of_index_put,
        sample=_sample_index_put,
        rungs=_RUNGS,
        run=_index_put,
        aside=None,
    ),
)
