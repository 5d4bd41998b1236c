"""Plans of top_k: which kernel, and how the work is cut."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu import reference
from dmlcpu.annotations import Nan
from dmlcpu.common.arguments import Array, type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.forms import Form, Shape, form_of, strides_of
from dmlcpu.common.prepared import ByFunction, Prepared, around, nothing
from dmlcpu.common.regions import Tensor
from dmlcpu.common.sequences import sequences_of
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.choose import ELEMENTS_A_WINNER, INSERT_K, NAMES, choose as fastest, lockstep_work
from dmlcpu.kernels.top_k.groups import LINE
from dmlcpu.kernels.top_k.keys import KINDS, make_key_map
from dmlcpu.kernels.top_k.split import most_parts
from dmlcpu.kernels.top_k.table import Selection
from dmlcpu.kernels.top_k.work import WORK, Problem
from dmlcpu.operators.top_k.call import Call, check, fill_rest, rest_of
from dmlcpu.runtime.kept_calls import kept_call
from dmlcpu.runtime.memory import Workspace, frombuffer, words
from dmlcpu.runtime.records import CACHE_LINE, CELL, record_of
from dmlcpu.runtime.threads import MOST_PARTS, REFERENCE, Budget, parts_for, plan_for_now

_log = logging.getLogger("dmlcpu")

INDEX_WORD = np.dtype(np.uint32)

_MOST_CELLS = (32 << 20) // CELL  # of workspace, if there are more parts than threads

# The gap between the workspaces of two threads, in elements: they share no cache line, nor the next one, which
# processors fetch with it.
_GAP = 128


def choose(problem: Problem, width: int, budget: Budget) -> tuple[Selection, str]:
    """Return the fastest kernel for a problem, and the reason. width: bytes of an element."""
    if budget.kernel:
        entry: Selection = registry.find("top_k", "select", budget.kernel)
        if not entry.supports(problem):
            raise LookupError(f"the kernel {entry.name} does not support {problem}")
        return entry, "requested"
    name = NAMES[fastest(*problem, lockstep_work(width))]
    if name == "tournament" and problem.rows * 2 <= budget.threads:
        # Shares of a sequence must be merged, so each must have twice the work of other shares.
        split: Selection = registry.find("top_k", "select", "split")
        if budget.parts(split.cost(problem, width) // 2, most_parts(problem)) > 1:
            return split, "two threads and more for each sequence"
    return registry.find("top_k", "select", name), _reason(name, problem, width)


def _reason(name: str, problem: Problem, width: int) -> str:
    """Return why a kernel is the fastest one."""
    beside = f"{problem.columns} columns side by side"
    few = f"fewer than {ELEMENTS_A_WINNER} elements for each winner"
    is_few = problem.n < ELEMENTS_A_WINNER * problem.k
    return {
        "strided_insert": f"{beside}, k at most {INSERT_K}",
        "lockstep": f"several sequences, n k at most {lockstep_work(width)}",
        "select_sort": few if is_few else "the others do not support it",
        "strided_tournament": beside,
        "tournament": f"{ELEMENTS_A_WINNER} elements and more for each winner",
    }[name]


@functools.lru_cache(maxsize=1024)
def prepare(forms: tuple[Any, ...], options: tuple[Any, ...], budget: Budget) -> Prepared:
    """Return the prepared call.

    forms: of x, and of the k of all sequences (None: there is one k), then the strides of both outputs; options: those
    of `check`.
    """
    x, counts, strides = forms
    call = check(x, options)
    if counts is None:
        return plan(call, strides, budget)
    return _filling(plan(call._replace(sorted=True), strides, budget), call.axis)


@functools.lru_cache(maxsize=1024)
def plan(call: Call, strides: tuple[Shape | None, Shape | None], budget: Budget) -> Prepared:
    """Return the plan of a checked call. strides: of values and indices, like those of forms."""
    winners = call.winners(call.x.shape)
    results = Tensor(winners, call.x.dtype), Tensor(winners, call.index_dtype)
    if budget == REFERENCE:
        refer = functools.partial(_refer, call)
        return ByFunction(operator="top_k", kernel="reference", results=results, function=refer)
    if 0 in winners:
        return ByFunction(operator="top_k", kernel="none", results=results, function=nothing)
    forms = call.x, *[Form(*each, own) for each, own in zip(results, strides, strict=True)]
    data_type, width = DATA_TYPES[type_name(call.x.dtype)], call.x.dtype.itemsize
    problem, sequences = _lay_out(call.axis, *forms)
    entry, reason = choose(problem, width, budget)
    threads = _cut(entry, problem, width, budget)
    keys, positions = _share_of_workspace(entry, problem, threads)
    share_cells = positions + -(-keys * width // CELL)
    parts = threads
    if entry.name == "tournament":  # one sequence after the other, in little workspace
        parts = parts_for(threads, problem.rows, min(MOST_PARTS, _MOST_CELLS // share_cells))
    key_map = make_key_map(KINDS[data_type.kind], width, data_type.infinity, call.largest, call.nan_last)
    work = record_of(
        WORK,
        is_sorted=call.sorted,
        index_words=call.index_dtype.itemsize // INDEX_WORD.itemsize,
        key_map=key_map._asdict(),
        workspace={"keys": keys, "positions": positions},
        **sequences,
    )
    shape, k, axis = call.x.shape, call.k, call.axis
    _log.debug("top_k: %s, k %d along axis %d: %s (%s), %d parts", shape, k, axis, entry.name, reason, parts)
    merge_parts = None
    if entry.name == "split":
        merge_parts = functools.partial(registry.find("top_k", "merge").kernel.share, 0, parts)
    return Plan(
        operator="top_k",
        results=results,
        kernel=entry.name,
        is_single=parts == 1,
        workspace=Workspace(parts * share_cells),
        row=entry,
        call=entry.kernel.for_parts(parts, min(threads, budget.threads)),
        merge=merge_parts,
        work=work,
        word=np.dtype(f"u{width}"),
        views=tuple([frombuffer if form.strides is None else words for form in forms]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernel and the work record for one shape, layout and type."""

    workspace: Workspace
    row: Selection
    call: Callable[..., Any]  # the kernel, for this number of parts
    merge: Callable[..., Any] | None  # merges the results of split sequences
    work: Array  # the work record of the kernels
    word: np.dtype[Any]  # the type as which kernels read elements
    views: tuple[Callable[..., Array], ...]  # return the words of x, values and indices

    def run(self, x: Array, values: Array, indices: Array) -> None:
        """Run."""
        of_x, of_values, of_indices = self.views
        flat = of_x(x, self.word), of_values(values, self.word), of_indices(indices, INDEX_WORD)
        scratch = self.workspace.take()
        self.call(*flat, self.work, scratch)
        if self.merge:
            self.merge(*flat, self.work, scratch)
        self.workspace.give_back(scratch)

    def keep(self, x: Array, values: Array, indices: Array) -> Callable[[], bool] | None:
        """Return a kept call."""
        if not self.is_single or self.merge:
            return None
        flat = words(x, self.word), words(values, self.word), words(indices, INDEX_WORD)
        return kept_call(self.row.kernel, *flat, self.work, self.workspace.make())


