"""What happens around calls: imports, threads, forks, other threading layers. Each test has a process of its own."""

import os
import sys

import pytest
from processes import run

COMPUTE = """
import numpy as np
import dmlcpu
from dmlcpu import reference
from dmlcpu.runtime.threads import limits

rng = np.random.default_rng(5)
x = rng.standard_normal((50, 300), dtype=np.float32)
rows = rng.integers(0, 7, (4000, 1))
updates = rng.standard_normal(4000, dtype=np.float32)
a = rng.integers(0, 256, (40, 50)).astype(np.uint8)
b = rng.integers(-128, 128, (50, 60)).astype(np.int8)

def results(module):
    return [
        module.top_k(x, 20).indices.tobytes(),
        module.scatter_nd(np.zeros(7, np.float32), rows, updates, reduction="add").tobytes(),
        module.quantized_matmul(a, 0.1, 3, b, 0.2, None, 4.0, 100).tobytes(),
    ]

expected = results(reference)

def check():
    assert results(dmlcpu) == expected
"""


def test_importing_loads_neither_numba_nor_numpy():
    loaded = run("import dmlcpu, sys; print(*(m for m in ('numba', 'llvmlite', 'numpy') if m in sys.modules))")
    assert loaded.strip() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the process's threads under /proc")
def test_loading_the_operators_starts_no_thread_and_compiles_nothing():
    code = """
    import os
    import dmlcpu
    dmlcpu.top_k, dmlcpu.scatter_nd, dmlcpu.quantized_matmul, dmlcpu.compile_operator, dmlcpu.reference
    from dmlcpu.kernels.registry import KERNELS
    assert not any({"serial", "parallel"} & set(vars(entry.kernel)) for entry in KERNELS)
    print(len(os.listdir("/proc/self/task")))
    """
    assert run(code, OPENBLAS_NUM_THREADS="1").strip() == "1"


def test_global_settings_of_numba_and_numpy_are_left_alone():
    code = (
        COMPUTE
        + """
import numba

def settings():
    config = {name: getattr(numba.config, name) for name in dir(numba.config) if name.isupper()}
    return config, np.geterr(), np.get_printoptions(), numba.get_num_threads()

before = settings()
with limits(2, grain=1):
    check()
assert settings() == before
"""
    )
    run(code)


@pytest.mark.parametrize("layer", ["default", "workqueue"])
def test_eight_python_threads_at_once(layer):
    code = (
        COMPUTE
        + """
from concurrent.futures import ThreadPoolExecutor
with limits(2, grain=1), ThreadPoolExecutor(8) as pool:
    for future in [pool.submit(check) for _ in range(200)]:
        future.result()
"""
    )
    run(code, NUMBA_THREADING_LAYER=layer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes():
    code = (
        "import os\n"
        + COMPUTE
        + """
with limits(2, grain=1):
    check()  # the parent's threads run now
    child = os.fork()
    if child == 0:
        check()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    check()
"""
    )
    # Python itself warns that a process with threads forks.
    run(code.replace("import os\n", "import os, warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n", 1))


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512vnni", "amx"])
def test_every_bound_on_the_instruction_set_gives_the_same_bits(isa):
    run(COMPUTE + "check()\n", DMLCPU_ISA=isa)


def test_the_number_of_threads_comes_from_the_environment():
    assert run("import dmlcpu; print(dmlcpu.get_num_threads())", DMLCPU_NUM_THREADS="3").strip() == "3"
