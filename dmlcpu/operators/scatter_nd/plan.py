"""How scatter_nd is carried out: what the kernels see elements as, and how the work is cut."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, type_name
from dmlcpu.errors import UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.kernels.scatter_nd import reduction as reductions
from dmlcpu.kernels.scatter_nd.choose import validation_of, writing_mode_of
from dmlcpu.kernels.scatter_nd.owned import FALSE_SHARING
from dmlcpu.kernels.scatter_nd.work import (
    BEFOREHAND,
    BLOCK_CELLS,
    CLIP,
    DROP,
    ELEMENTS,
    MOST_BUCKETS,
    PAIRS,
    PLACES,
    RAISE,
    SHARE_CELLS,
    SHARE_SPACE,
    SPECULATIVE,
    VALID,
    WORK,
)
from dmlcpu.operators.scatter_nd.layout import COMPUTED_AS, Fields, Tensors, layout_of, tensors_of
from dmlcpu.runtime.memory import C_CONTIGUOUS, F_CONTIGUOUS, Workspace, packed_strides, second_level_cache
from dmlcpu.runtime.records import CACHE_LINE, CELL, fill
from dmlcpu.runtime.threads import Budget

_log = logging.getLogger("dmlcpu")

MODES = {"raise": RAISE, "drop": DROP, "clip": CLIP}
REDUCTIONS = {
    "none": reductions.OVERWRITE,
    "add": reductions.ADD,
    "mul": reductions.MULTIPLY,
    "min": reductions.MINIMUM,
    "max": reductions.MAXIMUM,
}
# On bytes that are 0 or 1, "or" is the maximum, and "and" is the minimum.
_BOOL_REDUCTIONS = {**REDUCTIONS, "add": reductions.MAXIMUM, "mul": reductions.MINIMUM}
_COMPLEX_REDUCTIONS = {"add": reductions.ADD, "mul": reductions.MULTIPLY_COMPLEX}

_EXTREMES = (reductions.MINIMUM, reductions.MAXIMUM)
CONTIGUOUS = C_CONTIGUOUS | F_CONTIGUOUS
_LINE_CELLS = CACHE_LINE // CELL
_HALVES = {"float16": reductions.FLOAT16, "bfloat16": reductions.BFLOAT16}


def reduction_of(dtype: np.dtype[Any], reduction: str) -> int:
    """Return what the kernels do for a reduction on a type."""
    if reduction == "none":
        return reductions.OVERWRITE
    name = type_name(dtype)
    known = _BOOL_REDUCTIONS if name == "bool" else _COMPLEX_REDUCTIONS if dtype.kind == "c" else REDUCTIONS
    if name in COMPUTED_AS and reduction in known:
        return known[reduction]
    allowed = "a type whose values are ordered" if name in COMPUTED_AS else ", ".join(COMPUTED_AS)
    raise UnsupportedError("scatter_nd", f"x.dtype with reduction {reduction!r}", str(dtype), allowed)


# Many single elements are partitioned first, where that pays: several threads then wait for memory at once. Measured on
# Zen 4 with float32, two threads, ms, partitioned and by one thread: 100,000 into 16 MB 0.6 and 1.1, 500,000 2.2 and
# 4.0, 2,000,000 6.4 and 13; 1,100,000 into 8 MB 3.3 and 2.8.
_PARTITIONED_UPDATES = 1 << 16  # at least
_PARTITIONED_CACHES = 12  # at least: second caches that the output would fill
# Below, several threads select their own single elements from this many updates on, if the output is larger than the
# second cache and the processor can (Zen 4, two threads, of the time of one: 1,000,000 into 4 MB 0.8, 100,000 1.0).
_SELECTED_UPDATES = 1 << 17
# Outputs of at most this many bytes are written speculatively: that costs less than to look at all indices twice (Xeon
# with VNNI). Up to the second limit that holds if there is an index for each byte: it takes as long to look at an index
# as to copy two bytes, to and fro.
_SPECULATIVE_BYTES, _MOST_SPECULATIVE_BYTES = 1 << 16, 1 << 20
_LEAST_BUCKETS = 16  # for shares to take turns with

# How x is copied to out.
IN_PLACE = 0  # not at all: x is out
BY_KERNEL = 1  # the kernels, as both are laid out alike and have no gaps
BY_NUMPY = 2  # NumPy, before the kernels write


@dataclass(frozen=True, slots=True)
class Buckets:
    """What updates are partitioned into, and where that lies in the workspace: fields of the work record."""

    count: int = 0  # 0: updates are not partitioned
    bits: int = 0
    span: int = 0
    shares: int = 0
    counter: int = 0
    spaces: int = 0
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class Targets:
    """What is written speculatively: a copy of the output, or an accumulator for each share of the updates."""

    count: int = 0  # of accumulators; 0: what is written has the ranges of the output
    step: int = 0  # words from one to the next
    cell: int = 0  # of the workspace, where they begin


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels and the work record for one set of shapes, layouts and types."""

    kernel: str  # the name of the one that applies updates
    validate: Callable[..., Any] | None  # the kernels, for the parts of each; not all work needs each
    copy: Callable[..., Any] | None
    apply: Callable[..., Any]
    partition: Callable[..., Any] | None
    apply_buckets: Callable[..., Any] | None
    is_single: bool  # the work of each kernel is one part
    parts: int  # shares of the updates
    owners: int  # shares of the output
    validation: int  # BEFOREHAND, BY_BLOCK or SPECULATIVE
    targets: Targets
    merge: "Plan | None"  # how the other accumulators are reduced into the first one
    buckets: Buckets
    most: int  # updates that the fullest bucket may hold: if it has more, they are not partitioned
    work: Array  # the work record of all kernels
    workspace: Workspace


