"""How slices are found, moved and copied, where that depends on how they lie in memory."""

import numpy as np
import pytest

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels.scatter_nd.owned import NON_TEMPORAL
from dmlcpu.runtime.threads import use_budget

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _the_same_numbers_in_every_run(monkeypatch):
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(1))


def numbers(*shape):
    return RNG.integers(0, 99, shape)


def check(x, indices, updates, reduction, threads, *, in_place=False):
    expected = reference.scatter_nd(x, indices, updates, reduction=reduction)
    with use_budget(threads, grain=1):
        result = dmlcpu.scatter_nd(x, indices, updates, reduction=reduction, out=x if in_place else None)
    assert (result == expected).all()


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("in_place", [False, True])
class TestLayouts:
    def test_slices_of_several_runs(self, reduction, threads, in_place):
        updates = numbers(6, 3, 8)[:, :, :4]
        check(numbers(9, 3, 4), RNG.permutation(9)[:6, None], updates, reduction, threads, in_place=in_place)

    def test_updates_that_are_not_evenly_spaced(self, reduction, threads, in_place):
        indices, updates = RNG.permutation(9)[:6].reshape(2, 3, 1), numbers(2, 5, 4)[:, :3]
        check(numbers(9, 4), indices, updates, reduction, threads, in_place=in_place)

    @pytest.mark.parametrize("row", [(), (4,)])
    def test_few_updates_with_duplicates(self, reduction, threads, in_place, row):
        check(numbers(300, *row), numbers(50, 1), numbers(50, *row), reduction, threads, in_place=in_place)

    def test_many_rows_that_meet(self, reduction, threads, in_place):
        indices = numbers(5_000, 1)
        check(numbers(99, 70), indices, numbers(5_000, 70), reduction, threads, in_place=in_place)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("dtype", "start"), [(np.uint8, 0), (np.uint8, 13), (np.float32, 5), (np.complex128, 1)])
def test_a_copy_past_the_caches_writes_every_element_and_no_other(threads, dtype, start):
    length = NON_TEMPORAL // np.dtype(dtype).itemsize + 77
    x = np.arange(length + 1).astype(dtype)[1:]
    around = np.zeros(length + start + 9, dtype)
    out = around[start : start + length]
    with use_budget(threads, grain=1):
        dmlcpu.scatter_nd(x, [[length // 2], [-1]], np.array([3, 4], dtype), out=out)
    expected = x.copy()
    expected[[length // 2, -1]] = 3, 4
    assert (out == expected).all()
    assert not around[:start].any()
    assert not around[start + length :].any()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_copy_past_the_caches_of_what_is_not_in_c_order(threads):
    x = np.asfortranarray((np.arange(NON_TEMPORAL + 5_000) % 251).astype(np.uint8).reshape(-1, 1_000))
    out = np.zeros_like(x)
    with use_budget(threads, grain=1):
        dmlcpu.scatter_nd(x, [[3], [-1]], np.ones((2, 1_000), np.uint8), out=out)
    x[[3, -1]] = 1
    assert (out == x).all()
