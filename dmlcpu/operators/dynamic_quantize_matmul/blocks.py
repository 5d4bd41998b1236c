"""dynamic_quantize_matmul that reads its matrices, and writes its result, a block at a time."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dmlcpu.common.block_reader import as_source, cut_within
from dmlcpu.common.regions import Estimate, Sink
from dmlcpu.operators.dynamic_quantize_matmul.function import checked, dynamic_quantize_matmul, request
from dmlcpu.products import blocks
from dmlcpu.products.arguments import BYTE, DYNAMIC as NAME, FLOAT
from dmlcpu.quantizers.plan import workspace_of
from dmlcpu.quantizers.ranges import Quantized

SOURCES = ("x", "b")


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    _, product = _product(arguments)
    found = blocks.estimate(lambda _: product)
    return found._replace(memory=found.memory + product.reading * math.prod(product.call.a.shape))


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Find the ranges of x, then multiply the quantized x, within `memory` bytes."""
    quantized, product = _product(arguments)
    cut_within(NAME, memory, blocks.cuts(product.call), partial(blocks.needs, product))  # before anything is read
    quantized.find(memory, stopping)
    blocks.run(lambda _: product, {}, sinks, memory, stopping)


def _product(arguments: dict[str, Any]) -> tuple[Quantized, blocks.Product]:
    """Return the quantized x and its product, or refuse them."""
    given, (form, per_row, *key), (x, *others) = blocks.requested(dynamic_quantize_matmul, request, arguments, "x")
    a, b, shapes, bias, _, dtype = key
    call, axis = checked(form, per_row, a, b, shapes, bias, dtype)
    source, x_form = as_source(NAME, "x", x)
    quantized = Quantized(NAME, source, axis, BYTE)
    rhs, numbers, bias = others
    own = quantized.scale.reshape(-1), quantized.zero_point.reshape(-1)
    product = blocks.product_of(call, given, (quantized, rhs, (*own, *numbers[2:]), bias))
    reading = x_form.dtype.itemsize + (FLOAT.itemsize if x_form.dtype == np.float64 else 0)
    return quantized, product._replace(reading=reading, held=product.held + quantized.held + workspace_of())
