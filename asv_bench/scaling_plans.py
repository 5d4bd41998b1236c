"""Count what the plan of a call does with a number of threads, without running it."""

import heapq
import math
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.work import COUNTER, WORK as OF_PRODUCTS
from dmlcpu.kernels.quantize_linear.work import WORK as OF_QUANTIZERS
from dmlcpu.kernels.scatter_nd.work import WORK as OF_SCATTERS
from dmlcpu.kernels.top_k.work import WORK as OF_TOP_K
from dmlcpu.operators.scatter_nd.run import IN_PLACE
from dmlcpu.runtime.boxes import WOKEN
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.records import cells_of

PRODUCTS = ("quantized_matmul", "matmul_top_k")
RECORDS = {
    "top_k": OF_TOP_K,
    "quantized_matmul": OF_PRODUCTS,
    "matmul_top_k": OF_PRODUCTS,
    "scatter_nd": OF_SCATTERS,
    "quantize_linear": OF_QUANTIZERS,
}


class Stage(NamedTuple):
    """One launch of a kernel, and the threads that take its pieces, which are parts or runs of tasks."""

    name: str  # of the kernel
    parts: int
    threads: int
    pieces: list[float]  # the work of each: estimated, counted, or in seconds


class Counter(NamedTuple):
    """The cell from which threads take the numbers of tasks, in kernels that have tasks."""

    cell: int  # of the workspace: the number of the next run of tasks
    run: int  # tasks in a piece
    tasks: int  # at most
    stop: Callable[[Any, Any, int], None]  # makes a work record, or a workspace, end before a task


def record(plan, work=None):
    """Return a plan's work record, or a copy of it, with named fields."""
    dtype = RECORDS[plan.operator]
    return (plan.work if work is None else work)[: cells_of(dtype)].view(dtype)[0]


def counter_of(plan, kernel):
    """Return the counter of a kernel's tasks, or None if the kernel has only parts."""

    if plan.operator in PRODUCTS and kernel != "finish":
        its = record(plan)
        return Counter(COUNTER, int(its["run"]), int(its["tasks"]), partial(_stop_tasks, plan))
    if plan.operator == "scatter_nd" and kernel.startswith("apply_bucket"):
        buckets = plan.partition.buckets
        return Counter(buckets.counter, 1, buckets.evens + buckets.steps, partial(_stop_buckets, plan))
    return None


def _stop_tasks(plan, work, _, task):
    record(plan, work)["tasks"] = task


def _stop_buckets(plan, _, scratch, bucket):
    plan.partition.cuts(scratch)["count"] = bucket


def tasks_of(plan, counter, scratch):
    """Return the number of tasks. Some plans know only the greatest number."""
    return int(plan.partition.cuts(scratch)["count"]) if plan.operator == "scatter_nd" else counter.tasks


def stages_of(plan):
    """Return the stages of a plan with the estimated work of each piece: items, elements, or products.

    All shares of updates count the same, because their work depends on the indices.
    """
    found = []
    for call in calls_of(plan):
        if isinstance(call, partial) and isinstance(call.func, Kernel):
            name, parts = call.func.name, call.args[0]
            found.append(Stage(name, parts, call.keywords.get("most") or parts, works_of(plan, name, parts)))
    return found


def calls_of(plan):
    """Return what a plan, or its partition, calls in order. Kernels that are not partials run in one part."""
    calls = {field.name: getattr(plan, field.name) for field in fields(plan)}
    partition = calls.pop("partition", None)
    if partition:  # replaces the plan's `validate` and `apply`
        calls = {field.name: getattr(partition, field.name) for field in fields(partition)}
    return calls.values()


