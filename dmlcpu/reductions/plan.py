"""Plans of argmax and argmin: which kernel, how the sets are cut into parts, and their memory layout."""

import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmlcpu import reference
from dmlcpu.common.arguments import Array, type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.forms import AnyForm, Form, Shape, fitting
from dmlcpu.common.prepared import ByFunction, Prepared, nothing
from dmlcpu.kernels import registry
from dmlcpu.kernels.arg_reduce.columns import CELLS as COLUMN_CELLS, LINES
from dmlcpu.kernels.arg_reduce.scan import CELLS as SCAN_CELLS, FEW
from dmlcpu.kernels.arg_reduce.work import WORK
from dmlcpu.kernels.top_k.keys import KINDS, KeyMap, make_key_map
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.reductions.arguments import Call, check
from dmlcpu.runtime.kept_calls import kept_call
from dmlcpu.runtime.memory import Workspace, first_word, word_strides, words
from dmlcpu.runtime.records import CACHE_LINE, LINE_CELLS, record_of
from dmlcpu.runtime.threads import REFERENCE, Budget

_log = logging.getLogger("dmlcpu")

_INDEX_WORD = np.dtype(np.uint32)
_COLUMNS = 8  # the least number of adjacent sets for the columns kernel
_PIECE = 1024  # the least number of elements of a piece


@functools.lru_cache(maxsize=1024, typed=True)  # typed: 1 is not a flag, although it equals True
def prepare(
    operator: str,
    form: AnyForm,
    y_strides: Shape | None,
    axis: Any,
    select_last: Any,
    keepdims: Any,
    index_dtype: Any,
    budget: Budget,
) -> Prepared:
    """Return the prepared call, or refuse it. form: of x; options as given."""
    return plan(check(operator, Form(*form), axis, select_last, keepdims, index_dtype), y_strides, budget)


