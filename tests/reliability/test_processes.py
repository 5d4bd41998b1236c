"""Imports, threads, forks, other threading layers. Each test has a process of its own, or a fork without threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import forks_of, run

from dmlcpu.runtime.pool import AVAILABLE

COMPUTE = f"""
import os
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
import numpy as np
import dmlcpu
from dmlcpu.runtime.threads import use_budget
from samples import assert_same_bits, modules_of_calls

rng = np.random.default_rng(5)
calls = [module.parallel_call(rng) for module in modules_of_calls().values()]
expected = [call.expected() for call in calls]

def check():
    for call, right in zip(calls, expected, strict=True):
        assert_same_bits(call.run(), right)
"""

# What first calls would import in each fork.
LATE_IMPORTS = """
import numba
from dmlcpu.kernels import registry
kernels = [row.kernel for row in registry.rows()]
numba.njit(lambda: 1)()
"""


@pytest.fixture(scope="module")
def run_fork():
    """Run code where `COMPUTE` has run, all is imported, and no operator has been called."""
    with forks_of(COMPUTE + LATE_IMPORTS) as run_fork:
        yield run_fork


def test_importing_loads_neither_numba_nor_numpy():
    loaded = run("import dmlcpu, sys; print(*(m for m in ('numba', 'llvmlite', 'numpy') if m in sys.modules))")
    assert loaded.strip() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the process's threads under /proc")
def test_loading_operators_starts_no_thread_and_compiles_nothing():
    code = """
    import os
    import dmlcpu
    for name in dmlcpu.__all__:
        getattr(dmlcpu, name)
    dmlcpu.get_num_threads()
    threads = len(os.listdir("/proc/self/task"))
    from dmlcpu.kernels import registry
    print(threads, sum(len(row.kernel.share.overloads) for row in registry.rows()))
    """
    assert run(code, OPENBLAS_NUM_THREADS="1").split() == ["1", "0"]


LARGE = """
large = rng.standard_normal((500, 2000), dtype=np.float32)
for _ in range(3):
    dmlcpu.top_k(large, 200)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the process's threads under /proc")
def test_budget_of_one_starts_no_thread(run_fork):
    code = LARGE + "import os; print(len(os.listdir('/proc/self/task')))"
    assert run_fork(code, DMLCPU_NUM_THREADS="1").strip() == "1"


needs_own_threads = pytest.mark.skipif(not AVAILABLE, reason="this system has no threads of our own")


@needs_own_threads
def test_own_threads_are_used_beside_a_busy_process(run_fork):
    """The default threads and their way of waiting; times are not tested."""
    code = (
        LARGE
        + """
import json, threading
from numba.np.ufunc import parallel
from dmlcpu.config import config
check()
names = [thread.name for thread in threading.enumerate() if thread.name.startswith("dmlcpu")]
print(json.dumps([config()["threads"], names, parallel._is_initialized]))
"""
    )
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        shown, names, is_numbas_layer_started = json.loads(run_fork(code, DMLCPU_NUM_THREADS="2"))
    finally:
        neighbour.kill()
        neighbour.wait()
    assert shown["layer_from"] == "dmlcpu's default on Linux"
    assert shown["waiting"] == "awake for 0.6 ms after a call, then asleep"
    assert not is_numbas_layer_started
    if len(os.sched_getaffinity(0)) > 1:
        assert names == ["dmlcpu-1"]


def test_global_settings_of_numba_and_numpy_are_left_alone(run_fork):
    run_fork("""
def settings():
    config = {name: getattr(numba.config, name) for name in dir(numba.config) if name.isupper()}
    return config, np.geterr(), np.get_printoptions()

before = settings()
with use_budget(2, grain=1):
    check()
assert settings() == before
assert numba.get_num_threads() == numba.config.NUMBA_NUM_THREADS
""")


@needs_own_threads
def test_other_users_of_openmp_keep_their_thread_count(run_fork):
    """PyTorch is one of them: all libraries of a process share its OpenMP."""
    run_fork("""
import ctypes
try:
    openmp = ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
except OSError:
    pass  # this system has none
else:
    openmp.omp_set_num_threads(7)
    with use_budget(2, grain=1):
        check()
    assert openmp.omp_get_max_threads() == 7
""")


@pytest.mark.parametrize("layer", ["default", "workqueue"])
def test_eight_python_threads_at_once(run_fork, layer):
    run_fork(
        """
from concurrent.futures import ThreadPoolExecutor
from numba.core import config
config.reload_config()
with use_budget(2, grain=1), ThreadPoolExecutor(8) as pool:
    for future in [pool.submit(check) for _ in range(80)]:
        future.result()
from dmlcpu.runtime.layers import asked_for
assert (asked_for() or "default") == config.THREADING_LAYER
assert config.THREADING_LAYER == os.environ["NUMBA_THREADING_LAYER"]
""",
        NUMBA_THREADING_LAYER=layer,
    )


@pytest.mark.slow
def test_process_ends_while_its_threads_compute():
    code = (
        COMPUTE
        + """
import threading
with use_budget(2, grain=1):
    check()
    def forever():
        while True:
            check()
    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
    threading.Event().wait(0.2)
"""
    )
    for _ in range(3):
        run(code)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes(run_fork):
    """It computes on threads of its own, where the system allows: it has none of the parent's."""
    run_fork("""
import warnings
from dmlcpu.runtime.pool import AVAILABLE
helpers = min(1, len(os.sched_getaffinity(0)) - 1) if AVAILABLE else 0
from dmlcpu.runtime.threads import layer
warnings.simplefilter("ignore", DeprecationWarning)  # Python's, that a process with threads forks
with use_budget(2, grain=1):
    check()  # the parent's threads run now
    threads_of_parent = layer()
    child = os.fork()
    if child == 0:
        check()
        os._exit(helpers and (layer() is threads_of_parent or layer()._helpers != helpers))
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    check()
""")


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512vnni", "amx", "i8mm"])
def test_bound_on_the_instruction_set_does_not_change_bits(isa):
    run(COMPUTE + "check()\n", DMLCPU_ISA=isa)


def test_the_number_of_threads_comes_from_the_environment(run_fork):
    assert run_fork("print(dmlcpu.get_num_threads())", DMLCPU_NUM_THREADS="3").strip() == "3"
