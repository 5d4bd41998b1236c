"""The end of a selection: the candidates of all shares are merged, sorted, and written; see candidates.py."""

import numpy as np

from dmlcpu.kernels.gemm.work import WORK_CELLS
from dmlcpu.kernels.selection.candidates import COUNT, HEADER, column_of, score_of
from dmlcpu.kernels.selection.work import SELECTION
from dmlcpu.kernels.top_k.groups import LINE
from dmlcpu.kernels.top_k.order import CELLS
from dmlcpu.kernels.top_k.select_sort import most_chosen, select_greatest
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


def finish_cells(shares: int, capacity: int, k: int) -> int:
    """Return the workspace of a part."""
    chosen = most_chosen(k) + LINE
    return shares * capacity + LINE + chosen + k + 3 * chosen + CELLS


@kernel
def finish(part, parts, values, indices, works, scratch):
    """Write the selected scores of a share of the rows, best first. values: 32-bit words, indices: int64, (rows, k)."""
    top = record_at(works, WORK_CELLS, SELECTION)
    k, most = top.k, top.shares * top.capacity + LINE
    chosen_at = top.finish_start + part * top.finish_cells
    keys = as_words(scratch, chosen_at, np.uint64)
    chosen = as_words(scratch, chosen_at + most, np.uint64)
    order = as_words(scratch, chosen_at + most + most_chosen(k) + LINE, np.int64)
    is_in_order = top.is_sorted and top.shares == 1
    first, last = share(part, parts, top.rows)
    for row in range(first, last):
        count = gather(row, top, scratch, keys)
        found = min(count, k)
        if found > 0 and not is_in_order:
            select_greatest(keys, count, found, True, chosen, order)
        for i in range(found):
            key = keys[i if is_in_order else order[i]]
            values[row * k + i], indices[row * k + i] = score_of(key, top), column_of(key)
        for i in range(found, k):
            values[row * k + i], indices[row * k + i] = np.int32(top.fill), -1


@device
def gather(row, top, scratch, keys):
    """Copy a row's candidates of all shares to `keys`; return how many there are."""
    count = 0
    for part in range(top.shares):
        cells = top.start + part * top.share_cells + row * top.row_cells
        source = as_words(scratch, cells + HEADER, np.uint64)
        for i in range(top.k if top.is_sorted else scratch[cells + COUNT]):
            keys[count] = source[i]
            count += source[i] != 0
    return count
