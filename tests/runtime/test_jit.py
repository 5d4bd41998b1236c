import ast
import concurrent.futures
import logging
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numba
import numpy as np
import pytest

from dmlcpu.kernels import registry
from dmlcpu.kernels.quantized_matmul import product
from dmlcpu.runtime import dots, intrinsics, jit, places

STEP = 3


@jit.device
def bump(value):
    return value + STEP


@jit.kernel
def bump_all(part, parts, x):
    for i in range(part * x.size // parts, (part + 1) * x.size // parts):
        x[i] = bump(x[i])


def spy(monkeypatch):
    """Note how kernels run."""
    ran = []
    launch = jit.launcher()
    monkeypatch.setattr(jit, "launcher", lambda: lambda *args: (ran.append("parallel"), launch(*args)))
    share = bump_all.share
    monkeypatch.setattr(bump_all, "_share", Spied(share, lambda *args: (ran.append("serial"), share(*args))))
    return ran


class Spied:
    def __init__(self, compiled, call):
        self._compiled, self._call = compiled, call

    def __getattr__(self, name):
        return getattr(self._compiled, name)

    def __call__(self, *args):
        return self._call(*args)


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_all_shares_are_done(parts, dtype):
    x = np.arange(11, dtype=dtype)
    bump_all(0, parts, x)
    assert x.tolist() == list(range(3, 14))


def test_kernels_are_cached_under_a_digest_of_their_helpers():
    assert bump_all.share.__qualname__ == f"bump_all_{jit._digest(bump_all.function)}"


def test_the_digest_changes_with_helpers_and_their_constants(monkeypatch):
    before = jit._digest(bump_all.function)
    monkeypatch.setitem(globals(), "STEP", np.float32(3))
    with_constant = jit._digest(bump_all.function)
    monkeypatch.setitem(globals(), "bump", jit.device(lambda value: value * STEP))
    assert len({before, with_constant, jit._digest(bump_all.function)}) == 3


def test_one_part_runs_serially_and_more_run_in_parallel(monkeypatch):
    ran = spy(monkeypatch)
    for parts in (1, 2, 5):
        bump_all(0, parts, np.zeros(9, int))
    assert ran == ["serial", "parallel", "parallel"]


def test_what_runs_one_part_is_the_compiled_function_itself():
    assert bump_all.for_parts(1) is bump_all.share
    assert bump_all.for_parts(2) is bump_all


def test_whoever_finds_the_threads_taken_runs_serially(monkeypatch):
    ran = spy(monkeypatch)
    with jit._launching:
        bump_all(0, 2, np.zeros(9, int))
    bump_all(0, 2, np.zeros(9, int))
    assert ran == ["serial", "serial", "parallel"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_runs_serially(monkeypatch):
    ran = spy(monkeypatch)
    monkeypatch.setattr(jit, "_forked", False)
    jit._after_fork_in_child()
    bump_all(0, 2, np.zeros(9, int))
    assert ran == ["serial", "serial"]


def test_a_child_forked_while_a_kernel_was_being_made_can_make_its_own(monkeypatch):
    monkeypatch.setattr(jit, "_forked", False)
    held = threading.RLock()  # by a thread that the child does not have
    monkeypatch.setattr(jit, "_making", held)
    jit._after_fork_in_child()
    assert jit._making is not held


def test_a_kernel_can_be_made_while_another_is(monkeypatch):
    inner, outer = jit.Kernel(bump_all.function), jit.Kernel(spy)
    monkeypatch.setattr(jit, "_compile_lazily", lambda function: inner.share if function is spy else function)
    thread = threading.Thread(target=lambda: outer.share, daemon=True)  # which must not wait for itself
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_helpers_that_count_no_references_call_none_that_return_views():
    views, calls = set(), []
    for path in Path(jit.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                decorators = {getattr(decorator, "id", None) for decorator in node.decorator_list}
                names = {
                    call.func.id for call in ast.walk(node) if isinstance(call, ast.Call) and hasattr(call.func, "id")
                }
                if "viewer" in decorators:
                    views.add(node.name)
                if "device" in decorators:
                    calls.append((node.name, names))
    assert len(views) > 5
    assert [name for name, names in calls if names & views] == []


def test_the_digest_changes_with_a_machine_type(monkeypatch):
    kernel = product.generic.function
    before = jit._digest(kernel)
    monkeypatch.setattr(dots, "_HALF", dots._WORD)
    assert jit._digest(kernel) != before


def test_numbas_thread_count_is_left_as_it_was():
    seen = []

    def run():
        before = numba.get_num_threads()
        bump_all(0, 2, np.zeros(9, int))
        seen.append(numba.get_num_threads() == before)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    run()
    assert seen == [True, True]


def test_no_more_threads_are_woken_than_there_are_parts(monkeypatch):
    calls = []
    eight = types.SimpleNamespace(get_num_threads=lambda: 8, set_num_threads=calls.append, intp=numba.intp)
    monkeypatch.setattr(jit, "numba", eight)
    monkeypatch.setattr(jit, "launcher", lambda: lambda *args: calls.append("run"))
    for parts in (2, 8, 9):
        bump_all(0, parts, np.zeros(9, int))
    assert calls == [2, "run", 8, "run", "run"]


def test_the_digests_are_the_same_in_every_process():
    code = (
        "from dmlcpu.kernels import registry; from dmlcpu.runtime import jit;"
        "print([jit._digest(jit._launch), *(jit._digest(entry.kernel.function) for entry in registry.KERNELS)])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = [jit._digest(jit._launch), *(jit._digest(entry.kernel.function) for entry in registry.KERNELS)]
    assert found.stdout.strip() == str(here)


def test_another_process_finds_the_kernels_in_the_cache(tmp_path):
    code = (
        "import numpy, sys, dmlcpu; dmlcpu.top_k(numpy.zeros((40, 2), 'u1'), 1);"
        "from dmlcpu.kernels import registry;"
        "print(sum(registry.find('top_k', 'select', 'lockstep').kernel.share.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [run.stdout.strip() for run in runs] == ["0", "1"]


@pytest.mark.parametrize("name", ["_LEAST_LANES", "_lanes"])
def test_what_intrinsics_use_counts_in_the_digest(monkeypatch, name):
    kernel = registry.find("top_k", "select", "lockstep").kernel.function
    before = jit._digest(kernel)
    changed = 8 if name == "_LEAST_LANES" else lambda context, element: 8
    if callable(changed):
        changed.__module__ = intrinsics.__name__
    monkeypatch.setattr(intrinsics, name, changed)
    assert jit._digest(kernel) != before


def test_methods_that_intrinsics_use_count_in_the_digest(monkeypatch):
    kernel = registry.find("scatter_nd", "apply").kernel.function
    before = jit._digest(kernel)
    monkeypatch.setattr(places._Lines, "is_between", lambda self, here, first, last: here)
    assert jit._digest(kernel) != before


def test_threads_that_come_first_together_make_one_compiled_function(monkeypatch):
    made = []

    def make(function):
        made.append(function)
        time.sleep(0.05)
        return function

    monkeypatch.setattr(jit, "_compile_lazily", make)
    fresh = jit.Kernel(bump_all.function)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(lambda _: fresh.share, range(4)))
    assert len(made) == 1
    assert shares == [bump_all.function] * 4


def test_without_a_place_for_the_cache_kernels_are_compiled_uncached(monkeypatch, caplog):
    def refuse(function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(jit, "KernelCache", refuse)
    monkeypatch.setattr(jit, "_can_cache", True)
    caplog.set_level(logging.DEBUG, "dmlcpu")
    compiled = [jit._compile_lazily(bump_all.function) for _ in range(2)]
    assert [function.stats.cache_path for function in compiled] == [None, None]
    assert [record.message for record in caplog.records] == [
        "compiled kernels cannot be cached (cannot cache function: no locator available); set NUMBA_CACHE_DIR to a "
        "writable folder"
    ]
