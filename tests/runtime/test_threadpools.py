import logging

import numpy as np
import pytest
from processes import forks_of, run
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import dmlcpu
from dmlcpu.runtime import pool, threads

OWN = {"user_api": "dmlcpu", "internal_api": "dmlcpu", "version": dmlcpu.__version__}


@pytest.fixture(autouse=True)
def _five_threads(monkeypatch):
    monkeypatch.setattr(threads, "_layer", pool.Pool(4))  # whatever processors there are
    with threads.use_budget(5, grain=1):
        yield


def entries():
    return [entry for entry in threadpool_info() if "dmlcpu" in entry.values()]


def test_there_is_one_entry():
    (entry,) = entries()
    assert entry | OWN == entry
    assert entry["num_threads"] == 5
    assert entry["prefix"] in ("libllvmlite", "llvmlite")
    assert len([other for other in threadpool_info() if other["filepath"] == entry["filepath"]]) == 1


@pytest.mark.parametrize("limits", [2, {"dmlcpu": 2}, {"libllvmlite": 2, "llvmlite": 2}])
def test_limits_hold_and_are_put_back(limits):
    with threadpool_limits(limits=limits):
        assert threads.budget().threads == 2
        assert entries()[0]["num_threads"] == 2
    assert threads.budget().threads == 5


@pytest.mark.parametrize("limits", [{"limits": 1, "user_api": "blas"}, {"limits": {"openmp": 1}}, {"limits": None}])
def test_limits_of_others_are_not_ours(limits):
    with threadpool_limits(**limits):
        assert dmlcpu.get_num_threads() == 5


def test_a_controller_made_before_limits_too():
    controller = ThreadpoolController().select(user_api="dmlcpu")
    dmlcpu.set_num_threads(4)
    with controller.limit(limits=3):
        assert dmlcpu.get_num_threads() == 3
    assert dmlcpu.get_num_threads() == 4


def test_operators_keep_to_it(caplog):
    caplog.set_level(logging.DEBUG, "dmlcpu")
    x = np.arange(9 * 61, dtype=np.float32).reshape(9, 61)
    dmlcpu.top_k(x, 3)
    with threadpool_limits(limits=1):
        dmlcpu.top_k(x, 3)
    assert [message.split()[-2] for message in caplog.messages] == ["5", "1"]


# The variable is set by threadpoolctl in the process of the tests.
START = "import os, sys, types; os.environ.pop('KMP_DUPLICATE_LIB_OK', None)\n"


@pytest.fixture(scope="module")
def run_fork():
    """Run Python code where Numba has been imported, but neither the package nor threadpoolctl."""
    with forks_of(START + "import numba", DMLCPU_NUM_THREADS="3") as run_fork:
        yield run_fork


HOLDS = """
with threadpoolctl.threadpool_limits(limits=1):
    assert dmlcpu.get_num_threads() == 1
assert dmlcpu.get_num_threads() == 3
assert [entry["num_threads"] for entry in threadpoolctl.threadpool_info() if entry["user_api"] == "dmlcpu"] == [3]
"""


@pytest.mark.parametrize(
    "order",
    [
        "import dmlcpu; dmlcpu.top_k; import threadpoolctl",
        "import dmlcpu; dmlcpu.compile_operator; import threadpoolctl",
        "import threadpoolctl, numba; threadpoolctl.threadpool_info(); import dmlcpu; dmlcpu.scatter_nd",
    ],
)
def test_any_order_of_imports(run_fork, order):
    run_fork(order + "\n" + HOLDS)


def test_threadpoolctl_before_numba():
    run(START + "import threadpoolctl, dmlcpu; dmlcpu.top_k\n" + HOLDS, DMLCPU_NUM_THREADS="3")


def test_the_package_alone_does_not_import_it():
    run("import dmlcpu, sys; assert 'threadpoolctl' not in sys.modules")


@pytest.mark.parametrize("setting", ["", "os.environ['KMP_DUPLICATE_LIB_OK'] = 'True'"], ids=["unset", "set"])
def test_its_import_leaves_the_environment_alone(run_fork, setting):
    run_fork(
        f"""
        {setting}
        before = dict(os.environ)
        import dmlcpu
        dmlcpu.compile_operator
        assert "threadpoolctl" in sys.modules
        assert os.environ == before
        """
    )


@pytest.mark.parametrize("installed", ["None", "types.ModuleType('threadpoolctl')"], ids=["absent", "too old"])
def test_package_works_without_a_usable_threadpoolctl(run_fork, installed):
    run_fork(
        f"""
        sys.modules["threadpoolctl"] = {installed}
        import dmlcpu
        dmlcpu.compile_operator
        assert dmlcpu.get_num_threads() == 3
        """
    )
