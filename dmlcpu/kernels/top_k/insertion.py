"""Top-k by insertion: the k best so far, kept in order. For few candidates (small k) or very short sequences."""

from numba import prange

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k.keys import load_keys, write_row
from dmlcpu.runtime.jit import device, kernel


@device
def select(keys, n, k, best, order):
    """Write the k greatest of keys[:n], in order, to best[:k] and their positions to order[:k]."""
    filled = 0
    for i in range(n):
        key = keys[i]
        if filled == k and key <= best[k - 1]:  # an equal key that comes later loses
            continue
        j = filled if filled < k else k - 1
        while j > 0 and best[j - 1] < key:
            best[j] = best[j - 1]
            order[j] = order[j - 1]
            j -= 1
        best[j] = key
        order[j] = i
        filled = min(filled + 1, k)


@device
def select_rows(first, last, x, x_start, x_step, values, v_start, v_step, indices, i_start, i_step,
                words, grid, n, k, kind, infinity, largest, keys, order):  # fmt: skip
    """Do the sequences first, ..., last - 1. keys: n + k words; order: k int64."""
    for row in range(first, last):
        start = x_start + offset(grid, 1, row)
        load_keys(x, start, x_step, n, kind, infinity, largest, keys)
        select(keys, n, k, keys[n:], order)
        v = v_start + offset(grid, 2, row)
        i = i_start + offset(grid, 3, row)
        write_row(x, start, x_step, order, k, values, v, v_step, indices, i, i_step, words)


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of `keys` and of `order` each share of the work needs."""
    return n + k, k


@kernel
def insertion(parts, x, x_start, x_step, values, v_start, v_step, indices, i_start, i_step,
              words, grid, rows, n, k, kind, infinity, largest, keys, order):  # fmt: skip
    """Select by insertion in every sequence. x, values: words of one width; grid: (4, d); scratch: a row a part."""
    for part in prange(parts):
        select_rows(part * rows // parts, (part + 1) * rows // parts, x, x_start, x_step,
                    values, v_start, v_step, indices, i_start, i_step,
                    words, grid, n, k, kind, infinity, largest, keys[part], order[part])  # fmt: skip
