"""The ranges of shares are disjoint, cover the whole output, and end at cache lines."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels.scatter_nd import owned
from dmlcpu.kernels.scatter_nd.work import BLOCK, WORK
from dmlcpu.operators.scatter_nd.function import prepare, request
from dmlcpu.operators.scatter_nd.layout import INDEX_WORD
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.threads import Budget


@njit
def even_range(part, parts, works, out):
    return owned.even_range(part, parts, record_at(works, 0, WORK).ranges, owned.lines_of(out))


@njit
def sampled_range(part, parts, indices, works, out, sample):
    work = record_at(works, 0, WORK)
    return owned.sampled_range(part, parts, indices, work, owned.lines_of(out), sample)


def work_of(out, indices, updates, mode="raise"):
    key, _ = request(out, indices, updates, "none", mode, out)
    return prepare(*key, Budget(1)).work


def starts_lines(out, offset):
    """Return whether a pair of cache lines starts at an offset of out."""
    return (out.ctypes.data + offset * out.itemsize) % owned.FALSE_SHARING == 0


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
@pytest.mark.parametrize("start", [0, 1, 5])
@pytest.mark.parametrize("row", [(), (6,)])
def test_even_ranges(parts, start, row):
    length = 1_000
    out = np.zeros((length + start, *row))[start:]
    indices = np.zeros((1, 1), int)
    work = work_of(out, indices, out[:1])
    ranges = [even_range(part, parts, work, out.ravel()) for part in range(parts)]
    bounds = [ranges[0].first, *(each.last for each in ranges)]
    assert [each.first for each in ranges] == bounds[:-1]
    assert (bounds[0], bounds[-1]) == (0, out.size)
    even = np.diff(bounds)
    assert even.max() - even.min() <= (6 if row else 2 * owned.FALSE_SHARING // 8)
    if row:
        assert not any(bound % 6 for bound in bounds)
    else:
        assert all(starts_lines(out, bound) for bound in bounds[1:-1])


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("mode", ["raise", "drop"])
def test_sampled_ranges(parts, mode):
    """Most updates go to the last quarter of the output; some are skipped."""
    rng = np.random.default_rng(parts)
    out, indices = np.zeros(100_003)[3:], rng.integers(75_000, 100_000, (50_000, 1))
    indices[::10] = rng.integers(0, 100_000, (5_000, 1))
    if mode == "drop":
        indices[::7] = 100_000
    work, sample = work_of(out, indices, np.zeros(50_000), mode), np.empty(BLOCK, np.int64)
    ranges = [sampled_range(part, parts, words(indices, INDEX_WORD), work, out, sample) for part in range(parts)]
    bounds = [each.first for each in ranges]
    assert [each.last for each in ranges] == [*bounds[1:], np.iinfo(np.int64).max]
    assert bounds[0] == 0
    assert all(starts_lines(out, bound) for bound in bounds[1:])
    counts = np.histogram(indices[indices < out.size], [*bounds, out.size])[0]
    assert counts.max() < 2 * 50_000 / parts
