"""Sequences that are columns in memory: blocks of columns become sequences of keys, and results are written by rows."""

import numpy as np

from dmlcpu.kernels.sort.rows import order_of
from dmlcpu.kernels.sort.windows import position_of
from dmlcpu.kernels.sort.work import WORK, space_of
from dmlcpu.kernels.top_k.column_blocks import block_at, block_count
from dmlcpu.kernels.top_k.keys import key_map_of, load_keys
from dmlcpu.kernels.top_k.work import start_of
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

_TILE = 64  # rows that are read by columns while they are in the first cache


@kernel
def columns(part, parts, x, values, indices, works, scratch):
    """Sort a share of the blocks of columns."""
    work = record_at(works, 0, WORK)
    key_map, n, lanes = key_map_of(x, work.key_map), work.n, work.lanes
    space = space_of(part, x, work, scratch)
    orders = as_words(space.words, 2 * n, np.uint32)
    first, last = share(part, parts, block_count(work, lanes))
    for number in range(first, last):
        row, width = block_at(work, lanes, number)
        load_columns(x, row, width, work, key_map, space.keys)
        for lane in range(width):
            here = order_of(space.keys[lane * n : (lane + 1) * n], n, space.words, space.counts)
            for i in range(n):
                orders[lane * n + i] = np.uint32(position_of(space.words[here + i]))
        write_columns(x, row, width, work, orders, values, indices)


@device
def load_columns(x, row, width, work, key_map, keys):
    """Write the keys of `width` columns, each as a sequence."""
    n, step, start = work.n, work.x.step, start_of(work, work.x, row)
    for first in range(0, n, _TILE):
        count = min(_TILE, n - first)
        for lane in range(width):
            load_keys(x, start + first * step + lane, step, count, key_map, keys[lane * n + first :])


@inlined
def write_columns(x, row, width, work, orders, values, indices):
    """Write a block row by row. orders: the positions of each column in order."""
    n, x_start, x_step, column = work.n, start_of(work, work.x, row), work.x.step, work.walk.dims - 1
    if work.has_values:
        start, step, stride = start_of(work, work.values, row), work.values.step, work.values.strides[column]
        for i in range(n):
            for lane in range(width):
                source = x_start + np.int64(orders[lane * n + i]) * x_step + lane
                values[np.uintp(start + i * step + lane * stride)] = x[np.uintp(source)]
    if work.index_words:
        start, step, stride = start_of(work, work.indices, row), work.indices.step, work.indices.strides[column]
        is_wide = work.index_words == 2
        for i in range(n):
            for lane in range(width):
                low = np.uintp(start + i * step + lane * stride)
                indices[low] = orders[lane * n + i]
                if is_wide:
                    indices[low + np.uintp(1)] = 0
