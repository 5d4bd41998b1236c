import ast
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.microkernels import generic
from dmlcpu.kernels.scatter_nd import offsets
from dmlcpu.runtime import intrinsics, jit, layers, pool
from dmlcpu.runtime.kernel import kernel

STEP = 3


@jit.device
def bump(value):
    return value + STEP


@kernel
def bump_all(part, parts, x):
    for i in range(part * x.size // parts, (part + 1) * x.size // parts):
        x[i] = bump(x[i])


def test_kernels_are_cached_under_a_digest_of_their_helpers():
    assert bump_all.share.__qualname__ == f"bump_all_{jit.digest(bump_all.function)}"


def test_the_digest_changes_with_helpers_and_their_constants(monkeypatch):
    before = jit.digest(bump_all.function)
    monkeypatch.setitem(globals(), "STEP", np.float32(3))
    with_constant = jit.digest(bump_all.function)
    monkeypatch.setitem(globals(), "bump", jit.device(lambda value: value * STEP))
    assert len({before, with_constant, jit.digest(bump_all.function)}) == 3


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
    kernel = registry.find("quantized_matmul", "dot", "dot_u8s8_4x8x4_generic").kernel.function
    before = jit.digest(kernel)
    monkeypatch.setattr(generic, "HALF", generic.WORD)
    assert jit.digest(kernel) != before


def test_the_digests_are_the_same_in_every_process():
    code = (
        "from dmlcpu.kernels import registry; from dmlcpu.runtime import jit, layers, pool;"
        "functions = [layers._launch, pool._launch, pool._serve, *(e.kernel.function for e in registry.KERNELS)];"
        "print([jit.digest(function) for function in functions])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    functions = [layers._launch, pool._launch, pool._serve, *(entry.kernel.function for entry in registry.KERNELS)]
    assert found.stdout.strip() == str([jit.digest(function) for function in functions])


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
    before = jit.digest(kernel)
    changed = 8 if name == "_LEAST_LANES" else lambda context, element: 8
    if callable(changed):
        changed.__module__ = intrinsics.__name__
    monkeypatch.setattr(intrinsics, name, changed)
    assert jit.digest(kernel) != before


def test_methods_that_intrinsics_use_count_in_the_digest(monkeypatch):
    kernel = registry.find("scatter_nd", "apply").kernel.function
    before = jit.digest(kernel)
    monkeypatch.setattr(offsets._Lines, "is_between", lambda self, here, first, last: here)
    assert jit.digest(kernel) != before


def test_without_a_place_for_the_cache_kernels_are_compiled_uncached(monkeypatch, caplog):
    def refuse(function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(jit, "KernelCache", refuse)
    monkeypatch.setattr(jit, "_can_cache", True)
    caplog.set_level(logging.DEBUG, "dmlcpu")
    compiled = [jit.compile_lazily(bump_all.function) for _ in range(2)]
    assert [function.stats.cache_path for function in compiled] == [None, None]
    assert [record.message for record in caplog.records] == [
        "compiled kernels cannot be cached (cannot cache function: no locator available); set NUMBA_CACHE_DIR to a "
        "writable folder"
    ]
