"""Plans of quantizers: how the work is cut, and what the kernels read."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu import reference
from dmlcpu.common.arguments import Array
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.forms import Form, Shape, fitting
from dmlcpu.common.parameters import as_float32, is_usable
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.kernels import registry
from dmlcpu.kernels.quantize_linear.dynamic_range import RANGE_CELLS
from dmlcpu.kernels.quantize_linear.work import NIBBLE, SPACE_CELLS, TILE, WORK
from dmlcpu.kernels.registry import Row
from dmlcpu.kernels.scales import are_positive, keep_scaled
from dmlcpu.quantizers.arguments import FLOAT, Call, check, repeats_of
from dmlcpu.quantizers.layout import Layout, lay_out, layout_of
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import Workspace, frombuffer, words
from dmlcpu.runtime.records import CELL, record_of
from dmlcpu.runtime.threads import REFERENCE, Budget

_log = logging.getLogger("dmlcpu")

Layouts = tuple[Layout, Layout, Layout, Layout]  # of x, scale, zero point and y


@functools.lru_cache(maxsize=1024)
def prepare(operator: str, forms: tuple[Any, ...], options: tuple[Any, ...], budget: Budget) -> Prepared:
    """Return the prepared call. forms: those of `check`, and y's strides; options: those of `check`."""
    call, converters = check(operator, forms[:3], options)
    return converting(plan(call, fitting(forms[3], call.x.shape), budget), converters)


@functools.lru_cache(maxsize=1024)
def plan(call: Call, y_strides: Shape | None, budget: Budget) -> Prepared:
    """Return the plan of a checked call."""
    y = Form(call.x.shape, call.dtype, y_strides)
    results = (Tensor(y.shape, y.dtype),)
    if 0 in y.shape:
        check_only = functools.partial(_check_only, call)
        return ByFunction(operator=call.operator, kernel="none", results=results, function=check_only)
    if budget == REFERENCE:
        return ByFunction(
            operator=call.operator, kernel="reference", results=results, function=functools.partial(_refer, call)
        )
    if call.block_size:
        return _in_pieces(call, y, budget)
    if call.zero_point and (repeats := repeats_of(call)):
        return _repeating(call, call.zero_point, repeats, y, budget)
    if call.x.dtype == np.float64:
        rounded = call._replace(x=Form(call.x.shape, FLOAT))
        return converting(plan(rounded, y_strides, budget), [(0, as_float32)])
    forms = *call.forms, y
    zero = layout_of(call.zero_point) if call.zero_point else None
    layouts = layouts_of(call.operator, layout_of(call.x), layout_of(call.scale), zero, layout_of(y))
    is_packed = all(form is None or form.strides is None for form in forms)
    return plan_layouts(call.operator, layouts, (call.zero, call.is_checked, is_packed), results, budget)


