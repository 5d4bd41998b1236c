"""scatter_nd in compiled code: one thread, contiguous arrays, and all workspace on the stack."""

import numpy as np
from numba.core import types
from numba.extending import overload, register_jitable

from dmlcpu.common.arguments import check_type
from dmlcpu.common.data_types import INDICES
from dmlcpu.common.forms import Form
from dmlcpu.indexing.reductions import MODES, element_type, reduction_of
from dmlcpu.interop.numba.calls import PART, PARTS, caller_of, stack_of, tuple_of, write_record
from dmlcpu.interop.numba.refusals import (
    RefusalError,
    array_type,
    constant,
    is_given,
    output_type,
    refusal,
    share_memory,
    typed,
)
from dmlcpu.kernels.scatter_nd.apply import apply
from dmlcpu.kernels.scatter_nd.choose import is_serial, kind_of, validation_of, writing_mode_of
from dmlcpu.kernels.scatter_nd.reduction import PLAIN, is_reduced_in_vectors
from dmlcpu.kernels.scatter_nd.validate import validate
from dmlcpu.kernels.scatter_nd.work import BEFOREHAND, BLOCK_CELLS, BY_BLOCK, CLIP, RAISE, VALID, WORK
from dmlcpu.kernels.walk import MAX_DIMS
from dmlcpu.operators.scatter_nd.call import NAME, check as check_call
from dmlcpu.operators.scatter_nd.function import scatter_nd
from dmlcpu.runtime.intrinsics import address_of, as_words
from dmlcpu.runtime.jit import OWN_OPTIONS, compile_kernel, device
from dmlcpu.runtime.records import cells_of, record_at

_shape_on_stack = stack_of(MAX_DIMS + 1)
_record_on_stack, _block_on_stack = stack_of(cells_of(WORK)), stack_of(1 + BLOCK_CELLS)
_apply, _validate = apply.share, validate.share
Work, Tuples, Slices = tuple_of(WORK), tuple_of(WORK["tuples"]), tuple_of(WORK["slices"])
_NO_BUCKETS = (0,) * cells_of(WORK["buckets"])


@device
def fill(works, shape, count, coordinates, options):
    """Write the work record of contiguous arrays. shape: of x, followed by 1; count: of the updates."""
    element, reduction, in_vectors, mode, is_wide, is_signed = options
    tuples, size = record_at(works, 0, WORK).tuples, element
    for d in range(coordinates, len(shape)):
        size *= shape[d]
    step, ranges = size, 1
    for t in range(coordinates - 1, -1, -1):
        tuples.sizes[t], tuples.out_steps[t] = shape[t], step
        step *= shape[t]
        ranges *= shape[t]
    words, walk, validation = 1 + is_wide, (1, (count,)), validation_of(mode, count, False)
    kind = kind_of(size, True, coordinates == 1, in_vectors != 0, reduction)
    write_record(works, WORK, Work(
        tuples=Tuples(count=count, coordinates=coordinates, start=0, step=words, walk=walk,
                      strides=(coordinates * words,), is_wide=is_wide, is_signed=is_signed,
                      sizes=(), out_start=0, out_steps=()),
        updates=(0, walk, (size,)),
        slices=Slices(kind=kind, is_packed=1, in_vectors=in_vectors, runs=1, length=size, walk=(1, (1,)),
                      out_step=1, out_strides=(0,), updates_step=1, updates_strides=(0,)),
        reduction=reduction, half=PLAIN, mode=mode, writing_mode=writing_mode_of(mode, validation),
        validation=validation, is_serial=is_serial(kind, reduction, PLAIN), accumulator=0,
        ranges=(ranges, size, 0), buckets=_NO_BUCKETS,
    ))  # fmt: skip


def scatter(x, indices, updates, out, shape, dims, options):
    """Copy x to out unless it is empty, and apply the updates; return the place of the first bad index, or VALID.

    shape: of x, followed by 1; dims: the length of shape, the number of updates, and of coordinates of a tuple;
    options: see `fill`.
    """
    dimensions, count, coordinates = dims
    works = _record_on_stack()
    fill(works, shape[:dimensions], count, coordinates, options)
    work, scratch = record_at(works, 0, WORK), _block_on_stack()
    if work.validation == BEFOREHAND and work.mode == RAISE:
        _validate(PART, PARTS, indices, works, scratch)
        if scratch[0] != VALID:
            return np.int64(scratch[0])
    _apply(PART, PARTS, x, indices, updates, out, works, scratch)
    return np.int64(scratch[0] if work.validation == BY_BLOCK else VALID)


def signature(words):
    """Return the types of the arguments of `scatter`."""
    number = types.int64
    places, shape = types.Array(types.uint32, 1, "C"), types.Array(number, 1, "C")
    return words, places, words, words, shape, types.UniTuple(number, 3), types.UniTuple(number, 6)


