"""Quantization by the range of the elements: kernels find ranges, then scales, then quantize."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_axis, as_dtype, check_type
from dmlcpu.common.forms import Form, Shape, fitting, form_of
from dmlcpu.common.parameters import as_float32
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import DmlError
from dmlcpu.kernels import registry
from dmlcpu.kernels.quantize_linear.dynamic_range import RANGE_CELLS
from dmlcpu.kernels.quantize_linear.work import SPACE_CELLS, TILE, WORK
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.quantizers.arguments import FLOAT, FLOATS
from dmlcpu.quantizers.layout import Layout, lay_out, layout_of
from dmlcpu.quantizers.plan import cut
from dmlcpu.reference import dynamic_quantize_linear as reference_dynamic_quantize_linear
from dmlcpu.runtime.memory import Workspace, frombuffer, packed_strides, words
from dmlcpu.runtime.records import record_of
from dmlcpu.runtime.threads import REFERENCE, Budget, plan_for_now

NAME = "dynamic_quantize_linear"
_TYPES = ("uint8", "int8")
_BYTE = np.dtype(np.uint8)


@functools.lru_cache(maxsize=1024, typed=True)  # typed: 1.0 is not an axis, although it equals 1
def prepare(form: Any, axis: Any, out_dtype: Any, y_strides: Any, budget: Budget) -> Prepared:
    """Return the prepared call. form: of x; axis, out_dtype: as given."""
    x = Form(*form)
    check_type(NAME, "x", x.dtype, FLOATS)
    axis = None if axis is None else as_axis(NAME, "axis", axis, "x", len(x.shape))
    y = Form(x.shape, as_dtype(NAME, "out_dtype", out_dtype, _TYPES), fitting(y_strides, x.shape))
    kept = kept_shape(x.shape, axis)
    results = Tensor(y.shape, y.dtype), Tensor(kept, FLOAT), Tensor(kept, y.dtype)
    if budget == REFERENCE or 0 in x.shape:
        return ByFunction(operator=NAME, kernel="reference", results=results, function=functools.partial(_refer, axis))
    floats = Form(x.shape, FLOAT) if x.dtype == np.float64 else x
    plan = _plan if axis is None or math.prod(kept) == 1 else functools.partial(_plan_rows, axis)
    return converting(plan(floats, y, results, budget), [(0, as_float32)] if floats is not x else [])


def kept_shape(shape: Shape, axis: int | None) -> Shape:
    """Return the shape of scales: () for one scale, else x's shape with 1 along the axis."""
    return () if axis is None else (*shape[:axis], 1, *shape[axis + 1 :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernels and the work record for one set of layouts."""

    find_range: Callable[..., Any]  # for this number of parts, like `quantize`
    settle: Callable[..., Any]  # writes scale and zero point
    quantize: Callable[..., Any]
    found: Array  # before a call: 0, which stays if the range is not finite, and the number of parts
    work: Array
    word: np.dtype[Any]  # the type in which the kernels see x
    view: Callable[..., Array]  # returns the words of x and y

    def run(self, x: Array, y: Array, scale: Array, zero_point: Array) -> bool | None:
        """Run; return True, having written nothing, if the range of x is not finite."""
        view = self.view
        flat = view(x, self.word), frombuffer(scale, FLOAT), frombuffer(zero_point, _BYTE), view(y, _BYTE)
        scratch, found = self.workspace.take(), self.found.copy()
        self.find_range(flat[0], self.work, scratch)
        self.settle(flat[1], flat[2], found, self.work, scratch)
        if found[0]:
            self.quantize(*flat, self.work, scratch)
        self.workspace.give_back(scratch)
        return None if found[0] else True


def _plan(x: Form, y: Form, results: tuple[Tensor, ...], budget: Budget) -> Prepared:
    """Cut the work of one range; one part on packed arrays, writeable or not, is treated as a row."""
    of_x, of_y = layout_of(x), layout_of(y)
    one = (1,) * len(x.shape), (0,) * len(x.shape)
    row, work, parts = cut(NAME, (of_x, Layout(*one, "float32"), Layout(*one, of_y.type), of_y), budget)
    if parts == 1 and x.is_packed and y.is_packed:
        return _plan_rows(1, _as_row(x), _as_row(y), results, budget)
    find_range, settle = (registry.find(NAME, name).kernel for name in ("range", "settle"))
    return Plan(
        operator=NAME,
        kernel=row.name,
        results=results,
        is_single=parts == 1,
        workspace=Workspace(parts * (RANGE_CELLS + SPACE_CELLS)),
        find_range=find_range.for_parts(parts),
        settle=settle.for_parts(1),
        quantize=row.kernel.for_parts(parts),
        found=np.array([0, parts]),
        work=work,
        word=of_x.word,
        view=view_of(x, y),
    )


def _as_row(form: Form) -> Form:
    """Return the form of a packed array as one row. A read-only array has strides in its form, and so has the row."""
    flat = 1, math.prod(form.shape)
    return Form(flat, form.dtype, None if form.strides is None else packed_strides(flat, form.dtype.itemsize))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPlan(Prepared):
    """The kernels and their work records for one set of layouts, with a range for each row."""

    settle: Callable[..., Any]  # finds ranges, and writes scales and zero points
    quantize: Callable[..., Any]
    rows: int
    found: Array  # before a call: 1, which becomes 0 if a range is not finite
    ranges: Array  # the work record of `settle`
    work: Array  # the work record of `quantize`
    word: np.dtype[Any]  # the type in which the kernels see x
    view: Callable[..., Array]  # returns the words of x and y

    def run(self, x: Array, y: Array, scale: Array, zero_point: Array) -> bool | None:
        """Run; return True, having written nothing, if the range of a row is not finite."""
        steps, zeros = np.empty(self.rows, FLOAT), np.empty(self.rows, _BYTE)
        if self.run_flat(x, y, steps, zeros):
            return True
        scale[...] = steps.reshape(scale.shape)
        zero_point[...] = zeros.view(zero_point.dtype).reshape(scale.shape)
        return None

    def run_flat(self, x: Array, y: Array, scale: Array, zero_point: Array) -> bool | None:
        """Do the same; scale and zero point are flat words, which are always written."""
        seen, scratch, found = self.view(x, self.word), self.workspace.take(), self.found.copy()
        self.settle(seen, scale, zero_point, found, self.ranges, scratch)
        if found[0]:
            self.quantize(seen, scale, zero_point, self.view(y, _BYTE), self.work, scratch)
        self.workspace.give_back(scratch)
        return None if found[0] else True


def _plan_rows(axis: int, x: Form, y: Form, results: tuple[Tensor, ...], budget: Budget) -> RowsPlan:
    """Cut the work of a range for each row: elements along the axis."""
    of_x, of_y, kept = layout_of(x), layout_of(y), kept_shape(x.shape, axis)
    one = kept, packed_strides(kept)
    row, work, parts = cut(NAME, (of_x, Layout(*one, "float32"), Layout(*one, of_y.type), of_y), budget)
    sizes, strides = merge(kept, of_x.strides)
    n, rows, step = x.shape[axis], math.prod(kept), of_x.strides[axis]
    fields = lay_out(of_x, Layout(*one, "float32"), Layout(*one, of_y.type), of_y)
    limits = np.iinfo(y.dtype)
    fields |= {"n": n, "tile": n if step == 1 else TILE, "items": rows, "walk": walk_of(sizes)}
    fields |= {"x": {**fields["x"], "step": step, "strides": strides}}
    fields |= {"lowest": int(limits.min), "highest": int(limits.max)}
    # In nanoseconds (Zen 3). A step other than 1 takes an element from another cache line.
    row_parts = budget.parts(int(rows * (20 + n * (0.08 if step == 1 else 1.5))), rows)
    return RowsPlan(
        operator=NAME,
        kernel=row.name,
        results=results,
        is_single=parts == row_parts == 1,
        workspace=Workspace(max(parts, row_parts) * SPACE_CELLS),
        settle=registry.find(NAME, "rows").kernel.for_parts(row_parts),
        quantize=row.kernel.for_parts(parts),
        rows=rows,
        found=np.ones(1, np.int64),
        ranges=record_of(WORK, **fields),
        work=work,
        word=of_x.word,
        view=view_of(x, y),
    )


def view_of(x: Form, y: Form) -> Callable[..., Array]:
    """Return a function that returns the words of x and y."""
    return frombuffer if x.strides is None and y.strides is None else words


def _refer(axis: int | None, x: Array, y: Array, scale: Array, zero_point: Array) -> bool | None:
    """Run the reference; return True if a range of x is not finite. scale, zero_point: of any shape."""
    values = limits_of(x, axis)
    with np.errstate(all="ignore"):
        if not np.all(values[..., 1] - values[..., 0] < np.inf):  # false for NaN
            return True
    floats = x if x.dtype == FLOAT else as_float32(x)
    kept = kept_shape(x.shape, axis)
    out = y, scale.reshape(kept), zero_point.reshape(kept)
    reference_dynamic_quantize_linear(floats, axis=axis, out_dtype=y.dtype, out=out)
    return None


def limits_of(x: Array, axis: int | None) -> Array:
    """Return the least and the greatest of 0 and the elements along the axis, or of all, along a last dimension."""
    with np.errstate(all="ignore"):
        values = x.astype(FLOAT, copy=False)
        keep: dict[str, Any] = {"axis": axis, "keepdims": axis is not None, "initial": 0}
        return np.stack([values.min(**keep), values.max(**keep)], axis=-1)


def scales_of(limits: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return the scales and zero points of finite ranges: (..., 2), the least and the greatest."""
    axis = None if limits.ndim == 1 else limits.ndim - 1
    prepared = plan_for_now(prepare, (form_of(limits), axis, dtype, None))
    y, scale, zero_point = (make() for make in prepared.new)
    prepared.run(limits, y, scale, zero_point)
    return scale.reshape(limits.shape[:-1]), zero_point.reshape(limits.shape[:-1])


def check_range(x: Array, axis: int | None, operator: str, field: str, start: tuple[int, ...] = ()) -> None:
    """Refuse elements that are not finite, and ranges beyond float32; start: the position of x in a larger array."""
    with np.errstate(all="ignore"):
        bad = ~np.isfinite(x.astype(FLOAT))
    if bad.any():
        where = [int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)]
        place = [i + j for i, j in zip(where, start or (0,) * x.ndim, strict=True)]
        found = str(x[tuple(where)])
        raise DmlError(operator, f"{field}[{', '.join(map(str, place))}]", found, "finite float32 numbers")
    check_limits(limits_of(x, axis), axis, operator, field)


def check_limits(limits: Array, axis: int | None, operator: str, field: str) -> None:
    """Refuse a range beyond float32; limits: as `limits_of` returns them."""
    with np.errstate(all="ignore"):
        bad = ~(limits[..., 1] - limits[..., 0] < np.inf)
    if not bad.any():
        return
    where = np.unravel_index(int(bad.argmax()), bad.shape)
    low, high = limits[where]
    place = (
        f"[{', '.join(':' if axis is not None and d == axis % bad.ndim else str(i) for d, i in enumerate(where))}]"
        if where
        else ""
    )
    raise DmlError(operator, f"{field}{place}", f"from {low!s} to {high!s}", "elements whose range is a finite float32")