def plan(call: Call, y_strides: Shape | None, budget: Budget) -> Prepared:
    """Return the plan of a checked call."""
    y = call.y
    if 0 in y.shape:
        return ByFunction(operator=call.operator, kernel="none", results=(y,), function=nothing)
    if budget == REFERENCE:
        refer = functools.partial(_refer, call)
        return ByFunction(operator=call.operator, kernel="reference", results=(y,), function=refer)
    return _plan(call, _lay_out(call, Form(*y, fitting(y_strides, y.shape))), budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernels and the work record for one shape, layout and type."""

    row: registry.Row
    call: Callable[..., Any]  # the kernel, for this number of parts
    merge: Callable[..., Any] | None  # merges the winners of pieces
    work: Array  # the work record of the kernels
    word: np.dtype[Any]  # the type in which they see elements

    def run(self, x: Array, y: Array) -> None:
        """Run."""
        places = words(y, _INDEX_WORD)
        scratch = self.workspace.take()
        self.call(words(x, self.word), places, self.work, scratch)
        if self.merge:
            self.merge(places, self.work, scratch)
        self.workspace.give_back(scratch)

    def keep(self, x: Array, y: Array) -> Callable[[], bool] | None:
        """Return a kept call."""
        if not self.is_single:
            return None
        return kept_call(self.row.kernel, words(x, self.word), words(y, _INDEX_WORD), self.work, self.workspace.make())


class Layout(NamedTuple):
    """The layout of the sets and their results, in words: dimensions are merged if possible."""

    n: int  # elements of a run
    step: int  # from one to the next
    runs: Sequence[int]  # of a set: their dimensions
    run_strides: Sequence[int]
    sizes: Sequence[int]  # the dimensions of all sets
    x_strides: Sequence[int]
    y_strides: Sequence[int]
    x_start: int
    y_start: int

    @property
    def columns(self) -> int:
        """The number of adjacent sets in x."""
        return self.sizes[-1] if self.x_strides[-1] == 1 else 1


def _lay_out(call: Call, y: Form) -> Layout:
    """Return the layout. Sets are in x's memory order; their elements in the tensor's order."""
    x, axes = call.x, call.axes
    x_steps, y_steps = word_strides(x.steps, x.dtype.itemsize), word_strides(y.steps, _INDEX_WORD.itemsize)
    of_kept = [y_steps[d] for d in call.kept] if call.keepdims else y_steps
    kept = sorted(zip(call.kept, of_kept, strict=True), key=lambda pair: -abs(x_steps[pair[0]]))
    sizes, x_strides, y_strides = merge(
        [x.shape[d] for d, _ in kept], [x_steps[d] for d, _ in kept], [stride for _, stride in kept]
    )
    runs, run_strides = merge([x.shape[d] for d in axes], [x_steps[d] for d in axes])
    n, step = runs.pop(), run_strides.pop()
    starts = first_word(x.shape, x_steps), first_word(y.shape, y_steps)
    return Layout(n, step, runs or [1], run_strides or [0], sizes, x_strides, y_strides, *starts)


def _plan(call: Call, layout: Layout, budget: Budget) -> Plan:
    """Choose the kernel, cut the work into parts, and write the work record."""
    width, rows = call.x.dtype.itemsize, math.prod(layout.sizes)
    name = budget.kernel or ("columns" if layout.columns >= _COLUMNS else "scan")
    row = registry.find(call.operator, "find", name)
    is_scan = row.name == "scan"
    a_block = LINES * _lanes(width)
    blocks = rows if is_scan else rows // layout.columns * -(-layout.columns // a_block)
    most = max(1, call.size // _PIECE)
    parts = budget.parts(work=_nanoseconds(call, layout, is_scan), most=blocks * most)
    pieces = 1 if blocks >= 4 * parts else min(parts, most)
    found = rows * pieces * 2 if pieces > 1 else 0
    found += -found % LINE_CELLS
    _log.debug(
        "%s: %s along axis %s: %s, %d parts", call.operator, call.x.shape, ", ".join(map(str, call.axes)), name, parts
    )
    return Plan(
        operator=call.operator,
        kernel=row.name,
        results=(call.y,),
        is_single=parts == 1,
        workspace=Workspace(found + parts * (SCAN_CELLS if is_scan else COLUMN_CELLS)),
        row=row,
        call=row.kernel.for_parts(parts),
        merge=registry.find(call.operator, "merge").kernel.for_parts(1) if pieces > 1 else None,
        work=_work(call, layout, rows=rows, pieces=pieces, found=found),
        word=np.dtype(f"u{width}"),
    )


def _work(call: Call, layout: Layout, **cut: int) -> Array:
    """Write the work record."""
    return record_of(
        WORK,
        n=layout.n,
        size=call.size,
        columns=layout.columns,
        step=layout.step,
        takes_last=call.select_last,
        index_words=call.dtype.itemsize // _INDEX_WORD.itemsize,
        walk=walk_of(layout.sizes),
        runs=walk_of(layout.runs),
        run_strides=layout.run_strides,
        x={"start": layout.x_start, "strides": layout.x_strides},
        y={"start": layout.y_start, "strides": layout.y_strides},
        key_map=_key_map(call)._asdict(),
        **cut,
    )


def _key_map(call: Call) -> KeyMap:
    """Return the map to keys, in which NaN has the greatest key in both directions."""
    data_type, width = DATA_TYPES[type_name(call.x.dtype)], call.x.dtype.itemsize
    is_largest = call.operator == "argmax"
    key_map = make_key_map(KINDS[data_type.kind], width, data_type.infinity, is_largest, nan_last=False)
    return key_map._replace(nan=(1 << 8 * width) - 1)


def _nanoseconds(call: Call, layout: Layout, is_scan: bool) -> int:
    """Return the time of a call on one thread, within a factor of 2 (Zen 4)."""
    width, rows, n = call.x.dtype.itemsize, math.prod(layout.sizes), layout.n
    if not is_scan:
        blocks = -(-rows // min(layout.columns, LINES * _lanes(width)))
        return int(blocks * call.size * 12 + rows * (2 + call.size * width / 10))
    runs = call.size // n * rows
    if layout.step != 1:
        return runs * (25 + 2 * n)
    in_lines = n - n % _lanes(width) if n > FEW else 0
    return int(runs * ((25 if n > FEW else 10) + in_lines * width / 12 + (n - in_lines) * 1.6))


def _lanes(width: int) -> int:
    """Return the elements of a line, see `line_of`."""
    return max(CACHE_LINE // width, 16)


def _refer(call: Call, x: Array, y: Array) -> None:
    """Run the reference."""
    function = getattr(reference, call.operator)
    function(x, axis=call.axes, select_last=call.select_last, keepdims=call.keepdims, index_dtype=call.dtype, out=y)
