"""Plans of scatter_elements: its own kernels go line by line, or those of scatter_nd by rows."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.indexing.elements import is_refused
from dmlcpu.indexing.lines import Layout, index_form, lay_out, reported
from dmlcpu.indexing.reductions import HALVES, INDEX_WORD, element_type, reduction_of
from dmlcpu.kernels import registry
from dmlcpu.kernels.elements.work import BLOCK_CELLS
from dmlcpu.kernels.scatter_nd.reduction import MULTIPLY_COMPLEX, PLAIN as NO_HALF
from dmlcpu.operators.scatter_elements.call import NAME, Call, check
from dmlcpu.operators.scatter_elements.rows import Rows, by_rows, is_expanded, row_length
from dmlcpu.reference import scatter_elements as reference_scatter_elements
from dmlcpu.runtime.memory import Workspace, frombuffer, words
from dmlcpu.runtime.threads import REFERENCE, Budget

_log = logging.getLogger("dmlcpu")

# If a call, and its rows, have at least this many elements, the plan checks whether packed indices repeat along rows.
_MANY, _LONG = 10_000, 8
# Copying out and writing it back takes as long as checking indices with this many times its bytes.
_DRAFTED, _MOST_DRAFTED = 4, 16 << 20


@functools.lru_cache(maxsize=1024)
def prepare(forms: tuple[Any, ...], options: tuple[Any, ...], budget: Budget) -> Prepared:
    """Return the prepared call. forms, options: those of `check`.

    Their `run` takes one more argument: whether out is new. Then it may be written before an index is refused.
    """
    return plan(check(forms, options), budget)


@functools.lru_cache(maxsize=1024)
def plan(call: Call, budget: Budget) -> Prepared:
    """Return the plan of a checked call."""
    results = (Tensor(call.x.shape, call.x.dtype),)
    if budget == REFERENCE:
        function = functools.partial(_refer, call)
        return ByFunction(operator=NAME, kernel="reference", results=results, function=function)
    longer = index_form(call.indices)
    if longer is not call.indices:
        converted = plan(call._replace(indices=longer), budget)
        return converting(converted, [(1, lambda indices: indices.astype(longer.dtype, order="C"))])
    if 0 in call.x.shape or 0 in call.indices.shape:
        registry.find(NAME, "scatter", budget.kernel)
        return ByFunction(operator=NAME, kernel="none", results=results, function=functools.partial(_only_copy, call))
    if budget.kernel is None and row_length(call) and is_expanded(call):
        rows = by_rows(call, budget)
        _log.debug("scatter_elements: %s into %s: rows of %d", call.indices.shape, call.x.shape, rows.length)
        return ByFunction(
            operator=NAME,
            kernel=rows.kernel,
            results=results,
            is_single=rows.is_single,
            workspace=rows.workspace,
            function=functools.partial(_run_rows, rows),
        )
    return _plan(call, results, budget)


class Repeated(NamedTuple):
    """The plan for packed indices of which every row repeats one."""

    find: Callable[..., Any]  # the kernel that reports rows with different indices
    parts: int
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernels and the work record for one set of shapes, layouts and types."""

    validate: Callable[..., Any] | None  # None: no index is refused
    copy: Callable[..., Any] | None  # None: x is out, or NumPy copies
    copies: bool
    drafts: bool  # an out that is not new is written as a copy first, which takes less time than validation
    repeated: Repeated | None
    scatter: Callable[..., Any]
    checkers: int  # shares of `validate`
    parts: int  # of `scatter`
    work: Array
    element: np.dtype[Any]  # the type as which kernels read elements
    view: Callable[..., Array]  # returns the words of an array

    def run(self, x: Array, indices: Array, updates: Array, out: Array, is_new: bool = False) -> bool | None:
        """Run; return True if an index is refused. is_new: out was made for this call."""
        if self.repeated and self._are_rows(indices, *self.repeated):
            return _run_rows(self.repeated.rows, x, indices, updates, out)
        if self.drafts and not is_new:
            draft = np.empty_like(out) if self.copies else x.copy()
            if self.run(x, indices, updates, draft, True):
                return True
            np.copyto(out, draft)
            return None
        return self._in_lines(x, indices, updates, out, is_new) or None

    def _in_lines(self, x: Array, indices: Array, updates: Array, out: Array, is_new: bool) -> bool:
        """Run line by line; return whether an index is refused."""
        scratch, flat = self.workspace.take(), self.view(indices, INDEX_WORD)
        has_bad = False
        if self.validate and not is_new:
            self.validate(flat, self.work, scratch)
            has_bad = reported(self.checkers, scratch)
        if not has_bad:
            target = self.view(out, self.element)
            if self.copy:
                self.copy(self.view(x, self.element), target)
            elif self.copies:
                np.copyto(out, x)
            self.scatter(flat, self.view(updates, self.element), target, self.work, scratch)
            has_bad = self.validate is not None and is_new and reported(self.parts, scratch)
        self.workspace.give_back(scratch)
        return has_bad

    def _are_rows(self, indices: Array, find: Callable[..., Any], parts: int, rows: Rows) -> bool:
        """Return whether every row repeats one index; three rows suffice to see that most do not."""
        each = indices.reshape(-1, rows.length)
        if not all((each[place] == each[place, 0]).all() for place in (0, len(each) // 2, -1)):
            return False
        scratch = self.workspace.take()
        find(self.view(indices, INDEX_WORD), self.work, scratch)
        found = reported(parts, scratch)
        self.workspace.give_back(scratch)
        return not found


def _plan(call: Call, results: tuple[Tensor, ...], budget: Budget) -> Plan:
    """Cut the work into parts, and write the work record."""
    row = registry.find(NAME, "scatter", budget.kernel)
    element = element_type(call.x.dtype, call.reduction, call.width)
    layout = _layout(call, element.itemsize)
    parts = budget.parts(_nanoseconds(layout), layout.most)
    checkers = budget.parts(layout.elements // 2, layout.pieces)
    by_kernel = not call.in_place and _is_packed_alike(call)
    copiers = budget.parts(call.x.nbytes // 32, call.x.nbytes // element.itemsize)
    repeated, cells = _repeated(call, layout, budget), max(parts, checkers) * (1 + BLOCK_CELLS)
    what = (call.indices.shape, call.x.shape, call.axis, row.name, parts)
    _log.debug("scatter_elements: %s into %s along axis %d: %s, %d parts", *what)
    return Plan(
        operator=NAME,
        kernel=row.name,
        results=results,
        is_single=max(parts, checkers, copiers if by_kernel else 1) == 1 and (not repeated or repeated.rows.is_single),
        workspace=Workspace(max(cells, repeated.rows.workspace.cells if repeated else 0)),
        validate=registry.find(NAME, "validate").kernel.for_parts(checkers) if call.mode == "raise" else None,
        copy=registry.find(NAME, "copy").kernel.for_parts(copiers) if by_kernel else None,
        copies=not call.in_place,
        drafts=call.mode == "raise" and call.out.strides is None and _is_drafted(call),
        repeated=repeated,
        scatter=row.kernel.for_parts(parts),
        checkers=checkers,
        parts=parts,
        work=layout.work,
        element=element,
        view=words if any(form.strides is not None for form in call[:4]) else frombuffer,
    )


def _layout(call: Call, width: int) -> Layout:
    """Return how the kernels walk through the tensors of a call; width: bytes of an element of the kernels."""
    reduction = reduction_of(NAME, call.x.dtype, call.reduction)
    return lay_out(
        call.out,
        call.indices,
        call.updates,
        call.axis,
        width,
        keeps_lines=True,
        keeps_together=reduction == MULTIPLY_COMPLEX,
        clips=call.mode == "clip",
        reduction=reduction,
        half=HALVES.get(call.x.dtype.name, NO_HALF) if call.reduction != "none" else NO_HALF,
    )


def _repeated(call: Call, layout: Layout, budget: Budget) -> Repeated | None:
    """Return the plan for rows that repeat one index; None if that is not checked."""
    is_packed = call.indices.strides is None and budget.kernel is None
    if not is_packed or layout.elements < _MANY or row_length(call) < _LONG:
        return None
    parts = budget.parts(layout.elements // 2, layout.pieces)
    return Repeated(registry.find(NAME, "repeats").kernel.for_parts(parts), parts, by_rows(call, budget))


def _is_drafted(call: Call) -> bool:
    """Return whether a copy of out takes little memory, and less time than reading all indices."""
    return call.x.nbytes <= min(call.indices.nbytes // _DRAFTED, _MOST_DRAFTED)


def _nanoseconds(layout: Layout) -> int:
    """Return the time of the updates on one thread, within a factor of 2 (Zen 4)."""
    return 2 * layout.elements + 10 * layout.rows + layout.misses


def _is_packed_alike(call: Call) -> bool:
    """Return whether x and out are packed in C order."""
    return call.x.strides is None and call.out.strides is None


def _run_rows(rows: Rows, x: Array, indices: Array, updates: Array, out: Array, is_new: bool = False) -> bool | None:
    """Run by rows; return True if an index is refused."""
    return None if rows.run(x, indices, updates, out) is None else True


def _only_copy(call: Call, x: Array, indices: Array, updates: Array, out: Array, is_new: bool = False) -> bool | None:
    """Copy x if it has no elements or no indices exist; return True if an index is refused."""
    if is_refused(call, indices):
        return True
    if not call.in_place:
        np.copyto(out, x)
    return None


def _refer(call: Call, x: Array, indices: Array, updates: Array, out: Array, is_new: bool = False) -> bool | None:
    """Run the reference; return True if an index is refused."""
    if is_refused(call, indices):
        return True
    options: Any = {"axis": call.axis, "reduction": call.reduction, "mode": call.mode}
    reference_scatter_elements(x, indices, updates, **options, out=out)
    return None
