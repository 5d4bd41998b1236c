"""Plans of scatter_nd: the type as which kernels read elements, and how the work is cut."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple, cast

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.indexing.ranges import is_out
from dmlcpu.indexing.reductions import HALVES, MODES, element_type, reduction_of
from dmlcpu.kernels import registry
from dmlcpu.kernels.registry import Row
from dmlcpu.kernels.scatter_nd import reduction as reductions
from dmlcpu.kernels.scatter_nd.choose import validation_of, writing_mode_of
from dmlcpu.kernels.scatter_nd.owned import FALSE_SHARING
from dmlcpu.kernels.scatter_nd.work import (
    BEFOREHAND,
    BLOCK,
    BLOCK_CELLS,
    ELEMENTS,
    PLACES,
    RAISE,
    ROWS,
    SLICES,
    SPECULATIVE,
    WORK,
)
from dmlcpu.operators.scatter_nd.buckets import Buckets, Partition, lay_buckets
from dmlcpu.operators.scatter_nd.call import NAME, Call, check
from dmlcpu.operators.scatter_nd.layout import Fields, Tensors, lay_out, tensors_of
from dmlcpu.operators.scatter_nd.run import BY_KERNEL, BY_NUMPY, IN_PLACE, Plan, Targets
from dmlcpu.reference import scatter_nd as reference_scatter_nd
from dmlcpu.runtime.memory import Workspace, frombuffer, packed_strides, second_level_cache, words
from dmlcpu.runtime.records import CELL, record_of
from dmlcpu.runtime.threads import REFERENCE, Budget

_log = logging.getLogger("dmlcpu")

_LONG = np.dtype(np.int64)
_NUMBERED = (ROWS, SLICES)  # buckets have the numbers of these updates, not the updates themselves
# Many single elements are partitioned first if that pays, because several threads then wait for memory at once.
# Milliseconds on Zen 4 with float32, two threads, partitioned and by one thread: 100,000 into 16 MB 0.6 and 1.1,
# 500,000 2.2 and 4.0, 2,000,000 6.4 and 13; 1,100,000 into 8 MB 3.3 and 2.8.
_PARTITIONED_UPDATES = 1 << 16  # at least
_PARTITIONED_CACHES = 12  # the output would fill at least this many second caches
# Fewer are selected by several threads, if the processor has the instruction. Two threads take 0.6 to 1.0 of one
# thread's time for 1,000,000 updates into 8 MB, evenly distributed or by Zipf's law, but 0.7 to 1.2 into 4 MB, and up
# to 1.4 into 2 MB; for 140,000 updates into 6 MB 0.7 to 1.5 (Zen 4).
_SELECTED_UPDATES = 1 << 18  # at least
_SELECTED_CACHES = 4  # the output would fill more than this many second caches
# Outputs of up to this many bytes are written speculatively, which takes less time than reading all indices twice (Xeon
# with VNNI). Up to the second limit this is true if the output has an index for each byte: validating an index takes as
# long as copying two bytes there and back.
_SPECULATIVE_BYTES, _MOST_SPECULATIVE_BYTES = 1 << 16, 1 << 20
# Without buckets, each share of the output reads all indices. Together with a pass that validates them, indices are
# read at most four times, for any number of threads. For slices a fourth reader would take longer than a partition: a
# quarter of the 8 ns below is 2 ns, and a reader takes 1 to 2 ns to select from a tuple.
_MOST_READERS = 3
# Copied ranges have equal lengths if slices have fewer bytes. With balanced ranges, two threads skip every other
# update, and took 1.26 times as long for 131,072 slices of 64 bytes in a sixteenth of the output (Zen 3, on a busy
# machine).
_LEAST_BALANCED = 256
# The time of a partition in nanoseconds, on a busy Zen 3: to find ranges and wake threads four times; and for each
# single element, in all threads together, where one thread alone applies an element in 1 ns. To count, partition and
# apply 1,000,000 elements took 1.6 + 5.7 + 0.8 ns each into 1,000, and 2.5 + 8.1 + 2.1 into 1,000,000, where one thread
# took 1.1 and 5.5. So eight threads break even.
_PARTITION_NS, _PARTITIONED_NS = 80_000, 8

_SAMPLES_OF_SHARE = 64  # each costs a cache miss or two, together 10 us
_NOTHING = np.zeros(64, np.uint8)  # passed to kernels instead of arrays without elements


class Cut(NamedTuple):
    """The number of shares that the work is cut into."""

    parts: int  # of the updates
    owners: int  # of the output, if updates are not partitioned
    takers: int  # threads that take buckets, if they are
    copies: int  # of the copy, if it comes first
    gains: bool  # whether partitioning saves time
    selects: bool  # owners select single elements


@functools.lru_cache(maxsize=1024)
def prepare(forms: tuple[Any, ...], options: tuple[Any, ...], budget: Budget) -> Prepared:
    """Return the prepared call. forms, options: those of `check`."""
    call = check(forms, options)
    prepared = plan(call, budget)
    if budget == REFERENCE:
        return prepared
    empty = [i for i, form in enumerate(call[:4]) if 0 in form.shape]
    return converting(prepared, [(i, lambda _: _NOTHING) for i in empty])


@functools.lru_cache(maxsize=1024)
def plan(call: Call, budget: Budget) -> Prepared:
    """Return the plan of a checked call."""
    if call.indices.dtype.itemsize < 4:
        longer = call._replace(indices=Form(call.indices.shape, _LONG))
        return converting(plan(longer, budget), [(1, lambda indices: indices.astype(_LONG, order="C"))])
    results = (Tensor(call.x.shape, call.x.dtype),)
    if budget == REFERENCE:
        return ByFunction(operator=NAME, kernel="reference", results=results, function=functools.partial(_refer, call))
    dtype, mode = call.x.dtype, MODES[call.mode]
    element = element_type(dtype, call.reduction, call.width)
    tensors = tensors_of(call, element)
    reduction, half = reduction_of(NAME, dtype, call.reduction), HALVES.get(dtype.name, reductions.PLAIN)
    layout, copied = lay_out(tensors, call.indices.dtype, reduction, half), _copied(call, tensors)
    is_speculative = _validation(tensors, mode, copied) == SPECULATIVE
    accumulators = _accumulators(tensors, layout, element, budget) if is_speculative else 1
    cut = _cut(tensors, layout, copied, budget, can_gain=accumulators == 1 and tensors.span > 0)
    partitions, reason = _choose(tensors, layout, cut, budget)
    if partitions and cut.selects:  # updates that no partition spreads are left to one thread
        cut = cut._replace(selects=False, owners=1)
    apply = "apply_selected" if cut.selects else "apply"
    kernel = "apply_buckets" if partitions else apply
    layout["is_serial"] &= not cut.selects
    validation, has_pass, copies_first = _passes(tensors, layout, (mode, copied, cut), kernel)
    cells = max(cut.parts, cut.owners, cut.takers if partitions else 1) * (1 + BLOCK_CELLS)
    partition, buckets = None, Buckets()
    if partitions:
        partition, cells = _partition(tensors, layout, (mode, copied, cut), budget, cells)
        buckets = partition.buckets
    targets, cells = _targets(tensors, layout, accumulators, validation, cells)
    owners = max(cut.owners, targets.count)
    what = (tensors.count, tensors.slice_size, tensors.shape, kernel, reason, cut.parts)
    _log.debug("scatter_nd: %d updates of %d words into %s: %s (%s), %d parts", *what)
    row: Row = registry.find(NAME, "apply", apply)
    return Plan(
        operator=NAME,
        results=results,
        kernel=kernel,
        is_single=cut.parts == owners == cut.copies == 1 and not (partitions and cut.takers > 1),
        workspace=Workspace(cells),
        row=row,
        validate=_kernel("validate", cut.parts) if has_pass else None,
        copy=_kernel("copy", cut.copies) if copies_first else None,
        apply=row.kernel.for_parts(owners),
        partition=partition,
        has_stages=any((owners > 1, has_pass, copies_first, partitions, copied == BY_NUMPY, validation == SPECULATIVE)),
        parts=cut.parts,
        owners=owners,
        copied=copied,
        validation=validation,
        targets=targets,
        merge=_merge(call, targets, element, budget) if targets.count > 1 else None,
        count=tensors.count,
        work=_work(layout, mode, validation, targets, buckets),
        element=element,
        nothing=None if copied == BY_KERNEL else np.empty(0, element),
        view=words if any(form.strides is not None for form in call[:4]) else frombuffer,
    )


def _copied(call: Call, tensors: Tensors) -> int:
    """Return how x is copied."""
    if call.in_place or 0 in tensors.shape:
        return IN_PLACE
    has_gaps = tensors.span > math.prod(tensors.shape) * tensors.element
    steps = zip(tensors.shape, call.x.steps, call.out.steps, strict=True)
    return BY_NUMPY if has_gaps or any(n > 1 and mine != other for n, mine, other in steps) else BY_KERNEL


def _passes(tensors: Tensors, layout: Fields, asked: tuple[int, int, Cut], kernel: str) -> tuple[int, bool, bool]:
    """Return when indices are validated, and whether `validate` and `copy` run first, if updates are not partitioned.

    asked: the mode, how x is copied, and how the work is cut.
    """
    mode, copied, cut = asked
    validation = _validation(tensors, mode, copied) if kernel == "apply" else BEFOREHAND
    has_copy = copied == BY_KERNEL and validation != SPECULATIVE
    spreads = not tensors.is_in_order and layout["slices"]["kind"] in _NUMBERED and kernel == "apply_buckets"
    more = cut.copies > 1 and (layout["is_serial"] or not tensors.is_in_order or cut.copies > cut.owners)
    copies_first = has_copy and (spreads or more)
    validation = BEFOREHAND if copies_first else validation
    has_pass = validation == BEFOREHAND and tensors.count > 0 and mode == RAISE and kernel != "apply_buckets"
    return validation, has_pass, copies_first


def _work(layout: Fields, mode: int, validation: int, targets: Targets, buckets: Buckets) -> Array:
    """Return the work record of all kernels."""
    return record_of(
        WORK,
        **layout,
        mode=mode,
        writing_mode=writing_mode_of(mode, validation),
        validation=validation,
        accumulator=targets.step,
        buckets=asdict(buckets),
    )


def _kernel(stage: str, parts: int) -> Callable[..., Any]:
    run: Callable[..., Any] = registry.find(NAME, stage).kernel.for_parts(parts)
    return run


def _cut(tensors: Tensors, layout: Fields, copied: int, budget: Budget, *, can_gain: bool) -> Cut:
    """Return how many shares the work is cut into; can_gain: partitioning single elements may save time."""
    count, ranges, selects = tensors.count, layout["ranges"], _selects(tensors, layout, budget)
    nbytes = math.prod(tensors.shape) * tensors.element * tensors.width if copied == BY_KERNEL else 0
    # Nanoseconds (Zen 4, within a factor of 2) of an offset, of the words there, and of the copy.
    copy = nbytes // 32
    update = count * (5 + tensors.slice_size // 4)
    is_long = tensors.slice_size * tensors.width >= _LEAST_BALANCED
    ranges["copied"] = BLOCK * copy // max(copy + update, 1) if is_long else BLOCK
    look = count * max(tensors.coordinates, 1)
    parts, many = (budget.parts(work, most=count) for work in (look, _PARTITIONED_NS * look))
    takers, alone = (budget.parts(work, most=ranges["count"]) for work in (update + copy, update))
    if layout["is_serial"]:
        gains = can_gain and count > _PARTITION_NS + count * _PARTITIONED_NS // many
        owners = min(takers, _MOST_READERS) if selects else 1
        copies = budget.parts(copy, most=tensors.span)
    else:
        gains = alone > _MOST_READERS and update + copy >= _PARTITION_NS * _MOST_READERS
        owners = takers if takers <= _MOST_READERS else min(alone, _MOST_READERS)
        copies = takers
    return Cut(many if gains else parts, owners, takers, copies, gains, selects)


def _partition(
    tensors: Tensors, layout: Fields, asked: tuple[int, int, Cut], budget: Budget, cells: int
) -> tuple[Partition, int]:
    """Return how updates are partitioned, and the workspace's cells including that; cells: without it.

    asked: the mode, how x is copied, and how the work is cut.
    """
    mode, copied, cut = asked
    is_serial, is_numbered = layout["is_serial"], layout["slices"]["kind"] in _NUMBERED
    # If one thread would take less time than a balanced partition, ranges only need a length that suits the caches.
    balances = is_numbered or cut.gains or (budget.kernel is not None and cut.parts > 2)
    copies = copied == BY_KERNEL and (tensors.is_in_order or not is_numbered)
    shares = {"balances": balances, "has_numbers": is_numbered, "copies": copies}
    buckets, cells = lay_buckets(tensors, cut.parts, cut.takers, cells, **shares)
    falls_back = is_serial and budget.kernel is None
    partition = Partition(
        buckets=buckets,
        count=tensors.count,
        checks=mode == RAISE,
        copies=copies,
        most=3 * buckets.turn // 4 if falls_back else tensors.count,
        sample=_kernel("sample", min(cut.parts, max(1, buckets.samples // _SAMPLES_OF_SHARE))),
        cut=_kernel("cut", 1),
        count_all=_kernel("validate", cut.parts),
        order=_kernel("order", 1),
        partition=_kernel("partition", cut.parts),
        apply=_kernel("apply_bucket_slices" if is_numbered else "apply_buckets", cut.takers),
    )
    return partition, cells


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _accumulators(tensors: Tensors, layout: Fields, element: np.dtype[Any], budget: Budget) -> int:
    """Return how many accumulators there are if single elements are written speculatively."""
    reduction = layout["reduction"]
    is_exact = reduction in reductions.EXTREMES or (reduction == reductions.ADD and element.kind in "iu")
    if not (layout["is_serial"] and is_exact):
        return 1
    # Writing and merging an accumulator takes half the time of as many updates.
    return budget.parts(tensors.count * tensors.coordinates, most=tensors.count // (2 * max(tensors.span, 1)))


def _targets(tensors: Tensors, layout: Fields, accumulators: int, validation: int, cells: int) -> tuple[Targets, int]:
    """Return what is written speculatively, and the workspace's cells including it; cells: without it."""
    if validation != SPECULATIVE:
        return Targets(), cells
    cell, count, step = _up(cells, FALSE_SHARING // CELL), 0, 0
    if layout["is_serial"]:
        count = accumulators
        step = _up(tensors.span * tensors.width, FALSE_SHARING) // tensors.width
    words = max(count - 1, 0) * step + tensors.span
    return Targets(count, step, cell), cell + -(-words * tensors.width // CELL)


def _merge(call: Call, targets: Targets, element: np.dtype[Any], budget: Budget) -> Plan:
    """Return the plan that reduces all accumulators but the first: updates of the whole output, without coordinates."""
    shape, dtype, count = call.x.shape, call.x.dtype, targets.count - 1
    strides = (targets.step * element.itemsize, *packed_strides(shape, dtype.itemsize))
    x, indices, updates = Form(shape, dtype), Form((count, 0), _LONG), Form((count, *shape), dtype, strides)
    # With one owner and nothing to validate, `run` only calls its kernel.
    merged = call._replace(x=x, indices=indices, updates=updates, out=x, mode="drop", in_place=True)
    return cast(Plan, plan(merged, budget._replace(kernel=None)))


def _validation(tensors: Tensors, mode: int, copied: int) -> int:
    """Return when indices are validated, if updates are not partitioned."""
    if copied == BY_NUMPY or not tensors.is_in_order:
        return BEFOREHAND
    most = max(_SPECULATIVE_BYTES, min(tensors.count, _MOST_SPECULATIVE_BYTES))
    can_copy = 0 < tensors.span <= tensors.count and tensors.span * tensors.width <= most
    return validation_of(mode, tensors.count, can_copy)


def _choose(tensors: Tensors, layout: Fields, cut: Cut, budget: Budget) -> tuple[bool, str]:
    """Return whether updates are partitioned first, and why."""
    count, kernel = tensors.count, budget.kernel
    has_updates = count > 0 and 0 not in tensors.shape
    can = {None: True, "apply": True, "apply_buckets": has_updates, "apply_selected": cut.selects}
    if not can.get(kernel, False):
        raise LookupError(f"no kernel {kernel} for {count} updates of {tensors.slice_size} words")
    if kernel:
        return kernel == "apply_buckets", "requested"
    if layout["slices"]["kind"] in (ELEMENTS, PLACES):
        least = _PARTITIONED_CACHES * second_level_cache()
        if count >= _PARTITIONED_UPDATES and tensors.span * tensors.width >= least:
            return True, f"at least {_PARTITIONED_UPDATES} updates into at least {least} bytes"
        if not cut.gains:
            return False, f"fewer than {_PARTITIONED_UPDATES} updates, or into less than {least} bytes"
        return True, f"{cut.parts} threads take less time than one"
    if cut.gains:
        return True, f"{cut.takers} threads would each read all indices"
    return False, f"slices for at most {_MOST_READERS} threads"


def _selects(tensors: Tensors, layout: Fields, budget: Budget) -> bool:
    """Return whether shares select their own single elements, unless these are partitioned."""
    if budget.kernel:
        return bool(budget.kernel == "apply_selected" and layout["is_serial"])
    is_far = tensors.span * tensors.width > _SELECTED_CACHES * second_level_cache()
    if not (is_far and layout["is_serial"] and tensors.count >= _SELECTED_UPDATES and budget.threads > 1):
        return False
    return any(row.name == "apply_selected" for row in registry.available("scatter_nd", "apply"))


def _refer(call: Call, x: Array, indices: Array, updates: Array, out: Array) -> int | None:
    """Run the reference; return the place of the first index that is refused."""
    x, out = (array.reshape(call.x.shape) for array in (x, out))
    indices, updates = indices.reshape(call.indices.shape), updates.reshape(call.updates.shape)
    if call.mode == "raise":
        bad = is_out(indices, call.x.shape[: call.coordinates])
        if bad.any():
            return int(bad.argmax())
    options: Any = {"reduction": call.reduction, "mode": call.mode}
    reference_scatter_nd(x, indices, updates, **options, out=out)
    return None
