"""The functions as PyTorch operators: ``torch.ops.dmlcpu.top_k``, ``scatter_nd`` and ``quantized_matmul``.

``torch.compile(fullgraph=True)`` keeps them in its graph; top_k and scatter_nd have gradients.
"""

from typing import Any

import torch
from torch import Tensor

from dmlcpu.common.arguments import Array, as_axis
from dmlcpu.errors import UnsupportedError
from dmlcpu.interop.torch.override import as_array
from dmlcpu.operators.quantized_matmul import function as quantized_matmul_function
from dmlcpu.operators.scatter_nd import function as scatter_nd_function
from dmlcpu.operators.top_k import function as top_k_function
from dmlcpu.products.arguments import OPERANDS


def as_tensor(array: Array) -> Tensor:
    """Return a tensor over the memory of an array."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("i2")).view(torch.bfloat16)
    return torch.from_numpy(array)


@torch.library.custom_op("dmlcpu::top_k", mutates_args=(), device_types="cpu")
def top_k(
    x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True, nan: str = "greatest"
) -> tuple[Tensor, Tensor]:
    """`dmlcpu.top_k` of a tensor: values and int64 indices."""
    options: dict[str, Any] = {"axis": axis, "largest": largest, "sorted": sorted, "nan": nan}
    result = top_k_function.top_k(as_array(x), k, **options)
    return as_tensor(result.values), as_tensor(result.indices)


@top_k.register_fake
def _(x: Tensor, k: int, axis: int = -1, *_: Any) -> tuple[Tensor, Tensor]:
    shape, axis = list(x.shape), as_axis("top_k", "axis", axis, "x", x.ndim)
    torch._check(0 <= k <= shape[axis], lambda: f"top_k: k is {k}; allowed: 0 to {shape[axis]}")
    shape[axis] = k
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _keep_for_top_k(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.shape, ctx.axis = inputs[0].shape, inputs[2]
    ctx.mark_non_differentiable(output[1])


def _gradient_of_top_k(ctx: Any, values: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    (indices,) = ctx.saved_tensors
    return values.new_zeros(ctx.shape).scatter(ctx.axis, indices, values), None, None, None, None, None


top_k.register_autograd(_gradient_of_top_k, setup_context=_keep_for_top_k)


@torch.library.custom_op("dmlcpu::scatter_nd", mutates_args=(), device_types="cpu")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none", mode: str = "raise") -> Tensor:
    """`dmlcpu.scatter_nd` of tensors."""
    arrays = (as_array(x), as_array(indices), as_array(updates))
    options: dict[str, Any] = {"reduction": reduction, "mode": mode}  # PyTorch has no Literal
    return as_tensor(scatter_nd_function.scatter_nd(*arrays, **options))


@scatter_nd.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _keep_for_scatter_nd(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, indices, _, ctx.reduction, ctx.mode = inputs
    ctx.save_for_backward(indices)
    ctx.shape = x.shape


def _gradient_of_scatter_nd(ctx: Any, y: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of x and of the updates.

    With "add", x gets the gradient of y, and each update that of its element. Without a reduction, the last update of
    an element gets its gradient, and earlier updates get zero; x gets the gradients of elements without an update.
    """
    if ctx.reduction not in ("none", "add"):
        raise UnsupportedError("scatter_nd", "reduction of what requires a gradient", repr(ctx.reduction), "none, add")
    (indices,) = ctx.saved_tensors
    sizes, rest = ctx.shape[: indices.shape[-1]], ctx.shape[indices.shape[-1] :]
    count, of_x, slices = sizes.numel(), y, y.reshape(sizes.numel(), rest.numel())
    places = _flat_places(indices.reshape(indices.shape[:-1].numel(), len(sizes)), sizes, ctx.mode)
    if ctx.reduction == "none":
        numbers, none = torch.arange(places.shape[0]), y.new_full([count + 1], -1, dtype=torch.int64)
        last = torch.ops.dmlcpu.scatter_nd(none, places[:, None], numbers)
        places = torch.where(last[places] == numbers, places, count)
        # This selects and does not multiply: zero times infinity is NaN.
        of_x = torch.where(last[:count, None] < 0, slices, 0).reshape(ctx.shape)
    of_updates = torch.cat([slices, slices.new_zeros(1, rest.numel())])[places]
    return of_x, None, of_updates.reshape(*indices.shape[:-1], *rest), None, None


def _flat_places(tuples: Tensor, sizes: torch.Size, mode: str) -> Tensor:
    """Return the positions of index tuples in the flattened first dimensions; out of range, the one after the last."""
    places = tuples.new_zeros(tuples.shape[:1], dtype=torch.int64)
    counts = tuples.new_ones(tuples.shape[:1], dtype=torch.bool)
    for coordinate, size in enumerate(sizes):
        along = tuples[:, coordinate].to(torch.int64)
        along = torch.where(along < 0, along + size if tuples.dtype.is_signed else size, along)
        if mode == "clip":
            along = along.clamp(0, size - 1)
        counts = counts & (along >= 0) & (along < size)
        places = places * size + along
    return torch.where(counts, places, sizes.numel())


scatter_nd.register_autograd(_gradient_of_scatter_nd, setup_context=_keep_for_scatter_nd)


_OPERANDS = ", ".join(f"Tensor{'?' if name.endswith('zero_point') else ''} {name}" for name in OPERANDS)
_SCHEMA = f"({_OPERANDS}, ScalarType? out_dtype=None) -> Tensor"


def _named(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Return the arguments of a product by their names. PyTorch leaves out_dtype out if it is None."""
    return {"out_dtype": None, **dict(zip((*OPERANDS, "out_dtype"), arguments, strict=False))}


@torch.library.custom_op("dmlcpu::quantized_matmul", mutates_args=(), device_types="cpu", schema=_SCHEMA)
def quantized_matmul(*arguments: Any) -> Tensor:
    """`dmlcpu.quantized_matmul` of tensors."""
    given = _named(arguments)
    given |= {name: as_array(given[name]) for name in OPERANDS if given[name] is not None}
    if given["out_dtype"] is not None:
        given["out_dtype"] = str(given["out_dtype"]).removeprefix("torch.")
    return as_tensor(quantized_matmul_function.quantized_matmul(**given))


@quantized_matmul.register_fake
def _(*arguments: Any) -> Tensor:
    given = _named(arguments)
    a, b, zero_point = given["a"], given["b"], given["y_zero_point"]
    takes_zeros_type = zero_point is not None and zero_point.dtype in (torch.int8, torch.uint8)
    dtype = given["out_dtype"] or (zero_point.dtype if takes_zeros_type else a.dtype)
    K = b.shape[max(b.ndim - 2, 0)]
    torch._check(a.shape[-1] == K, lambda: f"quantized_matmul: b has {K} rows; allowed: K = {a.shape[-1]}")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()
    return a.new_empty((*batch, *rows, *columns), dtype=dtype)
