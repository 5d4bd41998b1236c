"""Top-k of mid and large k: all keys, the threshold, a pass that collects in order of position, a stable sort."""

from dmlcpu.kernels.grid import offset
from dmlcpu.kernels.top_k.brief import scratch_of, unpack, wants_order
from dmlcpu.kernels.top_k.groups import LINE
from dmlcpu.kernels.top_k.keys import load_keys, write_row
from dmlcpu.kernels.top_k.order import CELLS, sort
from dmlcpu.kernels.top_k.threshold import collect, kth_greatest
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel


@device
def most_chosen(k):
    """Return how many elements may be sorted to find k: some more are cheaper than an exact threshold."""
    return k + k // 8 + 2


@device
def select(keys, n, k, ordered, chosen, order):
    """Write the positions of the k greatest of keys[:n] to order[:k]. chosen, order: scratch."""
    enough = min(most_chosen(k), n) if ordered else k
    threshold, reached = kth_greatest(keys, n, k, enough)
    if not ordered:
        collect(keys, n, k, threshold, reached, enough, chosen, order)
        return
    room = most_chosen(k) + LINE
    places, words, counts = order[k:], order[k + room :], order[k + 3 * room :]
    found = collect(keys, n, k, threshold, reached, enough, chosen, places)
    here = sort(chosen, found, words, room, counts)
    for i in range(k):
        order[i] = places[words[here + i] & 0xFFFFFFFF]


def scratch(n: int, k: int) -> tuple[int, int]:
    """Return how many words of `keys` and of `order` each share of the work needs."""
    room = k + k // 8 + 2 + LINE
    return n + room, k + 3 * room + CELLS


@kernel
def select_sort(part, parts, x, values, indices, brief, scratch):
    """Select in a share of the sequences. x, values: words of one width; brief, scratch: see brief.py."""
    x_start, x_step, v_start, v_step, i_start, i_step, words, rows, n, k, grid, codes = unpack(x, brief)
    keys, order = scratch_of(part, parts, x, brief, scratch)
    for row in range(part * rows // parts, (part + 1) * rows // parts):
        start = x_start + offset(grid, 1, row)
        load_keys(x, start, x_step, n, codes, keys)
        select(keys, n, k, wants_order(brief), keys[n:], order)
        write_row(x, start, x_step, order, k, values, v_start + offset(grid, 2, row), v_step,
                  indices, i_start + offset(grid, 3, row), i_step, words)  # fmt: skip
