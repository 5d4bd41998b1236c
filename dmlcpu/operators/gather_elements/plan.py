"""Plans of gather_elements: the checks, and how the work is cut."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form, fitting
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.indexing.elements import check_elements, is_refused
from dmlcpu.indexing.lines import Layout, index_form, lay_out, reported
from dmlcpu.indexing.reductions import INDEX_WORD, element_type
from dmlcpu.kernels import registry
from dmlcpu.kernels.elements.vectors import vectors_pay
from dmlcpu.kernels.elements.work import BLOCK_CELLS
from dmlcpu.kernels.scatter_nd.reduction import OVERWRITE, PLAIN as NO_HALF
from dmlcpu.reference import gather_elements as reference_gather_elements
from dmlcpu.runtime.memory import Workspace, frombuffer, words
from dmlcpu.runtime.threads import REFERENCE, Budget

NAME = "gather_elements"
MODES = ("raise", "clip")

_log = logging.getLogger("dmlcpu")


class Call(NamedTuple):
    """A call, checked except for the values of indices."""

    x: Form
    indices: Form
    y: Form
    axis: int
    mode: str = "raise"
    width: int = 0  # bytes of the words that elements consist of; 0: those of their type


def check(forms: tuple[Any, ...], options: tuple[Any, ...]) -> Call:
    """Return the checked call, or refuse it. forms: of x and indices, and y's strides; options: of a Call."""
    x, indices = Form(*forms[0]), Form(*forms[1])
    axis, mode, width = options
    axis = check_elements(NAME, x, indices, axis, mode, MODES)
    return Call(x, indices, Form(indices.shape, x.dtype, fitting(forms[2], indices.shape)), axis, mode, width)


@functools.lru_cache(maxsize=1024)
def prepare(forms: tuple[Any, ...], options: tuple[Any, ...], budget: Budget) -> Prepared:
    """Return the prepared call. forms, options: those of `check`.

    Their `run` takes one more argument: whether y is new. Then it may be written before an index is refused.
    """
    return plan(check(forms, options), budget)


@functools.lru_cache(maxsize=1024)
def plan(call: Call, budget: Budget) -> Prepared:
    """Return the plan of a checked call."""
    results = (Tensor(call.y.shape, call.y.dtype),)
    if budget == REFERENCE:
        function = functools.partial(_refer, call)
        return ByFunction(operator=NAME, kernel="reference", results=results, function=function)
    longer = index_form(call.indices)
    if longer is not call.indices:
        converted = plan(call._replace(indices=longer), budget)
        return converting(converted, [(1, lambda indices: indices.astype(longer.dtype, order="C"))])
    if 0 in call.x.shape or 0 in call.indices.shape:
        registry.find(NAME, "gather", budget.kernel)
        check_only = functools.partial(_check_only, call)
        return ByFunction(operator=NAME, kernel="none", results=results, function=check_only)
    return _plan(call, results, budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernels and the work record for one set of shapes, layouts and types."""

    validate: Callable[..., Any] | None  # None: no index is refused
    gather: Callable[..., Any]
    checkers: int  # shares of `validate`
    parts: int  # of `gather`
    work: Array
    word: np.dtype[Any]  # the type as which kernels read elements
    view: Callable[..., Array]  # returns the words of an array

    def run(self, x: Array, indices: Array, y: Array, is_new: bool = False) -> bool | None:
        """Run; return True if an index is refused. is_new: y was made for this call."""
        scratch, flat = self.workspace.take(), self.view(indices, INDEX_WORD)
        has_bad = False
        if self.validate and not is_new:
            self.validate(flat, self.work, scratch)
            has_bad = reported(self.checkers, scratch)
        if not has_bad:
            self.gather(self.view(x, self.word), flat, self.view(y, self.word), self.work, scratch)
            has_bad = self.validate is not None and is_new and reported(self.parts, scratch)
        self.workspace.give_back(scratch)
        return has_bad or None


def _plan(call: Call, results: tuple[Tensor, ...], budget: Budget) -> Plan:
    """Cut the work into parts, and write the work record."""
    row, word = registry.find(NAME, "gather", budget.kernel), element_type(call.x.dtype, "none", call.width)
    layout = lay_out(
        call.x,
        call.indices,
        call.y,
        call.axis,
        word.itemsize,
        keeps_lines=False,
        loads_vectors=vectors_pay(word.itemsize),
        clips=call.mode == "clip",
        reduction=OVERWRITE,
        half=NO_HALF,
    )
    parts = budget.parts(_nanoseconds(layout), layout.most)
    checkers = budget.parts(layout.elements // 2, layout.pieces)
    what = (call.indices.shape, call.x.shape, call.axis, row.name, parts)
    _log.debug("gather_elements: %s of %s along axis %d: %s, %d parts", *what)
    return Plan(
        operator=NAME,
        kernel=row.name,
        results=results,
        is_single=max(parts, checkers) == 1,
        workspace=Workspace(max(parts, checkers) * (1 + BLOCK_CELLS)),
        validate=registry.find(NAME, "validate").kernel.for_parts(checkers) if call.mode == "raise" else None,
        gather=row.kernel.for_parts(parts),
        checkers=checkers,
        parts=parts,
        work=layout.work,
        word=word,
        view=words if any(form.strides is not None for form in call[:3]) else frombuffer,
    )


def _nanoseconds(layout: Layout) -> int:
    """Return the time of the copies on one thread, within a factor of 2 (Zen 4)."""
    return layout.elements + 10 * layout.rows + layout.misses


def _check_only(call: Call, x: Array, indices: Array, y: Array, is_new: bool = False) -> bool | None:
    """Return True if an index is refused; nothing can be copied."""
    return is_refused(call, indices) or None


def _refer(call: Call, x: Array, indices: Array, y: Array, is_new: bool = False) -> bool | None:
    """Run the reference; return True if an index is refused."""
    if is_refused(call, indices):
        return True
    options: Any = {"axis": call.axis, "mode": call.mode}
    reference_gather_elements(x, indices, **options, out=y)
    return None
