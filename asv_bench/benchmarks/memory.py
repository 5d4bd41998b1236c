"""The memory that a call takes at its peak, beyond its inputs: results and scratch.

asv runs each cell in a process of its own. Small calls load all code there, and start all threads. Then the peak, which
Linux keeps, is reset.
"""

import sys
from pathlib import Path

from .cases import matmul_top_k, scatter_nd, top_k
from .peers import METHODS, cells, parts

CASES = {
    **{
        name: case
        for name, case in top_k.SHAPES.items()
        if name in ("10000x1000 k 100 float32", "1x10000000 k 1000 float32")
    },
    **{name: case for name, case in scatter_nd.SHAPES.items() if case.updates == 4_000_000},
    **{name: case for name, case in matmul_top_k.SHAPES.items() if case.m == 1_024 and case.packs},
}


def peak(implementation, name):
    """Return the bytes at the peak of a call, less those before it."""
    case, method = CASES[name], METHODS[implementation]
    small = getattr(case.shrunk(), method)()
    for _ in range(3):
        small()
    call = getattr(case, method)()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    result = call()
    peak = _status("VmHWM") - before
    del result
    return peak


def _status(field):
    """Return a figure of this process in bytes."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


class Peak:
    param_names = ("cell",)
    params = cells(CASES)
    unit = "MiB"
    version = "1"

    def setup(self, cell):
        if sys.platform != "linux":
            raise NotImplementedError("only Linux resets the peak of a process")

    def track_peak(self, cell):
        return peak(*parts(cell)) / 2**20