def works_of(plan, name, parts):
    its = record(plan)
    if plan.operator == "scatter_nd":
        counter = counter_of(plan, name)
        return [1.0] * (counter.tasks if counter else parts)
    if plan.operator == "top_k":
        rows = int(its["rows"])
        return shares(rows, parts) if plan.kernel != "split" else shares(int(its["n"]), parts // rows) * rows
    if plan.operator == "quantize_linear":
        return shares(int(its["items"]), parts)
    if name == "finish":
        return shares(int(its["M"]), parts)
    tiles = -(-int(its["M"]) // registry.find(plan.operator, "dot", plan.kernel).mr)
    row_parts, column_parts, run = (int(its[each]) for each in ("row_parts", "column_parts", "run"))
    of_one = np.outer(shares(tiles, row_parts), shares(int(its["panels"]), column_parts)).ravel().tolist()
    tasks = of_one * (int(its["tasks"]) // len(of_one))
    return [sum(tasks[first : first + run]) for first in range(0, len(tasks), run)]


def shares(count, parts):
    """Return the sizes of the shares of `count` items."""
    return np.diff(np.arange(parts + 1) * count // parts).astype(float).tolist()


def ends(pieces, free):
    """Return when each piece ends, if the thread that is free first always takes the next one."""
    threads, found = list(free), []
    heapq.heapify(threads)
    for piece in pieces:
        found.append(threads[0] + piece)
        heapq.heapreplace(threads, found[-1])
    return found


def imbalance(stage):
    """Return the work of the busiest thread as a multiple of the threads' mean."""
    mean = sum(stage.pieces) / stage.threads
    return max(ends(stage.pieces, [0.0] * stage.threads)) / mean if mean else 1.0


def packs(plan):
    """Return how often A and B are packed at most. A thread packs rows of A once for consecutive tasks."""
    its = record(plan)
    panels = shares(int(its["panels"]), int(its["column_parts"]))
    of_a = sum(1 if its["keeps_rows"] else math.ceil(each / int(its["NC"])) for each in panels)
    return of_a, 0 if its["b_is_packed"] else int(its["row_parts"])


def indices_read(plan):
    """Return the greatest number of index tuples that all shares of a scatter read together."""
    return plan.indices_read


def moved(call, plan):
    """Return the bytes that a call moves: each array once, and everything that its plan reads or writes again."""
    arrays = [each for each in call.requested[1] if isinstance(each, np.ndarray)]
    results = sum(math.prod(each.shape) * each.dtype.itemsize for each in plan.results)
    if plan.operator == "scatter_nd":
        x, indices, updates = arrays
        pairs = 2 * plan.workspace_bytes if plan.partition else 0
        of_indices = indices_read(plan) * indices.itemsize * indices.shape[-1]
        return (2 if plan.copied == IN_PLACE else 1) * x.nbytes + results + updates.nbytes + of_indices + pairs
    if plan.operator in PRODUCTS:
        a, b = call.requested[1][:2]
        return packs(plan)[0] * a.nbytes + int(record(plan)["row_parts"]) * math.prod(b.shape) + results
    return sum(each.nbytes for each in arrays) + results


def counts(call, plan):
    """Return what a plan does, in types that JSON can hold."""
    main = max(stages_of(plan), key=lambda stage: len(stage.pieces), default=Stage("call", 1, 1, [1.0]))
    return {
        "threads": main.threads,
        "parts": main.parts,
        "pieces": len(main.pieces),
        "moved": moved(call, plan),
        "imbalance": imbalance(main),
        "workspace": plan.workspace_bytes,
        "packs": packs(plan) if plan.operator in PRODUCTS else None,
        "indices": indices_read(plan) if plan.operator == "scatter_nd" else None,
        "woken": main.threads - 1,
        "depth": depth(main.threads - 1),
    }


def depth(helpers):
    """Return the longest chain of helpers that wake one another: the caller wakes one, and each wakes WOKEN more."""
    found = 0
    while helpers > 0:  # each but the first is woken by one that wakes WOKEN
        helpers, found = -(-(helpers - 1) // WOKEN), found + 1
    return found