def layouts_of(operator: str, x: Layout, scale: Layout, zero: Layout | None, y: Layout) -> Layouts:
    """Return the layouts of all tensors; a missing zero point is a single 0."""
    if zero is None:
        ndim, quantized = len(x.shape), x if operator == "dequantize_linear" else y
        zero = Layout((1,) * ndim, (0,) * ndim, quantized.type)
    return x, scale, zero, y


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernel and the work record for one set of layouts."""

    row: Row
    call: Callable[..., Any]  # the kernel, for this number of parts
    work: Array
    words: tuple[np.dtype[Any], ...]  # the types in which kernels see x, zero point and y
    zero: Array  # the zero point of calls without an array of zero points
    is_checked: bool  # whether the scales are checked
    view: Callable[..., Array]  # returns the words of an array

    def run(self, x: Array, scale: Array, zero_point: Array | None, y: Array) -> bool | None:
        """Run; return True if a scale is refused."""
        view, (x_word, zero_word, y_word) = self.view, self.words
        scales = view(scale, FLOAT)
        if not self.is_checked and not (are_positive(scales) if view is frombuffer else is_usable(scale)):
            return True
        zero = self.zero if zero_point is None else view(zero_point, zero_word)
        scratch = self.workspace.take()
        self.call(view(x, x_word), scales, zero, view(y, y_word), self.work, scratch)
        self.workspace.give_back(scratch)
        return None

    def keep(self, x: Array, scale: Array, zero_point: Array | None, y: Array) -> Callable[[], bool] | None:
        """Return a kept call."""
        if not self.is_single:
            return None
        x_word, zero_word, y_word = self.words
        scales = words(scale, FLOAT)
        zero = self.zero if zero_point is None else words(zero_point, zero_word)
        arrays = (words(x, x_word), scales, zero, words(y, y_word), self.work, self.workspace.make())
        return keep_scaled([] if self.is_checked else [scales], self.row.kernel, *arrays)


@functools.lru_cache(maxsize=1024)
def plan_layouts(
    operator: str, layouts: Layouts, known: tuple[int, bool, bool], results: tuple[Tensor, ...], budget: Budget
) -> Plan:
    """Return the plan for tensors of these layouts.

    known: the zero point if it is a number, whether scales are checked, whether all arrays are packed; results: for
    calls that allocate them.
    """
    number, is_checked, is_packed = known
    row, fields, parts = cut(operator, layouts, budget)
    x, _, zero, y = layouts
    mask = (1 << DATA_TYPES[zero.type].bits) - 1
    return Plan(
        operator=operator,
        results=results,
        kernel=row.name,
        is_single=parts == 1,
        workspace=Workspace(parts * SPACE_CELLS),
        row=row,
        call=row.kernel.for_parts(parts),
        work=fields,
        words=(x.word, zero.word, y.word),
        zero=np.array([number & mask], zero.word),
        is_checked=is_checked,
        view=frombuffer if is_packed else words,
    )


def cut(operator: str, layouts: Layouts, budget: Budget) -> tuple[Row, Array, int]:
    """Return the kernel of an operator, its work record, and the number of parts."""
    x, _, _, y = layouts
    stage = "dequantize" if operator == "dequantize_linear" else "quantize"
    row: Row = registry.find(operator, stage, budget.kernel)
    fields = lay_out(*layouts)
    parts = budget.parts(_nanoseconds(fields), _most_parts(fields))
    data_type = DATA_TYPES[y.type]
    limits = (0, 0) if data_type.kind == "f" else (data_type.lowest, data_type.highest)
    _log.debug("%s: %s of %s to %s: %s, %d parts", operator, x.shape, x.type, y.type, row.name, parts)
    return row, record_of(WORK, lowest=limits[0], highest=limits[1], **fields), parts


def _nanoseconds(fields: dict[str, Any]) -> int:
    """Return the time of the work on one thread, within a factor of 2 (Zen 5)."""
    x, y = fields["x"], fields["y"]
    is_strided = x["step"] != 1 or y["step"] != 1 or NIBBLE in (x["kind"], y["kind"])
    each = (0.12 if fields["is_direct"] else 0.2) + is_strided + 0.2 * (fields["block"] == 1)
    rows = fields["items"] // fields["tiles"]
    return int(fields["items"] * 40 + rows * fields["n"] * each)


def _most_parts(fields: dict[str, Any]) -> int:
    """Return the greatest number of parts: two threads must not write to one byte."""
    y, items = fields["y"], int(fields["items"])
    if y["kind"] != NIBBLE:
        return items
    is_even = y["step"] == 1 and not any(each % 2 for each in (fields["n"], TILE, y["start"], *y["strides"]))
    return items if is_even or items == 1 else 1


def _in_pieces(call: Call, y: Form, budget: Budget) -> Prepared:
    """Return the plan of a call with a short last block: first everything before that block, then the block."""
    axis, n = call.axis, call.x.shape[call.axis]
    whole = n // call.block_size
    even = whole * call.block_size
    forms: tuple[Any, ...] = (*call.forms, y)
    pieces = []
    for elements, blocks in ((slice(0, even), slice(0, whole)), (slice(even, n), slice(whole, whole + 1))):
        if elements.start < elements.stop:
            cuts = [
                (slice(None),) * axis + (slice(None) if size == 1 else elements if size == n else blocks,)
                for size in [form.shape[axis] if form else 1 for form in forms]
            ]
            x, scale, zero, result = [form.part(cut) if form else form for form, cut in zip(forms, cuts, strict=True)]
            part = call._replace(x=x, scale=scale, zero_point=zero, is_checked=True, block_size=0)
            pieces.append((cuts, plan(part, result.steps, budget)))
    shapes = [form and form.shape for form in forms]

    def run(*arrays: Any) -> bool | None:
        if _check_only(call, *arrays):
            return True
        full = [each if each is None else each.reshape(shape) for each, shape in zip(arrays, shapes, strict=True)]
        for cuts, piece in pieces:
            piece.run(*[each if each is None else each[cut] for each, cut in zip(full, cuts, strict=True)])
        return None

    plans = [piece for _, piece in pieces]
    return ByFunction(
        operator=call.operator,
        kernel=plans[0].kernel,
        results=(Tensor(y.shape, y.dtype),),
        is_single=all(piece.is_single for piece in plans),
        workspace=max((piece.workspace for piece in plans), key=lambda workspace: workspace.cells),
        function=run,
    )


def _repeating(call: Call, zero_point: Form, repeats: list[tuple[int, int]], y: Form, budget: Budget) -> Prepared:
    """Return the plan of a call that first repeats its zero points."""
    shape = zero_point.shape
    wide = list(shape)
    for count, d in repeats:
        wide[d] *= count

    def repeat(array: Array) -> Array:
        zeros = array.reshape(shape)
        for count, d in repeats:
            zeros = np.repeat(zeros, count, axis=d)
        return zeros

    repeated = call._replace(zero_point=Form(tuple(wide), zero_point.dtype))
    return converting(plan(repeated, y.strides, budget), [(2, repeat)])


def _check_only(call: Call, x: Array, scale: Array, *others: Any) -> bool | None:
    """Return True if a scale is refused."""
    return None if call.is_checked or is_usable(scale) else True


def _refer(call: Call, x: Array, scale: Array, zero_point: Any, y: Array) -> bool | None:
    """Run the reference; return True if a scale is refused."""
    if _check_only(call, x, scale):
        return True
    zero = zero_point.reshape(call.zero_point.shape) if call.zero_point else call.zero
    blocks = {"axis": call.axis, "block_size": call.block_size} if call.block_size else {}
    options: dict[str, Any] = {**blocks, "out_dtype": y.dtype, "out": y}
    getattr(reference, call.operator)(x, scale.reshape(call.scale.shape), zero, **options)
    return None


def workspace_of() -> int:
    """Return the peak bytes of workspace of a call."""
    return CELL * threads.most().threads * (SPACE_CELLS + RANGE_CELLS)
