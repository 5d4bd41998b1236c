"""What all functions in compiled code share: the entry point, parallel loops, caches."""

import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest
from numba import config, float32, int64, njit
from processes import run

from dmlcpu.interop import numba as ours
from dmlcpu.interop.numba import calls
from dmlcpu.interop.numba.calls import PART, PARTS, address_of_kernel
from dmlcpu.runtime.jit import compile_kernel, device


def test_the_entry_point():
    (found,) = [each for each in entry_points(group="numba_extensions") if each.value.startswith("dmlcpu")]
    assert found.name == "init"
    assert found.load() is ours._init


def test_first_compilation_loads_the_entry_point_and_compiles_no_kernel():
    code = """
    import sys
    import dmlcpu
    assert "numba" not in sys.modules
    from dmlcpu import top_k
    assert "dmlcpu.interop.numba" not in sys.modules
    from numba import njit
    njit(lambda: 1)()
    assert "dmlcpu.interop.numba" in sys.modules
    assert not [name for name in sys.modules if name.startswith("dmlcpu.interop.numba.")]
    from dmlcpu.runtime import isa
    assert not isa.detected.cache_info().currsize  # the system was not asked for AMX
    from dmlcpu.interop.numba import quantized_matmul, scatter_nd, top_k as selections
    compiled = (*selections.SELECT.values(), scatter_nd.SCATTER, quantized_matmul.compiled_multiply())
    print([len(each.overloads) for each in compiled])
    print([name for name in ("torch", "onnx", "dask") if name in sys.modules])
    """
    assert run(code).split("\n")[:2] == ["[0, 0, 0, 0, 0]", "[]"]


def test_without_compilation_callers_are_python():
    code = """
    from numba import njit
    import numpy as np
    import dmlcpu
    @njit
    def best(x):
        return dmlcpu.top_k(x, 1, mode="largest")
    print(best(np.array([3.0, 4.0])).indices)
    """
    assert run(code, NUMBA_DISABLE_JIT="1").strip() == "[1]"


LAYERS = """
import sys
import numba
import numpy as np
from numba import int64, njit, prange
import dmlcpu
from dmlcpu import top_k

@njit(parallel=True, cache=True)
def rows(x, k, values, indices):
    for row in prange(len(x)):
        if row % 2:
            top_k(x[row], k, out=(values[row], indices[row]))
        else:
            best = top_k(x[row], k)
            values[row], indices[row] = best.values, best.indices

numbers = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
x = np.random.default_rng(0).choice(numbers, (1000, 64))
values, indices = np.empty((1000, 5), np.float32), np.empty((1000, 5), np.int64)
rows(x, 5, values, indices)
right = dmlcpu.reference.top_k(x, 5)
assert np.array_equal(indices, right.indices) and values.tobytes() == right.values.tobytes()
print(numba.threading_layer(), sum(rows.stats.cache_hits.values()))
"""


def available_layers():
    for layer in ("omp", "tbb", "workqueue"):
        try:
            __import__(f"numba.np.ufunc.{layer}pool")
        except ImportError:
            continue
        yield layer


def test_every_threading_layer_runs_it_and_the_callers_cache_is_used(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LAYERS)
    for times, layer in enumerate(available_layers()):
        command = [sys.executable, "-W", "error", "-c", f"import numba; numba.config.THREADING_LAYER = {layer!r}\n"]
        command[-1] += f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); import script"
        found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout.split() == [layer, str(int(times > 0))]


def test_a_caller_that_names_what_is_no_longer_there():
    with pytest.raises(RuntimeError, match=r"^dmlcpu has no '0 one uint32' for a function compiled earlier:"):
        address_of_kernel("0 one uint32")


def test_threads_that_ask_first_together_get_the_same_code(monkeypatch):
    """Their callers keep its address."""
    addresses = []

    def make():
        if not addresses:  # another thread asks meanwhile, and is served first
            addresses.append(0)
            addresses[0] = address_of_kernel("1 one uint32")
        return njit(lambda x: x)

    monkeypatch.setattr(calls, "_addresses", {})
    monkeypatch.setattr(calls, "_offer", lambda _key: (make, (int64,)))
    assert [address_of_kernel("1 one uint32") for _ in range(2)] == addresses * 2


def test_shares_have_the_type_that_operators_call_kernels_with():
    """So that each kernel is compiled once."""
    kernel = njit(lambda part, parts: part + parts)
    assert njit(lambda: kernel(PART, PARTS))() == 1
    assert list(kernel.overloads) == [(int64, int64)]


@device
def is_finite(x):
    return x - x == 0  # which compilers that take all numbers for finite may leave out


def count_finite(x):
    count = 0
    for i in range(x.size):
        count += is_finite(x[i])
    return np.int64(count)


def test_callers_options_are_not_the_kernels(monkeypatch, tmp_path):
    """A kernel is compiled when its first caller is, and kept on disk for all."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    first, other = compile_kernel(count_finite), compile_kernel(count_finite)
    monkeypatch.setattr(calls, "_addresses", {})
    monkeypatch.setattr(calls, "_offer", lambda _key: (lambda: first, (float32[::1],)))
    call_kernel = calls.caller_of.__wrapped__("module", "name", np.dtype(np.float32))

    @njit(fastmath=True, forceinline=True)
    def counted(x):
        return call_kernel((x,))

    numbers = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    assert (counted(numbers), other(numbers)) == (1, 1)
    assert (sum(first.stats.cache_misses.values()), sum(other.stats.cache_hits.values())) == (1, 1)
