import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dmlcpu.runtime import kept_calls
from dmlcpu.runtime.kept_calls import kept_call, kept_call_if
from dmlcpu.runtime.kernel import kernel


@kernel
def add_up(part, parts, x, y, scratch):
    scratch[0] += 1
    for i in range(x.size):
        y[i] += x[i] + 100 * scratch[0] + 1000 * part + 10_000 * parts


def test_a_kept_call_runs_one_part_on_the_same_memory_each_time():
    x, y, scratch = np.arange(3.0), np.zeros(3), np.full(8, 5)
    again = kept_call(add_up, x, y, scratch)
    assert again() is True
    assert y.tolist() == [10_100, 10_101, 10_102]  # the counter started from 0
    x[...] = 7
    y[...] = 0
    again()
    assert y.tolist() == [10_107] * 3


@kernel
def copy_first(part, parts, x, found):
    found[0] = np.int64(x[0])


def test_a_second_kept_call_follows_if_the_first_allows_it():
    x, found = np.ones(3), np.full(1, 5)
    y, scratch = np.zeros(3), np.full(8, 5)
    again = kept_call_if(copy_first, (x, found), add_up, x, y, scratch)
    assert again() is True
    assert y.tolist() == [10_101] * 3
    x[...] = 0
    assert again() is False
    assert y.tolist() == [10_101] * 3
    x[...] = 2
    assert again() is True
    assert y.tolist() == [20_203] * 3


@pytest.mark.parametrize("is_second", [False, True])
def test_a_kept_call_holds_its_arrays(is_second):
    args = np.ones(3), np.zeros(3), np.zeros(8, np.int64)
    found = (np.ones(3), np.zeros(1, np.int64)) if is_second else ()
    held = [weakref.ref(array) for array in (*found, *args)]
    again = kept_call_if(copy_first, found, add_up, *args) if is_second else kept_call(add_up, *args)
    del args, found
    gc.collect()
    assert all(each() is not None for each in held)
    assert again()
    del again
    gc.collect()
    assert not any(each() is not None for each in held)


def test_threads_that_come_first_together_use_one_compiled_function(monkeypatch):
    """Cells have addresses of its machine code, which has to stay."""
    made, both = [], threading.Barrier(2)

    def compile_lazily(_function, **_options):
        both.wait(20)
        made.append(object())
        return made[-1]

    monkeypatch.setattr(kept_calls, "compile_lazily", compile_lazily)
    monkeypatch.setattr(kept_calls, "_made", {})
    with ThreadPoolExecutor(2) as pool:
        mine, other = pool.map(kept_calls._compiled, [len, len])
    assert len(made) == 2
    assert mine is other