def select(call: Call, x: Array, values: Array, indices: Array, most_threads: int | None = None) -> None:
    """Run a checked call on another array than x, with any strides. The outputs have the call's types."""
    call = call._replace(x=Form(*form_of(x)))
    plan_for_now(plan, (call, (strides_of(values), strides_of(indices))), most_threads).run(x, values, indices)


def _filling(inner: Prepared, axis: int) -> Prepared:
    """Return the prepared call with a k for each sequence, which also fills the places after the winners."""

    def run(x: Array, counts: Array, fill: Array, values: Array, indices: Array) -> None:
        rest = rest_of(counts, values.shape[axis], axis)  # allocates, so not while the workspace is held
        inner.run(x, values, indices)
        fill_rest(values, indices, rest, fill)

    return around(inner, run)


def _refer(call: Call, x: Array, values: Array, indices: Array) -> None:
    """Run the reference."""
    nan: Nan = "last" if call.nan_last else "greatest"
    options: dict[str, Any] = {"axis": call.axis, "largest": call.largest, "index_dtype": indices.dtype}
    reference.top_k(x, call.k, **options, nan=nan, out=(values, indices))


def _lay_out(axis: int, x: Form, values: Form, indices: Form) -> tuple[Problem, dict[str, Any]]:
    """Return the problem, and the fields of its work record about the sequences and their places in memory."""
    n, k, width = x.shape[axis], values.shape[axis], x.dtype.itemsize
    found = sequences_of(axis, [(x, width), (values, width), (indices, INDEX_WORD.itemsize)])
    counts = {"n": n, "k": k, "rows": found.rows, "columns": found.columns, "is_packed": found.is_packed}
    tensors = dict(zip(("x", "values", "indices"), found.tensors, strict=True))
    return Problem(found.rows, n, k, found.step, found.columns), {**counts, "walk": found.walk, **tensors}


def _cut(entry: Selection, problem: Problem, width: int, budget: Budget) -> int:
    """Return how many parts the work is cut into; `split` cuts all sequences into the same number."""
    each = entry.cost(problem, width)
    if entry.name == "split":
        return problem.rows * budget.parts(work=each, most=most_parts(problem))
    return budget.parts(work=problem.rows * each, most=problem.rows)


def _share_of_workspace(entry: Selection, problem: Problem, parts: int) -> tuple[int, int]:
    """Return how many keys and positions a share has, with the gap to the next."""
    longest = -(-problem.n // (parts // problem.rows)) if entry.name == "split" else problem.n
    keys, positions = (length + _GAP for length in entry.workspace(longest, problem.k, LINE))
    return keys, positions + -positions % (CACHE_LINE // CELL)  # the following keys start a cache line
