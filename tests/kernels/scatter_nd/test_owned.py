"""The ranges of shares are disjoint, cover the whole output, and end at cache lines."""

import numpy as np
import pytest
from numba import njit
from samples import zipf

from dmlcpu.indexing.reductions import INDEX_WORD
from dmlcpu.kernels.scatter_nd import owned
from dmlcpu.kernels.scatter_nd.work import BLOCK, WORK
from dmlcpu.operators.scatter_nd.call import check
from dmlcpu.operators.scatter_nd.function import request
from dmlcpu.operators.scatter_nd.plan import plan
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.threads import Budget


@njit
def owned_range(part, parts, copies, indices, works, out, sample):
    work = record_at(works, 0, WORK)
    return owned.owned_range(part, parts, copies, indices, work, owned.lines_of(out), sample)


def ranges_of(parts, out, indices, work, *, copies=False):
    """Return the bounds of all shares' ranges."""
    given = (copies, words(indices, INDEX_WORD), work, out.reshape(-1), np.empty(BLOCK, np.int64))
    ranges = [owned_range(part, parts, *given) for part in range(parts)]
    bounds = [each.first for each in ranges]
    assert [each.last for each in ranges] == [*bounds[1:], np.iinfo(np.int64).max]
    assert bounds[0] == 0
    return [*bounds, out.size]


def work_of(x, indices, updates, mode="raise", out=None):
    key, _ = request(x, indices, updates, "none", mode, x if out is None else out)
    return plan(check(*key), Budget(1)).work


def starts_lines(out, offset):
    """Return whether a pair of cache lines starts at an offset of out."""
    return (out.ctypes.data + offset * out.itemsize) % owned.FALSE_SHARING == 0


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 1, 5])
@pytest.mark.parametrize("row", [(), (6,)])
@pytest.mark.parametrize("count", [0, 1])
def test_a_copy_with_hardly_any_updates_is_cut_evenly(parts, start, row, count):
    length = 1_000
    out = np.zeros((length + start, *row))[start:]
    work = work_of(np.zeros_like(out), np.zeros((count, 1), int), out[:count], out=out)
    bounds = ranges_of(parts, out, np.zeros((1, 1), int), work, copies=True)
    even = np.diff(bounds)
    assert even.max() - even.min() <= (6 * 8 if row else 2 * owned.FALSE_SHARING // 8)
    if row:
        assert not any(bound % 6 for bound in bounds)
    else:
        assert all(starts_lines(out, bound) for bound in bounds[1:-1])


@pytest.mark.parametrize("copies", [False, True])
def test_few_rows_get_most_updates(copies):
    """Each share gets about as much to do, whether or not it copies its range."""
    out, indices = np.zeros((10_000, 64)), zipf(10_000, 60_000)[:, None]
    work = work_of(np.zeros_like(out) if copies else out, indices, np.zeros((60_000, 64)), out=out)
    bounds = np.array(ranges_of(2, out, indices, work, copies=copies))
    counts = np.histogram(64 * indices, bounds)[0]
    assert not copies or not (bounds % 64).any()
    todo = counts * (5 + 64 // 4) + (np.diff(bounds) * 8 // 32 if copies else 0)
    assert todo.max() < 0.6 * todo.sum()


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("mode", ["raise", "drop"])
def test_sampled_ranges(parts, mode):
    """Most updates go to the last quarter of the output; some are skipped."""
    rng = np.random.default_rng(parts)
    out, indices = np.zeros(100_003)[3:], rng.integers(75_000, 100_000, (50_000, 1))
    indices[::10] = rng.integers(0, 100_000, (5_000, 1))
    if mode == "drop":
        indices[::7] = 100_000
    bounds = ranges_of(parts, out, indices, work_of(out, indices, np.zeros(50_000), mode))
    assert all(starts_lines(out, bound) for bound in bounds[1:-1])
    counts = np.histogram(indices[indices < out.size], bounds)[0]
    assert counts.max() < 2 * 50_000 / parts
