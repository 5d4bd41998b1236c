"""How quantizers are carried out: how the work is cut, and what the kernels are told."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.bound import Steps
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.scaled_steps import scaled_steps
from dmlcpu.kernels import registry
from dmlcpu.kernels.quantize_linear.dynamic_range import RANGE_CELLS
from dmlcpu.kernels.quantize_linear.work import NIBBLE, SPACE_CELLS, TILE, WORK
from dmlcpu.kernels.registry import Row
from dmlcpu.quantizers.layout import Layout, lay_out
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import Workspace
from dmlcpu.runtime.records import CELL, fill
from dmlcpu.runtime.threads import Budget

_log = logging.getLogger("dmlcpu")

FLOAT = np.dtype(np.float32)
_DYNAMIC = "dynamic_quantize_linear"


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernel and the work record for one set of shapes and layouts."""

    kernel: Row
    is_single: bool  # the work is one part
    run: Callable[..., Any]  # the kernel, for the parts that the work is cut into
    work: Array
    workspace: Workspace
    # Of dynamic_quantize_linear: what finds the range for so many parts, and then scale and zero point.
    find_range: Callable[..., Any] | None = None
    settle: Callable[..., Any] | None = None
    parts: int = 1


@functools.lru_cache(maxsize=1024)
def plan(operator: str, x: Layout, scale: Layout, zero: Layout, y: Layout, budget: Budget) -> Plan:
    """Cut the work of an operator; there is one kernel for each."""
    stage = "dequantize" if operator == "dequantize_linear" else "quantize"
    row: Row = registry.find(operator, stage, budget.kernel)
    fields = lay_out(x, scale, zero, y)
    parts = budget.parts(_nanoseconds(fields), _most_parts(fields))
    data_type = DATA_TYPES[y.type]
    limits = (0, 0) if data_type.kind == "f" else (data_type.lowest, data_type.highest)
    _log.debug("%s: %s of %s to %s: %s, %d parts", operator, x.shape, x.type, y.type, row.name, parts)
    work = fill(WORK, lowest=limits[0], highest=limits[1], **fields)
    run, cells = row.kernel.for_parts(parts), parts * SPACE_CELLS
    if operator != _DYNAMIC:
        return Plan(row, parts == 1, run, work, Workspace(cells))
    find_range, settle = (registry.find(operator, name).kernel for name in ("range", "settle"))
    workspace = Workspace(parts * RANGE_CELLS + cells)
    return Plan(row, parts == 1, run, work, workspace, find_range.for_parts(parts), settle.for_parts(1), parts)


def _nanoseconds(fields: dict[str, Any]) -> int:
    """Return what the work takes on one thread, within a factor of 2 (Zen 5)."""
    x, y = fields["x"], fields["y"]
    is_strided = x["step"] != 1 or y["step"] != 1 or NIBBLE in (x["kind"], y["kind"])
    each = (0.12 if fields["is_direct"] else 0.2) + is_strided + 0.2 * (fields["block"] == 1)
    rows = fields["items"] // fields["tiles"]
    return int(fields["items"] * 40 + rows * fields["n"] * each)


def _most_parts(fields: dict[str, Any]) -> int:
    """Return how many parts there may be: threads must not write to one byte."""
    y, items = fields["y"], int(fields["items"])
    if y["kind"] != NIBBLE:
        return items
    is_even = y["step"] == 1 and not any(each % 2 for each in (fields["n"], TILE, y["start"], *y["strides"]))
    return items if is_even or items == 1 else 1


def run(chosen: Plan, x: Array, scale: Array, zero: Array, y: Array) -> None:
    """Carry out a plan on the words of the arrays."""
    scratch = chosen.workspace.take()
    chosen.run(x, scale, zero, y, chosen.work, scratch)
    chosen.workspace.give_back(scratch)


def run_dynamic(chosen: Plan, x: Array, scale: Array, zero: Array, y: Array) -> bool:
    """Find the range of x, and quantize it; return whether the range is finite. If not, nothing is written."""
    scratch, found = chosen.workspace.take(), np.array([0, chosen.parts])
    settle_range(chosen, x, scale, zero, found, scratch)
    if found[0]:
        chosen.run(x, scale, zero, y, chosen.work, scratch)
    chosen.workspace.give_back(scratch)
    return bool(found[0])


def settle_range(chosen: Plan, x: Array, scale: Array, zero: Array, found: Array, scratch: Array) -> None:
    """Write scale and zero point, and to found[0] whether the range is finite."""
    if chosen.find_range and chosen.settle:
        chosen.find_range(x, chosen.work, scratch)
        chosen.settle(scale, zero, found, chosen.work, scratch)


def steps(plan_within: Callable[[Budget], Plan], check: Callable[[], None] | None, *words: Array) -> Steps:
    """Return how to run on the words of the same arrays again and again; check: refuses what is wrong with scales."""
    return scaled_steps(plan_within, run, check, [words[1]], *words)


def workspace_of() -> int:
    """Return the most bytes of workspace that a call takes."""
    return CELL * threads.most().threads * (SPACE_CELLS + RANGE_CELLS)
