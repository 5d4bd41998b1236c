"""Radix-select and sort, for mid and large k: find the threshold, collect the winners by position, sort them."""

from dmlcpu.kernels.top_k.groups import LINE
from dmlcpu.kernels.top_k.keys import key_map_of, load_keys
from dmlcpu.kernels.top_k.order import CELLS, sort
from dmlcpu.kernels.top_k.threshold import collect, kth_greatest
from dmlcpu.kernels.top_k.work import WORK, Problem, start_of, workspace_of, write_winners
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.jit import device, shared
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at


@shared
def most_chosen(k: int) -> int:
    """Return how many elements may be sorted to find k: sorting a few more is cheaper than an exact threshold."""
    return k + k // 8 + 2


def supports(_: Problem) -> bool:
    """Return whether the kernel can do this."""
    return True


@shared
def workspace(n: int, k: int, lanes: int) -> tuple[int, int]:
    """Return how many keys and positions each share needs."""
    capacity = most_chosen(k) + LINE
    return n + capacity, k + 3 * capacity + CELLS


@kernel
def select_sort(part, parts, x, values, indices, works, scratch):
    """Select in a share of the sequences."""
    work = record_at(works, 0, WORK)
    key_map = key_map_of(x, work.key_map)
    n, k = work.n, work.k
    space = workspace_of(part, parts, x, work, scratch)
    first, last = share(part, parts, work.rows)
    for row in range(first, last):
        start = start_of(work, work.x, row)
        load_keys(x, start, work.x.step, n, key_map, space.keys)
        select_greatest(space.keys, n, k, work.is_sorted, space.keys[n:], space.positions)
        write_winners(x, start, work, row, space.positions, values, indices)


@device
def select_greatest(keys, n, k, is_sorted, chosen, order):
    """Write the positions of the k greatest of keys[:n] to order[:k]. chosen and order[k:] are workspace."""
    enough = min(most_chosen(k), n) if is_sorted else k
    threshold, reached = kth_greatest(keys, n, k, enough)
    if not is_sorted:
        collect(keys, n, k, threshold, reached, enough, chosen, order)
        return
    capacity = most_chosen(k) + LINE
    positions, words, counts = order[k:], order[k + capacity :], order[k + 3 * capacity :]
    found = collect(keys, n, k, threshold, reached, enough, chosen, positions)
    here = sort(chosen, found, words, capacity, counts)
    for i in range(k):
        order[i] = positions[words[here + i] & 0xFFFFFFFF]
