import logging
import os
import threading
import types

import numba
import numpy as np
import pytest
from numba import prange

from dmlcpu.runtime import jit

STEP = 3


@jit.device
def bump(value):
    return value + STEP


@jit.kernel
def bump_all(parts, x):
    for part in prange(parts):
        for i in range(part * x.size // parts, (part + 1) * x.size // parts):
            x[i] = bump(x[i])


def spy(monkeypatch):
    """Note which twin runs."""
    ran = []
    for twin in ("serial", "parallel"):
        compiled = getattr(bump_all, twin)
        monkeypatch.setattr(
            bump_all, twin, lambda *args, twin=twin, compiled=compiled: (ran.append(twin), compiled(*args))
        )
    return ran


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_both_twins_do_the_same(parts):
    x = np.arange(11)
    bump_all(parts, x)
    assert x.tolist() == list(range(3, 14))


def test_the_twins_are_cached_apart_and_under_a_digest_of_their_helpers():
    names = [bump_all.serial.__qualname__, bump_all.parallel.__qualname__]
    digest = jit._digest(bump_all.function)
    assert names == [f"bump_all_serial_{digest}", f"bump_all_parallel_{digest}"]


def test_the_digest_changes_with_helpers_and_their_constants(monkeypatch):
    before = jit._digest(bump_all.function)
    monkeypatch.setitem(globals(), "STEP", np.float32(3))
    with_constant = jit._digest(bump_all.function)
    monkeypatch.setitem(globals(), "bump", jit.device(lambda value: value * STEP))
    assert len({before, with_constant, jit._digest(bump_all.function)}) == 3


def test_one_part_runs_serially_and_more_run_in_parallel(monkeypatch):
    ran = spy(monkeypatch)
    for parts in (1, 2, 5):
        bump_all(parts, np.zeros(9, int))
    assert ran == ["serial", "parallel", "parallel"]


def test_the_twin_for_one_part_is_the_serial_one_itself():
    assert bump_all.twin(1) is bump_all.serial
    assert bump_all.twin(2) is bump_all


def test_whoever_finds_the_threads_taken_runs_serially(monkeypatch):
    ran = spy(monkeypatch)
    with jit._launch:
        bump_all(2, np.zeros(9, int))
    bump_all(2, np.zeros(9, int))
    assert ran == ["serial", "parallel"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_runs_serially(monkeypatch):
    ran = spy(monkeypatch)
    monkeypatch.setattr(jit, "_forked", False)
    jit._after_fork_in_child()
    bump_all(2, np.zeros(9, int))
    assert ran == ["serial"]


def test_numbas_thread_count_is_left_as_it_was():
    seen = []

    def run():
        before = numba.get_num_threads()
        bump_all(2, np.zeros(9, int))
        seen.append(numba.get_num_threads() == before)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    run()
    assert seen == [True, True]


def test_no_more_threads_are_woken_than_there_are_parts(monkeypatch):
    calls = []
    eight = types.SimpleNamespace(get_num_threads=lambda: 8, set_num_threads=calls.append)
    monkeypatch.setattr(jit, "numba", eight)
    monkeypatch.setattr(bump_all, "parallel", lambda *args: calls.append("run"))
    for parts in (2, 8, 9):
        bump_all(parts, np.zeros(9, int))
    assert calls == [2, "run", 8, "run", "run"]


def test_without_a_place_for_the_cache_kernels_are_compiled_uncached(monkeypatch, caplog):
    def njit(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: ("uncached", function.__qualname__)

    monkeypatch.setattr(jit, "njit", njit)
    monkeypatch.setattr(jit, "_can_cache", True)
    caplog.set_level(logging.DEBUG, "dmlcpu")
    compiled = [jit._compile_lazily(bump_all.function, twin) for twin in ("serial", "parallel")]
    assert [kind for kind, _ in compiled] == ["uncached", "uncached"]
    assert [record.message for record in caplog.records] == [
        "compiled kernels cannot be cached (cannot cache function: no locator available); set NUMBA_CACHE_DIR to a "
        "writable folder"
    ]
