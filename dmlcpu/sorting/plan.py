"""How sorts are carried out: which kernel, and how the work is cut."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu import reference
from dmlcpu.annotations import Nan
from dmlcpu.common.arguments import Array, same_memory, type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.forms import Form, Shape
from dmlcpu.common.prepared import ByFunction, Prepared, nothing
from dmlcpu.common.regions import Tensor
from dmlcpu.common.sequences import Sequences, sequences_of
from dmlcpu.kernels import registry
from dmlcpu.kernels.sort.split import split_cells
from dmlcpu.kernels.sort.table import Sorting
from dmlcpu.kernels.sort.work import WORK, share_cells, words_of
from dmlcpu.kernels.top_k.keys import KINDS, make_key_map
from dmlcpu.kernels.top_k.order import RANKED
from dmlcpu.runtime.kept_calls import kept_call
from dmlcpu.runtime.memory import Workspace, words as words_in
from dmlcpu.runtime.records import record_of
from dmlcpu.runtime.threads import REFERENCE, Budget
from dmlcpu.sorting.call import Call, Options, check
from dmlcpu.sorting.steps import Steps

_log = logging.getLogger("dmlcpu")

_INDEX_WORD = np.dtype(np.uint32)
_NOWHERE = {"start": 0, "step": 0, "strides": []}
# Elements of each part of a sequence that several threads sort, at least: each part has 1,280 counts.
_PART = 1 << 14


@functools.lru_cache(maxsize=1024)
def prepare(operator: str, forms: tuple[Any, ...], options: Options, budget: Budget) -> Prepared:
    """Return the prepared call. forms: of x, then the strides of the outputs; options: those of `check`."""
    x, *strides = forms
    return plan(check(operator, x, options), tuple(strides), budget)


@functools.lru_cache(maxsize=1024)
def plan(call: Call, strides: tuple[Shape | None, ...], budget: Budget) -> Prepared:
    """Return the plan of a checked call. strides: of the outputs, as forms have them."""
    shape, axis = call.x.shape, call.axis
    width, n = call.x.dtype.itemsize, shape[axis]
    of_values = [(Tensor(shape, call.x.dtype), np.dtype(f"u{width}"))] if call.has_values else []
    of_indices = [(Tensor(shape, call.index_dtype), _INDEX_WORD)] if call.index_dtype else []
    results, output_words = zip(*of_values, *of_indices, strict=True)
    if budget == REFERENCE:
        refer = functools.partial(_refer, call)
        return ByFunction(operator=call.operator, kernel="reference", results=results, function=refer)
    if 0 in shape:
        return ByFunction(operator=call.operator, kernel="none", results=results, function=nothing)
    outputs = [Form(each.shape, each.dtype, own) for each, own in zip(results, strides, strict=True)]
    word_bytes = [word.itemsize for word in output_words]
    sequences = sequences_of(axis, [(call.x, width), *zip(outputs, word_bytes, strict=True)])
    sorts_keys = call.index_dtype is None and width < 8 and n > RANKED
    entry, parts = choose(call, sequences, sorts_keys, budget)
    lanes = entry.lanes(sequences.columns)
    words = 0 if sorts_keys and entry.name in ("rows", "split") else words_of(entry.name, n, lanes)
    cells = share_cells(words, n, width, lanes)
    work = _work_of(call, sequences, lanes, words, cells)
    _log.debug("%s: %s along axis %d: %s, %d parts", call.operator, shape, axis, entry.name, parts)
    run: Callable[..., Any] = entry.kernel.for_parts(parts, min(parts, budget.threads))
    if entry.name == "split":
        run = Steps(run, parts, sequences.rows, n, np.dtype(f"u{width}"), sorts_keys)
    return Plan(
        operator=call.operator,
        results=results,
        kernel=entry.name,
        is_single=parts == 1,
        workspace=Workspace(split_cells(words, n, width, parts) if entry.name == "split" else parts * cells),
        row=entry,
        call=run,
        work=work,
        words=(np.dtype(f"u{width}"), *output_words),
        has_values=call.has_values,
        of_copy=functools.partial(plan, call._replace(x=Form(shape, call.x.dtype)), strides, budget),
    )


def _work_of(call: Call, sequences: Sequences, lanes: int, words: int, cells: int) -> Array:
    """Return the work record."""
    x, *outputs = sequences.tensors
    data_type = DATA_TYPES[type_name(call.x.dtype)]
    options = KINDS[data_type.kind], call.x.dtype.itemsize, data_type.infinity, call.descending, call.nan_last
    return record_of(
        WORK,
        n=call.x.shape[call.axis],
        rows=sequences.rows,
        columns=sequences.columns,
        lanes=lanes,
        has_values=call.has_values,
        index_words=call.index_dtype.itemsize // _INDEX_WORD.itemsize if call.index_dtype else 0,
        walk=sequences.walk,
        x=x,
        values=outputs[0] if call.has_values else _NOWHERE,
        indices=outputs[-1] if call.index_dtype else _NOWHERE,
        key_map=make_key_map(*options)._asdict(),
        words=words,
        share_cells=cells,
    )


def choose(call: Call, sequences: Sequences, sorts_keys: bool, budget: Budget) -> tuple[Sorting, int]:
    """Return the fastest kernel, and into how many parts the work is cut."""
    rows, n, width, columns = sequences.rows, call.x.shape[call.axis], call.x.dtype.itemsize, sequences.columns
    kernels = registry.available(call.operator, "sort")
    usable = [row for row in kernels if row.supports(rows, n, width, columns)]
    if not budget.kernel:
        usable = [row for row in usable if row.pays(n, sorts_keys)]
    else:
        usable = [row for row in usable if row.name == budget.kernel]
        if not usable:
            raise LookupError(f"the kernel {budget.kernel} does not support {rows} sequences of {n} elements")
    for row in usable:
        each = row.cost(n, width)
        if row.name != "split":
            return row, budget.parts(each * rows, row.most_parts(rows, columns))
        # Threads meet after each pass, so a part must be worth twice as much as others.
        parts = budget.parts(each // 2, max(1, n // _PART)) if 2 * rows <= budget.threads else 1
        if parts > 1 or budget.kernel:
            return row, parts
    raise AssertionError("rows sorts everything")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernel and the work record for one shape, layout and type."""

    workspace: Workspace
    row: Sorting
    call: Callable[..., Any]  # the kernel, for this number of parts
    work: Array  # the work record of the kernel
    words: tuple[np.dtype[Any], ...]  # what the kernel sees x and the outputs as
    has_values: bool
    of_copy: Callable[[], Prepared]  # returns the plan for a packed x

    def run(self, x: Array, *outputs: Array) -> None:
        """Run; the values may be x."""
        if self.has_values and same_memory(x, outputs[0]):
            self.of_copy().run(x.copy(), *outputs)
            return
        scratch = self.workspace.take()
        self.call(*self._flat(x, outputs), self.work, scratch)
        self.workspace.give_back(scratch)

    def keep(self, x: Array, *outputs: Array) -> Callable[[], bool] | None:
        """Return a kept call."""
        if not self.is_single or self.kernel == "split" or (self.has_values and same_memory(x, outputs[0])):
            return None
        return kept_call(self.row.kernel, *self._flat(x, outputs), self.work, self.workspace.make())

    def _flat(self, x: Array, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the words of x, values and indices; an output that is not wanted is a word that is not written."""
        flat = [words_in(each, word) for each, word in zip((x, *outputs), self.words, strict=True)]
        if not self.has_values:
            flat.insert(1, np.zeros(1, self.words[0]))
        return tuple(flat) if len(flat) == 3 else (*flat, np.zeros(1, _INDEX_WORD))


def _refer(call: Call, x: Array, *outputs: Array) -> None:
    """Run the reference."""
    nan: Nan = "last" if call.nan_last else "greatest"
    values, indices = reference.sort_with_indices(x, call.axis, descending=call.descending, nan=nan)
    found = [each for each, is_wanted in ((values, call.has_values), (indices, call.index_dtype)) if is_wanted]
    for output, result in zip(outputs, found, strict=True):
        np.copyto(output, result.astype(output.dtype))