# The arguments are the key of the cache. To bundle them would take each call longer than the look-up does.
@functools.lru_cache(maxsize=1024)
def plan(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    element: np.dtype[Any],
    indices_shape: tuple[int, ...],
    index_type: np.dtype[Any],
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    reduction: str,
    mode: str,
    copied: int,
    budget: Budget,
) -> Plan:
    """Cut the work. strides: of out, indices and updates; copied: IN_PLACE, BY_KERNEL or BY_NUMPY."""
    tensors = tensors_of(shape, dtype, element, indices_shape, strides)
    layout = layout_of(tensors, index_type, reduction_of(dtype, reduction), _HALVES.get(dtype.name, reductions.PLAIN))
    kernel, apply, reason = _choose(tensors, layout, budget)
    partitions = kernel == "apply_buckets"
    layout["is_serial"] &= apply == "apply"
    parts, owners, copies = _cut(tensors, layout, copied, budget)
    cells = max(parts, owners) * (1 + BLOCK_CELLS)
    buckets, cells = _buckets(tensors, parts, cells) if partitions else (Buckets(), cells)
    validation, has_pass, copies_first = _passes(tensors, layout, (mode, copied, copies), kernel)
    targets, cells = _targets(tensors, layout, element, budget, validation, cells)
    owners = max(owners, targets.count)
    what = (tensors.count, tensors.slice_size, shape, kernel, reason, parts)
    _log.debug("scatter_nd: %d updates of %d words into %s: %s (%s), %d parts", *what)
    return Plan(
        kernel=kernel,
        validate=_kernel("validate", parts) if has_pass else None,
        copy=_kernel("copy", copies) if copies_first else None,
        apply=_kernel("apply", owners, apply),
        partition=_kernel("partition", parts) if partitions else None,
        apply_buckets=_kernel("apply_buckets", parts) if partitions else None,
        is_single=parts == owners == copies == 1,
        parts=parts,
        owners=owners,
        validation=validation,
        targets=targets,
        merge=_merge(shape, dtype, element, targets, reduction, budget) if targets.count > 1 else None,
        buckets=buckets,
        most=_most_in_a_bucket(tensors, parts, budget),
        work=_work(layout, MODES[mode], validation, targets, buckets),
        workspace=Workspace(cells),
    )


def _passes(tensors: Tensors, layout: Fields, asked: tuple[str, int, int], kernel: str) -> tuple[int, bool, bool]:
    """Return when indices are validated, and whether `validate` and `copy` run first.

    asked: the mode, how x is copied, and the shares of that.
    """
    mode, copied, copies = asked
    validation = _validation(tensors, MODES[mode], copied) if kernel == "apply" else BEFOREHAND
    has_copy = copied == BY_KERNEL and validation != SPECULATIVE and copies > 1
    copies_first = has_copy and (layout["is_serial"] or not tensors.is_in_order)
    validation = BEFOREHAND if copies_first else validation
    has_pass = validation == BEFOREHAND and tensors.count > 0 and (mode == "raise" or kernel == "apply_buckets")
    return validation, has_pass, copies_first


def _work(layout: Fields, mode: int, validation: int, targets: Targets, buckets: Buckets) -> Array:
    """Return the work record of all kernels."""
    return fill(
        WORK,
        **layout,
        mode=mode,
        writing_mode=writing_mode_of(mode, validation),
        validation=validation,
        accumulator=targets.step,
        buckets=asdict(buckets),
    )