SCATTER = compile_kernel(scatter)
OFFERS = {"scatter": lambda: SCATTER}


@device
def count_of(shape):
    """Return the number of tuples."""
    count = 1
    for d in range(len(shape) - 1):
        count *= shape[d]
    return count


@register_jitable(**OWN_OPTIONS)
def check(shape, updates, dims, indices, coordinates, mode):
    """Refuse shapes that do not match. shape, updates: of x and updates, with one more dimension."""
    if indices[-1] != coordinates:
        raise RefusalError("coordinates", indices[-1], coordinates)
    outer = len(indices) - 1  # updates have indices.shape[:-1] + x.shape[coordinates:]
    for d in range(dims):
        if updates[d] != (indices[d] if d < outer else shape[d - outer + coordinates]):
            raise RefusalError("scatter_nd", shape, indices, updates)
    if mode == CLIP and count_of(indices) > 0:
        for t in range(coordinates):
            if shape[t] == 0:
                raise RefusalError("scatter_nd", shape, indices, updates)


@register_jitable(**OWN_OPTIONS)
def check_output(x, indices, updates, out):
    """Refuse an output of another shape, or that shares memory; return whether it is x."""
    if out.shape != x.shape:
        raise RefusalError("shape", "scatter_nd", "out", out.shape, x.shape)
    if share_memory(out, indices):
        raise RefusalError("shared", "scatter_nd", "out", "indices")
    if share_memory(out, updates):
        raise RefusalError("shared", "scatter_nd", "out", "updates")
    in_place = address_of(x, 0) == address_of(out, 0)
    if not in_place and share_memory(out, x):
        raise RefusalError("shared", "scatter_nd", "out", "x (it may be x itself, but not a part of it)")
    return in_place


@overload(scatter_nd, prefer_literal=True, jit_options=OWN_OPTIONS)
def _scatter_nd(x, indices, updates, reduction="none", mode="raise", out=None):
    """Return scatter_nd for arguments of these types. Numba has no arguments that are passed by keyword only."""
    dtype, index_type = array_type("scatter_nd", "x", x), array_type("scatter_nd", "indices", indices)
    typed(check_type, "scatter_nd", "indices", index_type, INDICES)
    found = array_type("scatter_nd", "updates", updates)
    if indices.ndim == 0:
        raise refusal("scatter_nd", "indices.ndim", 0, "at least 1 (the last dimension holds a tuple)")
    coordinates = indices.ndim - 1 + x.ndim - updates.ndim
    if not 0 <= coordinates <= x.ndim:
        allowed = f"{indices.ndim - 1} to {indices.ndim - 1 + x.ndim} (by the dimensions of indices and x)"
        raise refusal("scatter_nd", "updates.ndim", updates.ndim, allowed)
    if is_given(out):
        output_type("scatter_nd", "out", out, x.ndim, dtype)
    tuples = (*(1,) * (indices.ndim - 1), coordinates)
    forms = Form((1,) * x.ndim, dtype), Form(tuples, index_type), Form((1,) * updates.ndim, found), None
    how, beyond = constant("scatter_nd", "reduction", reduction), constant("scatter_nd", "mode", mode)
    typed(check_call, forms, (how, beyond))
    word, number = element_type(dtype, how), reduction_of(NAME, dtype, how)
    return _implementation(dtype, word, index_type, updates.ndim, coordinates, number, MODES[beyond], is_given(out))


def _implementation(dtype, word, index_type, dims, coordinates, reduction, mode, has_out):
    in_vectors, is_signed = is_reduced_in_vectors(reduction, PLAIN), index_type.kind == "i"
    numbers = (dtype.itemsize // word.itemsize, reduction, in_vectors, mode, index_type.itemsize == 8, is_signed)
    scatter_words = caller_of("scatter_nd", "scatter", word)
    options, scalar, index_scalar = tuple(map(np.int64, numbers)), word.type, index_type.type

    # Numba optimizes each callee again in every caller, so there is no helper between this and the kernels.
    def implementation(x, indices, updates, reduction="none", mode="raise", out=None):
        shape, count = (*x.shape, 1), count_of(indices.shape)
        check(shape, (*updates.shape, 1), dims, indices.shape, coordinates, options[3])
        y = out if has_out else np.empty_like(x)
        old, new, places = as_words(x, 0, scalar), as_words(updates, 0, scalar), as_words(indices, 0, np.uint32)
        if has_out and check_output(x, indices, updates, out):
            old = old[:0]
        numbers = _shape_on_stack()
        for d in range(len(shape)):
            numbers[d] = shape[d]
        sizes = (np.int64(len(shape)), count, np.int64(coordinates))
        place = scatter_words((old, places, new, as_words(y, 0, scalar), numbers, sizes, options))
        if place != VALID:
            found = as_words(indices, 0, index_scalar)[place]
            raise RefusalError("index", place, found, indices.shape, shape, is_signed)
        return y

    return implementation
