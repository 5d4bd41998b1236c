"""The AMX kernel on a machine without AMX: its own machine code, with the tile instructions emulated one by one."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dmlcpu.runtime.isa import Isa, detected

TESTS = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.system() != "Linux", reason="the emulation needs Linux's signals"),
    pytest.mark.skipif(Isa.AVX512VNNI not in detected(), reason="the kernel uses AVX-512 VNNI too"),
    pytest.mark.skipif(Isa.AMX in detected(), reason="this machine runs the kernel itself"),
]


def test_amx_kernel_is_right_under_emulation():
    import emulated_amx

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])),
        "NUMBA_CPU_FEATURES": emulated_amx.features(),
        "DMLCPU_ISA": "amx",
    }
    plugin = ["-p", "no:faulthandler", "-p", "emulated_amx", "-p", "no:xdist", "-p", "no:cacheprovider", "-s", "-q"]
    operators = ["quantized_matmul", "matmul_integer", "matmul_integer_to_float", "matmul_top_k"]
    chosen = [*(f"operators/{name}" for name in operators), "kernels/gemm/test_amx.py", "kernels/measure"]
    others = "generic or avx2 or avxvnni or avx512vnni"  # kernels that this machine runs by itself
    names = f"(amx or (matmul and not matmul_top_k)) and not ({others})"
    command = [sys.executable, "-m", "pytest", *plugin, "-k", names, *chosen]
    ran = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    products, releases, left = map(int, re.search(r"AMX: (\d+) products, (\d+) rel\w+, (\d+) thr", ran.stdout).groups())
    assert products > 10_000
    assert releases > 1_000
    assert left == 0  # threads whose tile registers the system would have to keep
