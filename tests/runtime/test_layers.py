"""Numba's layers: how they are started, and that no setting stays behind. Each test has a fork of its own."""

import importlib.util
import json
import os
import sys
import textwrap

import numba
import pytest
from processes import forks_of

from dmlcpu.runtime import layers

HAS_OPENMP = importlib.util.find_spec("numba.np.ufunc.omppool") is not None
needs_openmp = pytest.mark.skipif(not HAS_OPENMP or sys.platform != "linux", reason="needs GNU OpenMP")

LAUNCH = """
import ctypes, json, os, subprocess, sys, threading
import numba
import numpy as np
from numba.core import config
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.layers import NumbaLayer

@kernel
def count(part, parts, done):
    done[part] += 1

def launch(layer, parts=4):
    done = np.zeros(parts, np.int64)
    able = layer.launch(count.address((done,)), parts, (done,), parts - 1)
    assert done.tolist() == [int(able)] * parts
    return able

layer = NumbaLayer()
numba.njit(lambda: 1)()  # what Numba loads for it would take 0.1 s in each fork
"""


@pytest.fixture(scope="module")
def run():
    """Run code in a process that has started no layer, with settings of Numba; return what it printed."""
    with forks_of(LAUNCH) as run_fork:
        yield lambda code, **settings: run_fork("config.reload_config()\n" + textwrap.dedent(code), **settings)


@pytest.mark.parametrize("name", ["workqueue", pytest.param("omp", marks=needs_openmp)])
def test_a_layer_does_every_part_and_measures_what_a_launch_takes(run, name):
    printed = run(
        """
        assert layer.waking() == 0 and layer.awake() == 0
        assert launch(layer) and launch(layer, 9) and layer.awake() > 0
        assert layer.waking() > 0
        print(json.dumps(layer.describe()))
        """,
        NUMBA_THREADING_LAYER=name,
    )
    shown = json.loads(printed)
    assert shown["layer"] == f"Numba's, {name}"
    assert shown["layer_from"] == f"NUMBA_THREADING_LAYER or its priority: {name}"
    assert "NUMBA_THREADING_LAYER" in shown["advice"]


@needs_openmp
@pytest.mark.parametrize(
    ("environment", "count", "shown"),
    [
        ({}, "10000", "GOMP_SPINCOUNT=10000 (dmlcpu), unless another library loaded it first"),
        ({"GOMP_SPINCOUNT": "77"}, "77", "GOMP_SPINCOUNT=77 (environment)"),
        ({"OMP_WAIT_POLICY": "passive"}, "0", "OMP_WAIT_POLICY=passive (environment)"),
    ],
)
def test_openmp_starts_with_our_spin_count_unless_the_user_has_a_setting(run, environment, count, shown):
    code = """
    os.dup2(1, 2)  # OpenMP prints there
    before = dict(os.environ)
    launch(layer)
    child = "import os; print(*(name for name in os.environ if name.startswith(('GOMP', 'OMP_WAIT'))))"
    inherited = subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True, check=True).stdout
    print(json.dumps([dict(os.environ) == before, inherited.split(), layer.describe()["waiting"]]))
    """
    *told, last = run(code, NUMBA_THREADING_LAYER="omp", OMP_DISPLAY_ENV="verbose", **environment).splitlines()
    assert json.loads(last) == [True, [*environment], f"GNU OpenMP: {shown}"]
    assert f"GOMP_SPINCOUNT = '{count}'" in "".join(told)  # as OpenMP itself says


@needs_openmp
def test_start_leaves_the_thread_count_of_an_openmp_loaded_before_alone(run):
    code = """
    openmp = ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
    openmp.omp_set_num_threads(3)
    launch(layer)
    print(openmp.omp_get_max_threads())
    """
    assert run(code, NUMBA_THREADING_LAYER="omp") == "3\n"


def test_launch_returns_false_during_another_launch(run):
    code = """
    import threading
    other = threading.Lock()
    with other:
        assert layer._launching.grant(other)
        able = launch(layer)
    print(json.dumps([able, launch(layer)]))
    """
    assert json.loads(run(code, NUMBA_THREADING_LAYER="workqueue")) == [False, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_launch_returns_false_in_a_forked_child(run):
    code = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's own, about forks of processes with threads
    from dmlcpu.runtime import threads
    threads._layer = layer
    assert launch(layer)
    child = os.fork()
    if child == 0:
        os._exit(launch(layer))
    print(json.dumps([os.waitpid(child, 0)[1], launch(layer)]))
    """
    assert json.loads(run(code, NUMBA_THREADING_LAYER="workqueue")) == [0, True]


def test_launch_puts_numbas_thread_count_back(run):
    code = """
    numba.set_num_threads(2)
    launch(layer)
    launch(layer, 1)
    print(numba.get_num_threads())
    """
    assert run(code, NUMBA_THREADING_LAYER="workqueue", NUMBA_NUM_THREADS="3") == "2\n"


def test_launch_raises_numbas_error_for_an_unknown_layer(run):
    code = """
    try:
        launch(layer)
    except ValueError as error:
        print(error)
    """
    printed = run(code, NUMBA_THREADING_LAYER="sideways")
    assert "The threading layer requested 'sideways' is unknown to Numba." in printed


@pytest.mark.parametrize(
    ("layer", "order", "asked"),
    [
        ("default", ["tbb", "omp", "workqueue"], None),
        ("TBB", ["tbb", "omp", "workqueue"], "tbb"),
        ("safe", ["tbb", "omp", "workqueue"], "safe"),
        ("default", ["omp", "tbb", "workqueue"], "omp, tbb, workqueue"),
    ],
)
def test_asked_for_is_the_layer_of_the_users_settings(monkeypatch, layer, order, asked):
    monkeypatch.setattr(numba.config, "THREADING_LAYER", layer)
    monkeypatch.setattr(numba.config, "THREADING_LAYER_PRIORITY", order)
    assert layers.asked_for() == asked


def test_load_tbb_finds_the_library_in_the_files_of_its_package(monkeypatch, tmp_path):
    """Where Numba itself would not look."""
    library, loaded = tmp_path / layers._TBB[sys.platform], []

    class File:
        name = library.name

        def locate(self):
            return library

    monkeypatch.setattr(layers.importlib.metadata, "files", lambda package: [File()] if package == "tbb" else None)
    monkeypatch.setattr(layers.ctypes, "CDLL", lambda path, mode: loaded.append((path, mode)))
    assert layers._load_tbb()
    assert loaded == [(str(library), layers.ctypes.RTLD_GLOBAL)]


def test_load_tbb_returns_false_without_the_package(monkeypatch):
    def files(package):
        raise layers.importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(layers.importlib.metadata, "files", files)
    assert not layers._load_tbb()
