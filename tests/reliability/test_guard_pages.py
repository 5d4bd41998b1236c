"""No operator reads or writes beyond its arrays, changes an input, or writes into the gaps of an output."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from guarded_memory import Guard
from samples import strided

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="mprotect protects the pages")
FOLDER = Path(__file__).parent


def test_operators_keep_to_their_arrays(seconds: float | None, counted: Callable[[str], None]) -> None:
    """In a process of its own: a read or write beyond the pages ends it."""
    longer = [] if seconds is None else ["--seconds", str(seconds), "--seed", str(time.time_ns())]
    command = [sys.executable, str(FOLDER / "guard_pages.py"), "--calls", "150", *longer]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1200 + (seconds or 0), check=False)
    last = ran.stdout.splitlines()[-1]  # the call that was made when the process ended
    assert ran.returncode == 0, f"{last}: status {ran.returncode}\n{ran.stderr}"
    counted(last)


WRITES_TOO_FAR = """
import ctypes
import guard_pages
from dmlcpu.operators.table import Operator

right = Operator.function.fget

def wrong(row):
    def function(*args, out, **kwargs):
        result = right(row)(*args, out=out, **kwargs)
        first = out[0] if isinstance(out, tuple) else out
        ctypes.memset(first.ctypes.data + first.nbytes, 0, 1)
        return result
    return function

Operator.function = property(wrong)
guard_pages.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may end the process by another signal")
def test_an_operator_that_writes_too_far_ends_the_process() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(FOLDER)])}
    ran = subprocess.run(
        [sys.executable, "-c", WRITES_TOO_FAR], capture_output=True, text=True, env=environment, check=False
    )
    assert ran.returncode == -signal.SIGSEGV, ran.stderr
    assert ran.stdout.splitlines()[-1].isdigit()  # the seed of the call


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("what", ["input", "gap", "slack", "workspace"])
def test_what_is_written_beside_is_found(what: str, at_end: bool) -> None:
    guard = Guard(at_end)
    x, y = guard.array(np.zeros(5, np.int16), "x"), guard.array(strided(np.zeros(5, np.int16)), "y", written=True)
    scratch = guard.buffer(24, "scratch")
    y[...] = scratch[:] = 7
    guard.check()
    address, name = {
        "input": (x.ctypes.data + 8, "x"),
        "gap": (y.ctypes.data + 2, "y"),
        "slack": (y.ctypes.data + (-1 if at_end else 18), "y"),
        "workspace": (scratch.ctypes.data + 24, "scratch"),
    }[what]
    ctypes.memset(address, 1, 1)
    with pytest.raises(AssertionError, match=f"{name}: 1 bytes were written"):
        guard.check()