def _kernel(stage: str, parts: int, name: str | None = None) -> Callable[..., Any]:
    run: Callable[..., Any] = registry.find("scatter_nd", stage, name or stage).kernel.for_parts(parts)
    return run


def _cut(tensors: Tensors, layout: Fields, copied: int, budget: Budget) -> tuple[int, int, int]:
    """Return into how many shares the updates are cut, the output, and the copy if it is made before."""
    count = tensors.count
    nbytes = math.prod(tensors.shape) * tensors.element * tensors.width if copied == BY_KERNEL else 0
    # In nanoseconds (Zen 4, within a factor of 2): an offset, the words there, the copy.
    copy = nbytes // 32
    work = count * (5 + tensors.slice_size // 4) + copy
    parts = budget.parts(count * max(tensors.coordinates, 1), most=count)
    owners = budget.parts(work, most=layout["ranges"]["count"])
    return (parts, 1, budget.parts(copy, most=tensors.span)) if layout["is_serial"] else (parts, owners, owners)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _targets(
    tensors: Tensors, layout: Fields, element: np.dtype[Any], budget: Budget, validation: int, cells: int
) -> tuple[Targets, int]:
    """Return what is written speculatively, and the cells of the workspace with it; cells: those before."""
    if validation != SPECULATIVE:
        return Targets(), cells
    cell, count, step = _up(cells, FALSE_SHARING // CELL), 0, 0
    if layout["is_serial"]:
        reduction = layout["reduction"]
        is_exact = reduction in _EXTREMES or (reduction == reductions.ADD and element.kind in "iu")
        # An accumulator is written, and merged, in half the time of as many updates.
        most = tensors.count // (2 * max(tensors.span, 1)) if is_exact else 1
        count = budget.parts(tensors.count * tensors.coordinates, most=most)
        step = _up(tensors.span * tensors.width, FALSE_SHARING) // tensors.width
    words = max(count - 1, 0) * step + tensors.span
    return Targets(count, step, cell), cell + -(-words * tensors.width // CELL)


def _merge(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    element: np.dtype[Any],
    targets: Targets,
    reduction: str,
    budget: Budget,
) -> Plan:
    """Return the plan that reduces all accumulators but the first: updates of the whole output, without coordinates."""
    packed = packed_strides(shape, element.itemsize)
    strides = packed, (CELL, CELL), (targets.step * element.itemsize, *packed)
    indices = (targets.count - 1, 0), np.dtype(np.int64)
    # There is one owner and nothing to validate, so `run` need only call its kernel.
    return plan(shape, dtype, element, *indices, strides, reduction, "drop", IN_PLACE, budget._replace(kernel=None))


def _validation(tensors: Tensors, mode: int, copied: int) -> int:
    """Return when indices are validated, if updates are not partitioned."""
    if copied == BY_NUMPY or not tensors.is_in_order:
        return BEFOREHAND
    most = max(_SPECULATIVE_BYTES, min(tensors.count, _MOST_SPECULATIVE_BYTES))
    can_copy = 0 < tensors.span <= tensors.count and tensors.span * tensors.width <= most
    return validation_of(mode, tensors.count, can_copy)


def _choose(tensors: Tensors, layout: Fields, budget: Budget) -> tuple[str, str, str]:
    """Return the kernel that applies updates, the one that does if a bucket would get too many, and why."""
    partitions, reason = _partitions(tensors, layout, budget.kernel)
    apply = "apply_selected" if _selects(tensors, layout, budget) else "apply"
    return "apply_buckets" if partitions else apply, apply, reason


def _partitions(tensors: Tensors, layout: Fields, kernel: str | None) -> tuple[bool, str]:
    """Return whether updates are partitioned first, and why."""
    is_single = layout["slices"]["kind"] in (ELEMENTS, PLACES)
    can = {None: True, "apply": True, "apply_buckets": is_single, "apply_selected": layout["is_serial"]}
    if not can.get(kernel, False):
        raise LookupError(f"no kernel {kernel} for {tensors.count} updates of {tensors.slice_size} words")
    if kernel:
        return kernel == "apply_buckets", "asked for"
    if not is_single:
        return False, "not single elements at even steps"
    least = _PARTITIONED_CACHES * second_level_cache()
    if tensors.count < _PARTITIONED_UPDATES or tensors.span * tensors.width < least:
        return False, f"fewer than {_PARTITIONED_UPDATES} updates, or into less than {least} bytes"
    return True, f"at least {_PARTITIONED_UPDATES} updates into at least {least} bytes"


def _selects(tensors: Tensors, layout: Fields, budget: Budget) -> bool:
    """Return whether shares select their own single elements, if these are not partitioned."""
    if budget.kernel:
        return budget.kernel == "apply_selected"
    is_far = tensors.span * tensors.width > max(second_level_cache(), _MOST_SPECULATIVE_BYTES)
    if not (is_far and layout["is_serial"] and tensors.count >= _SELECTED_UPDATES and budget.threads > 1):
        return False
    return any(row.name == "apply_selected" for row in registry.available("scatter_nd", "apply"))


def _buckets(tensors: Tensors, parts: int, cells: int) -> tuple[Buckets, int]:
    """Return the buckets, and the cells of the workspace with them; cells: of the workspace before the buckets."""
    span, width = tensors.span, tensors.width
    bits = (second_level_cache() // 4 // width).bit_length() - 1
    bits = max(min(bits, (span // _LEAST_BUCKETS).bit_length() - 1), 0)
    while (span - 1 >> bits) >= MOST_BUCKETS:  # an offset within a bucket has at most 32 bits, up to 2**40 words
        bits += 1
    count = (span - 1 >> bits) + 1
    counter = _up(cells, _LINE_CELLS)
    spaces = counter + _LINE_CELLS
    pairs = spaces + parts * SHARE_CELLS
    cells = pairs + (tensors.count + parts * count * PAIRS) * (2 if width == 8 else 1)
    return Buckets(count, bits, span, parts, counter, spaces, pairs), cells


def _most_in_a_bucket(tensors: Tensors, parts: int, budget: Budget) -> int:
    """Return how many updates the fullest bucket may hold: with fewer no thread waits long for it."""
    return tensors.count if budget.kernel else 3 * tensors.count // (2 * max(parts, 2))


def run(
    chosen: Plan, x: Array, indices: Array, updates: Array, out: Array, *, unlike: tuple[Array, Array] | None = None
) -> int:
    """Carry out a plan on the words of the arrays; return where the first bad index is, or VALID.

    x is empty if it is `out`, or if its layout differs from out's. Then `unlike` is (out, x).
    """
    scratch = chosen.workspace.take()
    place = _run_in(scratch, chosen, x, indices, updates, out, unlike)
    chosen.workspace.give_back(scratch)
    return place


def _run_in(
    scratch: Array,
    chosen: Plan,
    x: Array,
    indices: Array,
    updates: Array,
    out: Array,
    unlike: tuple[Array, Array] | None,
) -> int:
    if chosen.validate:
        chosen.validate(indices, chosen.work, scratch)
        place = _reported(chosen.parts, scratch)
        if place != VALID:
            return place
    if unlike is not None:
        np.copyto(*unlike)
    if chosen.partition and chosen.apply_buckets and _is_spread(chosen, scratch):
        chosen.partition(indices, updates, chosen.work, scratch)
        scratch[chosen.buckets.counter] = 0
        chosen.apply_buckets(x, out, chosen.work, scratch)
        return VALID
    if chosen.copy:
        chosen.copy(x, out)
        x = x[:0]
    target = out
    if chosen.validation == SPECULATIVE:
        target = np.frombuffer(scratch, out.dtype, offset=CELL * chosen.targets.cell)
        if chosen.targets.count:
            x = x if x.size else out
        elif not x.size:
            target[: out.size] = out
    chosen.apply(x, indices, updates, target, chosen.work, scratch)
    place = VALID if chosen.validation == BEFOREHAND else _reported(chosen.owners, scratch)
    if target is not out and place == VALID:
        if chosen.merge:
            others = target[chosen.targets.step :]
            chosen.merge.apply(x[:0], indices, others, target[: out.size], chosen.merge.work, scratch)
        out[...] = target[: out.size]
    return place


def _reported(parts: int, scratch: Array) -> int:
    """Return where the first bad index is that a share reports, or VALID."""
    for part in range(parts):
        place: int = scratch.item(part)
        if place != VALID:
            return place
    return VALID


def _is_spread(chosen: Plan, scratch: Array) -> bool:
    """Return whether no bucket holds more updates than it may."""
    buckets = chosen.buckets
    counts = scratch[buckets.spaces : buckets.pairs].view(SHARE_SPACE)["counts"][:, : buckets.count]
    return bool(counts.sum(axis=0).max() <= chosen.most)
