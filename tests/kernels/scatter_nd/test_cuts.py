"""The ranges of buckets cover the output, and threads that take them share the work evenly."""

import heapq
import itertools

import numpy as np
import pytest
from samples import zipf

from dmlcpu.common.forms import form_of, strides_of
from dmlcpu.indexing.reductions import INDEX_WORD
from dmlcpu.kernels.scatter_nd.work import MOST_BUCKETS, SHARE_SPACE
from dmlcpu.operators.scatter_nd.call import check
from dmlcpu.operators.scatter_nd.plan import plan
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.threads import Budget


def planned(x, indices, updates, threads, *, out=None, mode="drop", kernel=None):
    forms = [*map(form_of, (x, indices, updates)), strides_of(out)]
    return plan(check(forms, ("add", mode, out is x, 0)), Budget(threads, grain=1, kernel=kernel))


def bucketed(made, indices):
    """Return the first offset of each bucket and the end, the updates of each, and the order they are taken in."""
    partition, scratch = made.partition, made.workspace.make()
    partition.validate(words(indices, INDEX_WORD), made.work, scratch)
    assert partition.is_spread(words(indices, INDEX_WORD), made.work, scratch)
    cuts, buckets = partition.cuts(scratch), partition.buckets
    count = int(cuts["count"])
    counts = scratch[buckets.spaces : buckets.pairs].view(SHARE_SPACE)["counts"][:, :count].sum(axis=0)
    assert cuts["fullest"] == counts.max()
    return cuts["firsts"][: count + 1].copy(), counts, cuts["order"][:count].copy()


def shares_of(work, order, threads):
    """Return the work of each thread, if a thread takes the next bucket as soon as it is done with one."""
    shares = [0.0] * threads
    for bucket in order:
        heapq.heapreplace(shares, shares[0] + work[bucket])
    return np.array(shares)


def indices_of(kind, size, count):
    rng = np.random.default_rng(count)
    if kind == "uniform":
        return rng.integers(0, size, count)[:, None]
    places = zipf(size, count)
    return (rng.permutation(size)[places] if kind == "zipf anywhere" else places)[:, None]


@pytest.mark.parametrize("kind", ["uniform", "zipf", "zipf anywhere"])
@pytest.mark.parametrize(("shape", "count"), [((1_000_000,), 1_000_000), ((30_000, 64), 250_000), ((300, 8), 250_000)])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("threads", [16, 64])
def test_threads_share_the_work_evenly(kind, shape, count, copies, threads):
    """The largest share is at most 1.3 times the mean, or what one element or slice gets."""
    x, indices = np.zeros(shape, np.float32), indices_of(kind, shape[0], count)
    made = planned(x, indices, np.zeros((count, *shape[1:]), np.float32), threads, out=None if copies else x)
    firsts, counts, order = bucketed(made, indices)
    row = x[0].size
    slices = np.bincount(indices[:, 0], minlength=len(x))
    expected = [slices[-(-first // row) : -(-last // row)].sum() for first, last in itertools.pairwise(firsts)]
    assert counts.tolist() == expected
    update, word = 5 + row / 4, 4 / 32 if copies else 0
    work = counts * update + np.diff(firsts) * word
    assert (np.diff(work[order]) <= 0).all()
    shares = shares_of(work, order, threads)
    assert shares.sum() == pytest.approx(count * update + x.size * word)
    assert shares.max() <= max(1.3 * shares.mean(), slices.max() * update + row * word)


@pytest.mark.parametrize("threads", [1, 2, 5, 64, 128])
@pytest.mark.parametrize(("shape", "step"), [((5_000,), 1), ((999,), 2), ((77, 3), 1), ((77, 3), 2), ((3, 40_000), 1)])
@pytest.mark.parametrize("start", [0, 1])
def test_ranges_cover_the_output(threads, shape, step, start):
    """They are whole slices where these lie in order, whatever the sample is."""
    rng = np.random.default_rng(threads)
    out = np.zeros((step * shape[0] + start, *shape[1:]))[start::step][: shape[0]]
    indices = rng.integers(0, shape[0] + 1, (400, 1))
    indices[::3] = 1
    made = planned(out, indices, np.zeros((400, *shape[1:])), threads, out=out, kernel="apply_buckets")
    firsts, counts, order = bucketed(made, indices)
    assert firsts[0] == 0
    assert firsts[-1] == made.partition.buckets.span
    assert (np.diff(firsts) > 0).all()
    assert len(counts) <= MOST_BUCKETS
    assert sorted(order) == list(range(len(counts)))
    assert counts.sum() == np.count_nonzero(indices < shape[0])
    if step == 1:
        assert not (firsts % out[0].size).any()


@pytest.mark.parametrize("threads", [2, 16, 64, 128])
@pytest.mark.parametrize("mode", ["raise", "drop"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("shape", "count"),
    [((1_000_000,), 1_000_000), ((1_000,), 20_000_000), ((4_000_000,), 9_000_000), ((30_000, 64), 250_000),
     ((30_000, 64), 12_000_000), ((300, 64), 200), ((50_257, 768), 5_000)],
)  # fmt: skip
def test_few_indices_are_read_however_many_threads_there_are(threads, mode, in_place, shape, count):
    """And the workspace takes at most 64 MiB and 1 MiB a thread."""
    x, indices = np.zeros(shape, np.float32), np.broadcast_to(np.int64(0), (count, 1))
    updates = np.broadcast_to(np.float32(0), (count, *shape[1:]))
    for kernel in (None, "apply_buckets"):
        made = planned(x, indices, updates, threads, out=x if in_place else None, mode=mode, kernel=kernel)
        assert made.indices_read <= 4 * count + 2_048
        assert made.workspace_bytes <= (64 + threads) << 20
