"""How quantize_linear and dequantize_linear run, once their arguments are checked."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from dmlcpu import reference
from dmlcpu.common.arguments import Array, check_apart, check_output
from dmlcpu.common.bound import Steps
from dmlcpu.quantizers.arguments import Call, check_positive
from dmlcpu.quantizers.layout import Layout, layout_of
from dmlcpu.quantizers.plan import FLOAT, Plan, plan, run, steps as plan_steps
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import spans_meet, words
from dmlcpu.runtime.results import empty_result

Tensors = tuple[Array, Array, Array | None, Array]  # x, scale, zero point, y

_ZEROS = {width: np.zeros(1, f"u{width}") for width in (1, 2, 4)}


def allocate(call: Call, out: Any) -> Array:
    """Return the output: a new array, or `out` if it fits."""
    if out is None:
        return empty_result(call.x.shape, call.dtype)
    result = check_output(call.operator, "out", out, call.x.shape, call.dtype)
    check_apart(call.operator, "out", result, {"x": call.x, "scale": call.scale})
    if call.zero_point is not None:
        check_apart(call.operator, "out", result, {"zero_point": call.zero_point})
    return result


def execute(call: Call, out: Array) -> None:
    """Run a call on arrays of any strides."""
    if out.size == 0:
        return
    if not can_compile():
        function = getattr(reference, call.operator)
        options = {"axis": call.axis, "block_size": call.block_size}
        function(call.x, call.scale, call.zero_point, **options, out_dtype=out.dtype, out=out)
        return
    for x, scale, zero_point, y in pieces(call, out):
        if x.dtype == np.float64:
            with np.errstate(all="ignore"):
                x = x.astype(FLOAT)
        layouts = layouts_of(x, scale, zero_point, y, call.operator)
        run(plan(call.operator, *layouts, threads.budget()), *words_of(layouts, (x, scale, zero_point, y)))


def pieces(call: Call, out: Array) -> Iterator[Tensors]:
    """Yield the parts of a call whose blocks are all of one size: all of it, or that before a short block and that."""
    tensors = (call.x, call.scale, call.zero_point, out)
    if call.axis is None or call.block_size is None:
        yield tensors
        return
    n = call.x.shape[call.axis]
    whole = n // call.block_size
    even = whole * call.block_size
    for elements, blocks in ((slice(0, even), slice(0, whole)), (slice(even, n), slice(whole, whole + 1))):
        if elements.start < elements.stop:
            cut = [_cut(each, call.axis, n, elements, blocks) for each in tensors]
            yield tuple(cut)  # type: ignore[misc]


def _cut(array: Array | None, axis: int, n: int, elements: slice, blocks: slice) -> Array | None:
    """Return the part of an array that has some elements of x along an axis, or their blocks."""
    if array is None or array.shape[axis] == 1:
        return array
    return array[(slice(None),) * axis + (elements if array.shape[axis] == n else blocks,)]


def layouts_of(x: Array, scale: Array, zero_point: Array | None, y: Array, operator: str) -> tuple[Layout, ...]:
    """Return the layouts of the tensors of a call; a missing zero point is one 0."""
    of_x, of_y = layout_of(x), layout_of(y)
    return of_x, layout_of(scale), zero_layout(zero_point, of_x if operator == "dequantize_linear" else of_y), of_y


def zero_layout(zero_point: Array | None, quantized: Layout) -> Layout:
    """Return the layout of a zero point, or of one 0; quantized: that of the quantized tensor."""
    if zero_point is not None:
        return layout_of(zero_point)
    ndim = len(quantized.shape)
    return Layout((1,) * ndim, (0,) * ndim, quantized.type)


def words_of(layouts: tuple[Layout, ...], tensors: Tensors) -> list[Array]:
    """Return what the kernel reads and writes."""
    x, scale, zero_point, y = tensors
    of_x, _, of_zero, of_y = layouts
    zero = _ZEROS[of_zero.word.itemsize] if zero_point is None else words(zero_point, of_zero.word)
    return [words(x, of_x.word), words(scale, FLOAT), zero, words(y, of_y.word)]


def steps(call: Call, out: Array, given: Mapping[str, Any]) -> Steps | None:
    """Return how a call runs on the same arrays again and again, or None if that takes all its checks."""
    is_copied = any(
        isinstance(given[name], np.ndarray) and used is not None and not spans_meet(used, given[name])
        for name, used in (("x", call.x), ("scale", call.scale), ("zero_point", call.zero_point))
    )
    is_constant = not any(isinstance(given[name], np.ndarray) for name in ("axis", "block_size"))
    if out.size == 0 or is_copied or not is_constant or call.block_size is not None or call.x.dtype == np.float64:
        return None
    layouts = layouts_of(call.x, call.scale, call.zero_point, out, call.operator)
    words = words_of(layouts, (call.x, call.scale, call.zero_point, out))
    check: Callable[[], None] | None = None
    if call.operator == "quantize_linear" and isinstance(given["scale"], np.ndarray):
        check = partial(check_positive, call.operator, "scale", given["scale"])
    return plan_steps(partial(_plan_within, call.operator, layouts), check, *words)


def _plan_within(operator: str, layouts: tuple[Layout, ...], budget: threads.Budget) -> Plan:
    return plan(operator, *layouts, budget)
