"""How top_k is carried out: which kernel, and how the work is cut."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, type_name
from dmlcpu.common.bound import Steps
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.choose import ELEMENTS_A_WINNER, INSERT_K, NAMES, choose as fastest, lockstep_work
from dmlcpu.kernels.top_k.groups import LINE
from dmlcpu.kernels.top_k.keys import KINDS, make_key_map
from dmlcpu.kernels.top_k.split import most_parts
from dmlcpu.kernels.top_k.table import Selection
from dmlcpu.kernels.top_k.work import WORK, Problem
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.runtime import threads
from dmlcpu.runtime.kept_calls import KeptCall, kept_call
from dmlcpu.runtime.memory import Workspace, first_word, word_strides
from dmlcpu.runtime.records import CACHE_LINE, CELL, fill

_log = logging.getLogger("dmlcpu")

INDEX_WORD = np.dtype(np.uint32)

# Between the workspaces of two threads, in elements: no cache line, nor the next one that processors fetch with it, is
# written by both.
_GAP = 128


def choose(problem: Problem, width: int, budget: threads.Budget) -> tuple[Selection, str]:
    """Return the fastest kernel for a problem, and the reason. width: bytes of an element."""
    if budget.kernel:
        entry: Selection = registry.find("top_k", "select", budget.kernel)
        if not entry.supports(problem):
            raise LookupError(f"the kernel {entry.name} does not support {problem}")
        return entry, "asked for"
    name = NAMES[fastest(*problem, lockstep_work(width))]
    if name == "tournament" and problem.rows * 2 <= budget.threads:
        # Shares of a sequence have to be merged, so each must be worth twice as much as others.
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


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernel and the work record for one shape, layout and type."""

    kernel: Selection
    is_single: bool  # the work is one part
    run: Callable[..., Any]  # the kernel, for the parts that the work is cut into
    merge: Callable[..., Any] | None  # merges the results of split sequences
    work: Array  # the work record of the kernels
    word: np.dtype[Any]  # what the kernels see elements as
    workspace: Workspace


@functools.lru_cache(maxsize=1024)
def plan(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axis: int,
    k: int,
    largest: bool,
    index_width: int,
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    budget: threads.Budget,
    ordered: bool,
    nan_last: bool,
) -> Plan:
    """Choose the kernel and cut the work. strides: of x, values and indices."""
    data_type, width = DATA_TYPES[type_name(dtype)], dtype.itemsize
    problem, sequences = _lay_out(shape, axis, k, width, strides)
    entry, reason = choose(problem, width, budget)
    parts = _cut(entry, problem, width, budget)
    keys, positions = _share_of_workspace(entry, problem)
    work = fill(
        WORK,
        is_sorted=ordered,
        index_words=index_width // INDEX_WORD.itemsize,
        key_map=make_key_map(KINDS[data_type.kind], width, data_type.infinity, largest, nan_last)._asdict(),
        workspace={"keys": keys, "positions": positions},
        **sequences,
    )
    _log.debug("top_k: %s, k %d along axis %d: %s (%s), %d parts", shape, k, axis, entry.name, reason, parts)
    merge_parts = None
    if entry.name == "split":
        merge_parts = functools.partial(registry.find("top_k", "merge").kernel.share, 0, parts)
    return Plan(
        kernel=entry,
        is_single=parts == 1,
        run=entry.kernel.for_parts(parts),
        merge=merge_parts,
        work=work,
        word=np.dtype(f"u{width}"),
        workspace=Workspace(parts * (positions + -(-keys * width // CELL))),
    )


def _lay_out(
    shape: tuple[int, ...], axis: int, k: int, width: int, strides: tuple[tuple[int, ...], ...]
) -> tuple[Problem, dict[str, Any]]:
    """Return the problem, and the fields of its work record that say what sequences there are and where they lie."""
    n, out_shape = shape[axis], (*shape[:axis], k, *shape[axis + 1 :])
    in_words = [word_strides(own, size) for own, size in zip(strides, (width, width, INDEX_WORD.itemsize), strict=True)]
    others = [d for d in range(len(shape)) if d != axis]
    sizes, *by_tensor = merge([shape[d] for d in others], *[[own[d] for d in others] for own in in_words])
    steps = [own[axis] for own in in_words]
    x, values, indices = [
        {"start": first_word(full, own), "step": step, "strides": merged}
        for full, own, step, merged in zip((shape, out_shape, out_shape), in_words, steps, by_tensor, strict=True)
    ]
    x_step, x_strides = steps[0], by_tensor[0]
    columns = sizes[-1] if x_strides[-1] == 1 else 1
    is_packed = x_step == 1 and x_strides == [n]
    problem = Problem(rows=math.prod(sizes), n=n, k=k, step=x_step, columns=columns)
    counts = {"n": n, "k": k, "rows": problem.rows, "columns": columns, "is_packed": is_packed}
    return problem, {**counts, "walk": walk_of(sizes), "x": x, "values": values, "indices": indices}


def _cut(entry: Selection, problem: Problem, width: int, budget: threads.Budget) -> int:
    """Return into how many parts to cut the work; `split` cuts each sequence into equally many."""
    each = entry.cost(problem, width)
    if entry.name == "split":
        return problem.rows * budget.parts(work=each, most=most_parts(problem))
    return budget.parts(work=problem.rows * each, most=problem.rows)


def _share_of_workspace(entry: Selection, problem: Problem) -> tuple[int, int]:
    """Return how many keys and positions a share has, with the gap to the next."""
    keys, positions = (length + _GAP for length in entry.workspace(problem.n, problem.k, LINE))
    return keys, positions + -positions % (CACHE_LINE // CELL)  # the keys behind start a cache line


def run(chosen: Plan, x: Array, values: Array, indices: Array) -> None:
    """Carry out a plan on the words of the arrays."""
    scratch = chosen.workspace.take()
    chosen.run(x, values, indices, chosen.work, scratch)
    if chosen.merge:
        chosen.merge(x, values, indices, chosen.work, scratch)
    chosen.workspace.give_back(scratch)


def steps(plan_within: Callable[[threads.Budget], Plan], *words: Array) -> Steps:
    """Return how to run on the words of the same arrays again and again."""

    def alone(chosen: Plan) -> KeptCall | None:
        if not chosen.is_single or chosen.merge:
            return None
        return kept_call(chosen.kernel.kernel, *words, chosen.work, chosen.workspace.make())

    return Steps(plan_within, lambda chosen: run(chosen, *words), alone)
