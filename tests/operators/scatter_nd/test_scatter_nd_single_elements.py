"""Single elements: more than a block of them, read where they lie, written speculatively or to accumulators."""

import numpy as np
import pytest
from samples import THREADS, assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.runtime.threads import use_budget


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("step", [1, 2])
def test_many_updates_of_few_elements(reduction, step):
    """More than there are elements: the result is written to a copy first, which a gap in the output must not join."""
    rng = np.random.default_rng(step)
    x, indices = rng.integers(0, 9, 50 * step).astype(np.int16)[::step], rng.integers(-50, 50, (2_000, 1))
    updates = rng.integers(0, 9, 2_000).astype(np.int16)
    around = np.full(50 * step, 77, np.int16)
    with use_budget(3, grain=1):
        dmlcpu.scatter_nd(x, indices, updates, reduction=reduction, out=around[::step])
        assert np.array_equal(around[::step], reference.scatter_nd(x, indices, updates, reduction=reduction))
        assert (np.delete(around, np.s_[::step]) == 77).all()
        in_place = x.copy()
        dmlcpu.scatter_nd(in_place, indices, updates, reduction=reduction, out=in_place)
    assert np.array_equal(in_place, around[::step])


@pytest.mark.parametrize("mode", ["raise", "drop"])
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("step", [1, 3])
def test_more_than_a_block_of_indices_of_single_elements(dtype, mode, step):
    """They are read where they lie: in a small output while they are checked, in a larger one afterwards."""
    indices = np.random.default_rng(5).integers(0 if dtype[0] == "u" else -100, 100, 600 * step).astype(dtype)[::step]
    indices[[0, 301, -1]] = 99 if mode == "raise" else 127
    for size in (100, 5_000):
        x, updates = np.arange(float(size)), np.arange(600.0)
        expected = reference.scatter_nd(x, indices[:, None], updates, reduction="add", mode=mode)
        found = dmlcpu.scatter_nd(x, indices[:, None], updates, reduction="add", mode=mode)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("bad", [[5], [1_999], [1_500, 700]])
@pytest.mark.parametrize(("dtype", "reduction"), [("i8", "add"), ("f4", "max"), ("f4", "add")])
def test_a_bad_index_of_any_accumulator_leaves_the_output_as_it_was(bad, dtype, reduction):
    x, indices, updates = np.arange(50).astype(dtype), np.zeros((2_000, 1), int), np.ones(2_000, dtype)
    indices[bad] = 50
    with use_budget(3, grain=1), pytest.raises(dmlcpu.IndexOutOfRangeError, match=rf"indices\[{min(bad)}, 0\]"):
        dmlcpu.scatter_nd(x, indices, updates, reduction=reduction, out=x)
    assert np.array_equal(x, np.arange(50))


@pytest.mark.parametrize("reduction", ["min", "max"])
@pytest.mark.parametrize("threads", THREADS)
def test_accumulators_keep_the_first_of_equal_elements(reduction, threads):
    """Of NaNs and zeros, too: updates of one element come from several shares."""
    rng = np.random.default_rng(threads)
    for pool in ([np.nan, -np.nan, 1.0], [0.0, -0.0, -1.0 if reduction == "max" else 1.0]):
        x, updates = (rng.choice(np.array(pool, np.float32), n) for n in (20, 900))
        x[:5], indices = (-3 if reduction == "max" else 3), rng.integers(-20, 20, (900, 1))
        expected = reference.scatter_nd(x, indices, updates, reduction=reduction)
        with use_budget(threads, grain=1):
            assert_same_bits(
                (dmlcpu.scatter_nd(x, indices, updates, reduction=reduction),), (expected,), "accumulators"
            )
