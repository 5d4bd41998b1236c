"""matmul_top_k that reads its matrices, and writes its results, a block at a time."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import cut_within, extent, read_blocks, regions_of
from dmlcpu.common.forms import Form
from dmlcpu.common.regions import Estimate, Region, Sink, Source
from dmlcpu.kernels.gemm.microkernels.microkernel import NR
from dmlcpu.kernels.gemm.pack import LAYOUT
from dmlcpu.kernels.gemm.table import UNPACKED
from dmlcpu.operators.matmul_top_k.function import NAME, MatmulTopK, check, matmul_top_k, request
from dmlcpu.operators.table import OPERATORS
from dmlcpu.products.blocks import BlockSize, as_matrices, packed_part, parameter_bytes, part_of, requested, rhs_bytes
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.runtime.threads import most_of_thread
from dmlcpu.selection.call import INDEX, Call, Operands
from dmlcpu.selection.plan import plan, select

Rhs = Array | PackedMatrix
SOURCES = ("a", "b")

# If memory suffices, blocks have at least this many columns and rows; with fewer, kernels are slower.
_COLUMNS, _ROWS = 256 * NR, 192
# Bytes for each selected score if results of blocks are merged: the scores of two blocks, their concatenation, the
# selection, and NumPy's temporary arrays.
_MERGING = 96


class Selection(NamedTuple):
    """A selection of a product of matrices that need not be in memory."""

    call: Call
    a: Source  # of matrices, like b
    b: Source | PackedMatrix
    others: dict[str, Array | None]  # the other operands except the mask, as matrices
    mask: Array | None  # bits, (1 or M, ceil(N / 8))
    held: int  # bytes of these, and of their copies


def _selection(arguments: dict[str, Any]) -> Selection:
    """Return the selection of a call, or refuse it."""
    given, key, (a, b, numbers, bias, bits, *_) = requested(matmul_top_k, request, arguments)
    call = check(*key)
    kinds = (np.dtype(np.float32), call.a.dtype, np.dtype(np.float32), call.b.dtype)
    names = ("a_scale", "a_zero_point", "b_scale", "b_zero_point")
    is_scaled = call.order.is_scaled
    others: dict[str, Array | None] = {
        name: each.view(kind).reshape(own or (1, 1)) if is_scaled or given[name] is not None else None
        for name, each, kind, own in zip(names, numbers, kinds, call.parameters, strict=True)
    }
    others["bias"] = None if bias is None else bias.reshape(call.bias)
    return Selection(
        call,
        as_matrices(a, call.a.shape),
        as_matrices(b, call.b.shape),
        others,
        bits,
        parameter_bytes([given[name] for name in names], numbers)
        + sum(each.nbytes for each in (bias, bits) if each is not None),
    )


def estimate(**arguments: Any) -> Estimate:
    """Return the results and the memory of a call; refuse what the function refuses. Nothing is read or compiled."""
    found = _selection(arguments)
    call, prepared = found.call, plan(found.call, most_of_thread())
    values, indices = call.results
    memory = call.a.nbytes + rhs_bytes(found.b, call.b) + found.held
    return Estimate(
        {"values": values, "indices": indices},
        memory + values.nbytes + indices.nbytes + prepared.workspace_bytes,
        lambda: min(map(partial(_needs, found), _cuts(call))),
        prepared.kernel,
    )


def run(
    arguments: dict[str, Any], sinks: dict[str, Sink], memory: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """Write the selections of blocks of rows; those of blocks of columns are merged first."""
    found = _selection(arguments)
    call, shape = found.call, found.call.results[0].shape
    if 0 in shape:
        return
    cut = cut_within(NAME, memory, _cuts(call), partial(_needs, found))
    left, right = _Blocks(found.a, call.a, -1), _Blocks(found.b, call.b, -2)
    rows, columns = (each.read(_regions(call, cut), stopping) for each in (left, right))
    best: MatmulTopK | None = None
    for region in _regions(call, cut):
        some = _select(found, region, left.at(region, rows), right.at(region, columns))
        best = some if region[-1].start == 0 or best is None else _merged(call, best, some)
        if region[-1].stop == call.b.shape[-1]:
            kept = (*region[: len(shape) - 1], slice(0, call.order.k))
            for name, array in best._asdict().items():
                sinks[name].write(kept, array.reshape(extent(kept)))


class _Blocks:
    """The blocks of an operand, each for all consecutive regions that need it. whole: the axis that is not cut."""

    def __init__(self, operand: Source | PackedMatrix, form: Form, whole: int) -> None:
        self._operand, self._shape, self._whole = operand, form.shape, whole
        self._before: Region | None = None
        self._block: Rhs | None = None

    def read(self, regions: Iterator[Region], stopping: Callable[[], bool]) -> Iterator[Rhs]:
        """Yield the blocks that some regions of the scores need, each once."""
        operand = self._operand
        wanted = (part_of(self._shape, region, self._whole) for region in regions)
        each = (region for region, _ in itertools.groupby(wanted))
        if isinstance(operand, PackedMatrix):
            yield from (packed_part(operand, region) for region in each)
        else:
            yield from (block for _, block in read_blocks(operand, each, stopping))

    def at(self, region: Region, blocks: Iterator[Rhs]) -> Any:
        """Return the block that a region needs: the one before, or the next."""
        needed = part_of(self._shape, region, self._whole)
        if needed != self._before:
            self._before, self._block = needed, next(blocks)
        return self._block


def _regions(call: Call, cut: BlockSize) -> Iterator[Region]:
    """Yield the regions of all scores: all columns of some rows, then of the next."""
    shape = (*call.rows, call.b.shape[-1])
    return regions_of(shape, (*[1] * (len(shape) - 2), cut.rows, cut.columns))


def _select(selection: Selection, region: Region, a: Array, b: Rhs) -> MatmulTopK:
    """Return the selection from a region of the scores."""
    call = selection.call
    own: dict[str, Any] = {
        name: each if each is None else each[part_of(each.shape, region)] for name, each in selection.others.items()
    }
    k = min(call.order.k, b.shape[-1])
    shape = (*extent(region)[:-1], k)
    found = MatmulTopK(np.empty(shape, call.results[0].dtype), np.empty(shape, INDEX))
    mask = None if selection.mask is None else _bits_of(selection.mask, *region[-2:])
    select(Operands(a, b, **own, mask=mask), call.order._replace(k=k), *found)
    np.add(found.indices, region[-1].start, out=found.indices, where=True if mask is None else found.indices >= 0)
    return found


def _bits_of(mask: Array, rows: slice, columns: slice) -> Array:
    """Return the bits of a region of a mask; bits after its columns have no meaning."""
    lines = mask if len(mask) == 1 else mask[rows]
    first, stop, shift = columns.start // 8, -(-columns.stop // 8), columns.start % 8
    bits = lines[:, first:stop] >> shift
    if shift:
        bits[:, :-1] |= lines[:, first + 1 : stop] << (8 - shift)
    return np.ascontiguousarray(bits[:, : -(-(columns.stop - columns.start) // 8)])


def _merged(call: Call, best: MatmulTopK, found: MatmulTopK) -> MatmulTopK:
    """Return the selection from those of two blocks, the first of which has the lower columns."""
    order = call.order
    values, indices = (np.concatenate(both, axis=-1) for both in zip(best, found, strict=True))
    mode, nan = "largest" if order.is_largest else "smallest", "last" if order.nan_last else "greatest"
    top_k = OPERATORS["top_k"].function
    count = values.shape[-1]
    values, places = top_k(values, min(order.k, count) if call.mask is None else count, mode=mode, nan=nan)
    indices = np.take_along_axis(indices, places, axis=-1)
    if call.mask is None:
        return MatmulTopK(values, indices)
    # Entries for columns that are not allowed come last, with any score.
    places = np.argsort(indices < 0, axis=-1, kind="stable")[..., : order.k]
    return MatmulTopK(*(np.take_along_axis(each, places, axis=-1) for each in (values, indices)))


def _cuts(call: Call) -> Iterator[BlockSize]:
    """Yield cuts, the fastest first. Each of several blocks of rows reads b again."""
    rows, columns = call.rows[-1], call.b.shape[-1]
    is_packed = call.layout == LAYOUT
    yield BlockSize(rows, columns)
    for least_columns, least_rows in ((_COLUMNS, _ROWS), (NR, 1), (1, 1)):
        while columns > least_columns and not is_packed:
            columns = max(least_columns, columns // 2)
            yield BlockSize(rows, columns)
        while rows > least_rows:
            rows = max(least_rows, rows // 2)
            yield BlockSize(rows, columns)


def _needs(selection: Selection, cut: BlockSize) -> int:
    """Return the bytes that `run` takes with such blocks."""
    call = selection.call
    depth, columns, k = call.a.shape[-1], call.b.shape[-1], min(call.order.k, cut.columns)
    if isinstance(selection.b, PackedMatrix):
        right = rhs_bytes(selection.b, call.b)
    else:
        several = cut.columns < columns or math.prod(call.b.shape[:-2]) > 1
        right = (1 + several) * depth * cut.columns
    block = call._replace(
        a=Form((cut.rows, depth), call.a.dtype),
        b=Form((depth, cut.columns), call.b.dtype),
        layout=UNPACKED,
        parameters=(None,) * 4,
        bias=None,
        order=call.order._replace(k=k),
        rows=(cut.rows,),
        mask=None,
    )
    merging = cut.rows * call.order.k * (_MERGING if cut.columns < columns else 12)
    if selection.mask is not None:  # its bits, and a sort of both blocks
        merging += 3 * (1 if len(selection.mask) == 1 else cut.rows) * (-(-cut.columns // 8) + 1)
        merging += cut.rows * call.order.k * (_MERGING if cut.columns < columns else 0)
    workspace = plan(block, most_of_thread()).workspace_bytes
    return 2 * cut.rows * depth + right + selection.held + merging + workspace
