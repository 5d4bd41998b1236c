import numba
import numpy as np
from numba.core.codegen import JITCodeLibrary

from dmlcpu.runtime import jit
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.variants import specialized

STEP = 3


@jit.shared
def double(value: int) -> int:
    return 2 * value


@jit.device
def step(value):
    return double(value) + STEP


other_step = specialized(step, STEP=5)


@kernel
def step_all(part, parts, x):
    for i in range(part, x.size, parts):
        x[i] = step(x[i]) + other_step(x[i])


def test_kernels_alone_get_machine_code(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    made, finalize = [], JITCodeLibrary._finalize_specific
    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", lambda self: (made.append(self.name), finalize(self)))
    fresh, x = kernel(step_all.function), np.array([1, 10])
    fresh(1, x)
    assert x.tolist() == [2 + 3 + 2 + 5, 20 + 3 + 20 + 5]
    assert set(made) - {"nrt"} == {fresh.share.__qualname__}  # nrt: Numba's own, of the process's first function
