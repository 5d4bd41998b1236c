"""aten::index_add_, scatter, scatter_add and scatter_reduce by scatter_elements, and index_put_ by scatter_nd."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dmlcpu.common.arguments import Array
from dmlcpu.interop.torch.override import (
    ARGUMENTS,
    EXACT_TYPES,
    REDUCED,
    SUBCLASS,
    TYPE,
    TYPE_NAMES,
    Kind,
    Override,
    PassOnError,
    as_array,
    as_operand,
    as_target,
    numbers,
)
from dmlcpu.operators.scatter_elements.function import request
from dmlcpu.operators.scatter_elements.plan import prepare
from dmlcpu.operators.scatter_nd.function import update
from dmlcpu.runtime.threads import plan_for_now

aten = torch.ops.aten

# Forms of updates that are rows, with one index for each: the most elements of a row, and those of a row in samples.
_ROWS = {"elements": (1, 1), "short rows": (32, 16), "rows": (256, 128), "long rows": (math.inf, 1024)}


def _form_of_rows(elements: int) -> str:
    return next(form for form, (most, _) in _ROWS.items() if elements <= most)


def form_of_elements(x: Tensor, dim: int, index: Tensor) -> str:
    """Return the form of a call with an index for each element.

    The form is one of rows if all elements of a row have the same index in memory. Otherwise it is "lines", if the
    indices of adjacent elements lie along one line, or "columns".
    """
    row = math.prod(x.shape[dim:][1:])
    if row == 1:
        return "elements" if x.numel() == x.shape[dim] else "lines"
    sides = zip(index.shape[dim:][1:], index.stride()[dim:][1:], strict=True)
    return _form_of_rows(row) if all(step == 0 or n == 1 for n, step in sides) else "columns"


def places_of(form: str, size: int) -> tuple[tuple[int, ...], int, Tensor]:
    """Return a shape, a dimension, and `size` random indices along it, of a form."""
    width = {"columns": 64, "lines": 256}.get(form) or int(_ROWS[form][1])
    rows = size // width
    if form == "lines":
        return (rows, 2 * width), 1, _random(2 * width, rows, width)
    if form == "columns":
        return (2 * rows, width), 0, _random(2 * rows, rows, width)
    if form == "elements":
        return (2 * rows,), 0, _random(2 * rows, rows)
    return (2 * rows, width), 0, _random(2 * rows, rows, 1).expand(rows, width)


def _random(stop: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(2).integers(0, stop, shape))


# scatter_, scatter_add_, scatter_reduce_, and the same without an underscore, which return a copy with updates


def _scatter(x: Tensor, dim: int, index: Tensor, source: Tensor, *, reduction: str, copies: bool) -> Tensor:
    # As unsigned numbers, negative indices are out of range, as in PyTorch.
    places, updates = as_operand(index).view(np.uint64), as_operand(source)
    if updates.shape != places.shape:  # only a part of a larger source is read
        updates = updates[tuple(map(slice, places.shape))]
    result = x.new_empty(x.shape) if copies else x
    target = as_array(result) if copies else as_target(x, places, updates)
    key, arrays = request(as_array(x) if copies else target, places, updates, dim, reduction, "raise", target)
    if plan_for_now(prepare, key, torch.get_num_threads()).run(*arrays, target, copies) is not None:
        raise PassOnError(ARGUMENTS)
    return result


def _refuse_scatter(x: Tensor, dim: int, index: Tensor, source: Tensor, *, reduction: str) -> str:
    if not -x.ndim <= dim < x.ndim or not x.ndim == index.ndim == source.ndim:
        return ARGUMENTS
    return _refuse_types(x, index, source, reduction)


def _refuse_types(x: Tensor, index: Tensor, source: Tensor, reduction: str) -> str:
    is_taken = x.dtype in REDUCED[reduction] and source.dtype is x.dtype and index.dtype is torch.int64
    return "" if is_taken else TYPE


def _kind_of_scatter(x: Tensor, dim: int, index: Tensor, *_: Any, **__: Any) -> Kind:
    return TYPE_NAMES[x.dtype], form_of_elements(x, dim, index)


def _sample_scatter(kind: Kind, size: int) -> tuple[Any, ...]:
    dtype, form = kind
    shape, dim, index = places_of(form, size)
    return numbers(shape, dtype), dim, index, numbers(tuple(index.shape), dtype)


# PyTorch's names. PyTorch computes means, and results that exclude the old elements.
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, copies: bool, **_: Any) -> Any:
    return _scatter(x, dim, index, source, reduction=_REDUCTIONS[reduce], copies=copies)


def _refuse_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> str:
    if reduce not in _REDUCTIONS or not include_self:
        return ARGUMENTS
    return _refuse_scatter(x, dim, index, source, reduction=_REDUCTIONS[reduce])


def _sample_reduce(kind: Kind, size: int) -> tuple[Any, ...]:
    return *_sample_scatter(kind, size), "amax"


# index_add_


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    shape = [1] * source.ndim
    shape[dim] = -1
    return _scatter(x, dim, index.view(shape).expand(source.shape), source, reduction="add", copies=False)


def _refuse_index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> str:
    if type(index) not in EXACT_TYPES:  # its view would be a plain tensor
        return SUBCLASS
    if index.ndim != 1 or alpha != 1 or not -x.ndim <= dim < x.ndim:
        return ARGUMENTS
    if source.shape != (*x.shape[:dim], len(index), *x.shape[dim:][1:]):
        return ARGUMENTS
    return _refuse_types(x, index, source, "add")


def _kind_of_index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, **_: Any) -> Kind:
    return TYPE_NAMES[x.dtype], form_of_elements(x, dim, index[:1].expand(source.shape))


def _sample_index_add(kind: Kind, size: int) -> tuple[Any, ...]:
    x, dim, index, source = _sample_scatter(kind, size)
    return x, dim, index.select(0, 0) if dim else index.reshape(len(index), -1)[:, 0], source


# index_put_


def _size_of_index_put(x: Tensor, others: tuple[Any, ...]) -> int:
    indices: list[Tensor | None] = others[0]
    first = indices[0] if indices else None
    return 0 if first is None else first.numel() * math.prod(x.shape[len(indices) :])


def _refuse_index_put(
    x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> str:
    if x.dtype not in REDUCED["add" if accumulate else "none"] or values.dtype is not x.dtype:
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
    reduction = "add" if accumulate else "none"
    update(as_target(x, places, updates), places, updates, reduction, most=torch.get_num_threads())
    return x


def _kind_of_index_put(x: Tensor, indices: list[Tensor], values: Tensor, accumulate: bool = False, *_: Any) -> Kind:
    coordinates = "one index" if len(indices) == 1 else "several indices"
    form = _form_of_rows(math.prod(x.shape[len(indices) :]))
    return TYPE_NAMES[x.dtype], form, coordinates, "add" if accumulate else "assign"


def _sample_index_put(kind: Kind, size: int) -> tuple[Any, ...]:
    x, _, places, values = _sample_index_add(kind[:2], size)
    if kind[2] == "one index":
        return x, [places], values, kind[3] == "add"
    return x.reshape(2, -1, *x.shape[1:]), [places % 2, places // 2], values, kind[3] == "add"


RUNGS = tuple(1 << power for power in range(12, 23, 2))  # elements of the updates
_LEAST = RUNGS[0]


def _of(name: str, operator: str, with_output: Any, refusal: Any, sample: Any, run: Any) -> Override:
    """Return an operator with an index for each element. with_output: PyTorch's overload that writes to an argument."""

    def aside(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        out = x if name.endswith("_") else x.new_empty(0)
        with_output(x, *args, out=out, **kwargs)
        return out

    def size(x: Tensor, others: tuple[Any, ...]) -> Any:
        return others[2].numel() if name == "index_add_" else others[1].numel()

    kind = _kind_of_index_add if name == "index_add_" else _kind_of_scatter
    return Override(name, operator, size, _LEAST, refusal, kind, sample, RUNGS, run, aside)


def _both(name: str, overload: str, with_output: Any, refusal: Any, sample: Any, run: Any) -> tuple[Override, Override]:
    """Return an operator in place, and the one that returns a copy."""
    return (
        _of(f"{name}_", f"aten::{name}_{overload}", with_output, refusal, sample, partial(run, copies=False)),
        _of(name, f"aten::{name}{overload}", with_output, refusal, sample, partial(run, copies=True)),
    )


def _plain(reduction: str) -> tuple[Any, Any, Any]:
    """Return the refusal, the sample and the run of a scatter."""
    refusal, run = partial(_refuse_scatter, reduction=reduction), partial(_scatter, reduction=reduction)
    return refusal, _sample_scatter, run


SCATTER = (
    _of("index_add_", "aten::index_add_", aten.index_add.out, _refuse_index_add, _sample_index_add, _index_add),
    *_both("scatter_add", "", aten.scatter_add.out, *_plain("add")),
    *_both("scatter", ".src", aten.scatter.src_out, *_plain("none")),
    *_both("scatter_reduce", ".two", aten.scatter_reduce.two_out, _refuse_reduce, _sample_reduce, _scatter_reduce),
    Override(
        "index_put_",
        operator="aten::_index_put_impl_",  # what index_put_ and the gradient of x[i] call
        size=_size_of_index_put,
        least=_LEAST,
        refusal=_refuse_index_put,
        kind=_kind_of_index_put,
        sample=_sample_index_put,
        rungs=RUNGS,
        run=_index_put,
        aside=None,
    ),
)
