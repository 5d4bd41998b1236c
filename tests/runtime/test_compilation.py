import numpy as np

from dmlcpu.runtime.compilation import watch_compilations
from dmlcpu.runtime.jit import compile_kernel, device


@device
def _next(number):
    return number + 1


def _fill(part, parts, x):
    x[part] = _next(parts)


def test_kernels_that_are_compiled_are_counted(tmp_path, monkeypatch):
    """With its helpers, a kernel is one; a kernel that the cache has is none."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    begun = []
    with watch_compilations(lambda: begun.append(compilations.count)) as compilations:
        fill = compile_kernel(_fill)
        assert (begun, compilations.count, compilations.seconds) == ([], 0, 0)
        fill(0, 1, np.zeros(1, np.int64))
        assert (begun, compilations.count) == ([0], 1)
        assert compilations.seconds > 0
        fill(0, 1, np.zeros(1, np.float32))
        assert (begun, compilations.count) == ([0], 2)
        again = compile_kernel(_fill)
        again(0, 1, np.zeros(1, np.int64))
        assert (begun, compilations.count) == ([0], 2)
