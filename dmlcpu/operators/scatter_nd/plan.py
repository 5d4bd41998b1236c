"""How scatter_nd is carried out: what the kernels see elements as, and how the work is cut."""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.kernels import registry
from dmlcpu.kernels.registry import Row
from dmlcpu.kernels.scatter_nd import reduction as reductions
from dmlcpu.kernels.scatter_nd.choose import validation_of, writing_mode_of
from dmlcpu.kernels.scatter_nd.owned import FALSE_SHARING
from dmlcpu.kernels.scatter_nd.work import (
    BEFOREHAND,
    BLOCK_CELLS,
    ELEMENTS,
    MOST_BUCKETS,
    PAIRS,
    PLACES,
    RAISE,
    SHARE_CELLS,
    SPECULATIVE,
    WORK,
)
from dmlcpu.operators.scatter_nd.call import MODES, NAME, Call, check, is_out, reduction_of
from dmlcpu.operators.scatter_nd.layout import Fields, Tensors, element_type, lay_out, tensors_of
from dmlcpu.operators.scatter_nd.run import BY_KERNEL, BY_NUMPY, IN_PLACE, Buckets, Plan, Targets
from dmlcpu.reference import scatter_nd as reference_scatter_nd
from dmlcpu.runtime.memory import Workspace, frombuffer, packed_strides, second_level_cache, words
from dmlcpu.runtime.records import CACHE_LINE, CELL, record_of
from dmlcpu.runtime.threads import REFERENCE, Budget

_log = logging.getLogger("dmlcpu")

_LONG = np.dtype(np.int64)
_EXTREMES = (reductions.MINIMUM, reductions.MAXIMUM)
_LINE_CELLS = CACHE_LINE // CELL
_HALVES = {"float16": reductions.FLOAT16, "bfloat16": reductions.BFLOAT16}
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

_NOTHING = np.zeros(64, np.uint8)  # in the place of arrays without elements, which kernels are not given


@functools.lru_cache(maxsize=1024)
def prepare(forms: tuple[Any, ...], options: tuple[Any, ...], budget: Budget) -> Prepared:
    """Return how calls are carried out. forms, options: those of `check`."""
    call = check(forms, options)
    prepared = plan(call, budget)
    if budget == REFERENCE:
        return prepared
    empty = [i for i, form in enumerate(call[:4]) if 0 in form.shape]
    return converting(prepared, [(i, lambda _: _NOTHING) for i in empty])


@functools.lru_cache(maxsize=1024)
def plan(call: Call, budget: Budget) -> Prepared:
    """Return how what has been checked is carried out."""
    if call.indices.dtype.itemsize < 4:
        longer = call._replace(indices=Form(call.indices.shape, _LONG))
        return converting(plan(longer, budget), [(1, lambda indices: indices.astype(_LONG, order="C"))])
    results = (Tensor(call.x.shape, call.x.dtype),)
    if budget == REFERENCE:
        return ByFunction(operator=NAME, kernel="reference", results=results, function=functools.partial(_refer, call))
    dtype, mode = call.x.dtype, MODES[call.mode]
    element = element_type(dtype, call.reduction, call.width)
    tensors = tensors_of(call, element)
    reduction, half = reduction_of(dtype, call.reduction), _HALVES.get(dtype.name, reductions.PLAIN)
    layout, copied = lay_out(tensors, call.indices.dtype, reduction, half), _copied(call, tensors)
    kernel, apply, reason = _choose(tensors, layout, budget)
    partitions = kernel == "apply_buckets"
    layout["is_serial"] &= apply == "apply"
    parts, owners, copies = _cut(tensors, layout, copied, budget)
    cells = max(parts, owners) * (1 + BLOCK_CELLS)
    buckets, cells = _buckets(tensors, parts, cells) if partitions else (Buckets(), cells)
    validation, has_pass, copies_first = _passes(tensors, layout, (mode, copied, copies), kernel)
    targets, cells = _targets(tensors, layout, element, budget, validation, cells)
    owners = max(owners, targets.count)
    what = (tensors.count, tensors.slice_size, tensors.shape, kernel, reason, parts)
    _log.debug("scatter_nd: %d updates of %d words into %s: %s (%s), %d parts", *what)
    row: Row = registry.find(NAME, "apply", apply)
    return Plan(
        operator=NAME,
        results=results,
        kernel=kernel,
        is_single=parts == owners == copies == 1,
        workspace=Workspace(cells),
        row=row,
        validate=_kernel("validate", parts) if has_pass else None,
        copy=_kernel("copy", copies) if copies_first else None,
        apply=row.kernel.for_parts(owners),
        partition=_kernel("partition", parts) if partitions else None,
        apply_buckets=_kernel("apply_buckets", parts) if partitions else None,
        has_stages=any((owners > 1, has_pass, copies_first, partitions, copied == BY_NUMPY, validation == SPECULATIVE)),
        parts=parts,
        owners=owners,
        copied=copied,
        validation=validation,
        targets=targets,
        merge=_merge(call, targets, element, budget) if targets.count > 1 else None,
        buckets=buckets,
        most=_most_in_a_bucket(tensors, parts, budget),
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


def _passes(tensors: Tensors, layout: Fields, asked: tuple[int, int, int], kernel: str) -> tuple[int, bool, bool]:
    """Return when indices are validated, and whether `validate` and `copy` run first.

    asked: the mode, how x is copied, and the shares of that.
    """
    mode, copied, copies = asked
    validation = _validation(tensors, mode, copied) if kernel == "apply" else BEFOREHAND
    has_copy = copied == BY_KERNEL and validation != SPECULATIVE and copies > 1
    copies_first = has_copy and (layout["is_serial"] or not tensors.is_in_order)
    validation = BEFOREHAND if copies_first else validation
    has_pass = validation == BEFOREHAND and tensors.count > 0 and (mode == RAISE or kernel == "apply_buckets")
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


def _merge(call: Call, targets: Targets, element: np.dtype[Any], budget: Budget) -> Plan:
    """Return the plan that reduces all accumulators but the first: updates of the whole output, without coordinates."""
    shape, dtype, count = call.x.shape, call.x.dtype, targets.count - 1
    strides = (targets.step * element.itemsize, *packed_strides(shape, dtype.itemsize))
    x, indices, updates = Form(shape, dtype), Form((count, 0), _LONG), Form((count, *shape), dtype, strides)
    # There is one owner and nothing to validate, so `run` need only call its kernel.
    merged = call._replace(x=x, indices=indices, updates=updates, out=x, mode="drop", in_place=True)
    return cast(Plan, plan(merged, budget._replace(kernel=None)))


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


def _refer(call: Call, x: Array, indices: Array, updates: Array, out: Array) -> int | None:
    """Run by the reference; return the place of the first index that is refused."""
    x, out = (array.reshape(call.x.shape) for array in (x, out))
    indices, updates = indices.reshape(call.indices.shape), updates.reshape(call.updates.shape)
    if call.mode == "raise":
        bad = is_out(indices, call.x.shape[: call.coordinates])
        if bad.any():
            return int(bad.argmax())
    options: Any = {"reduction": call.reduction, "mode": call.mode}
    reference_scatter_nd(x, indices, updates, **options, out=out)
    return None
