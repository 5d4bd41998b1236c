"""Threads use what they share, in processes of their own: with this interpreter, and with one that has no GIL."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "free_threaded.py"
ROOT = SCRIPT.parents[2]
USUAL = 3  # seconds; each program does its work at least once
GIVEN = "DMLCPU_FREE_THREADED_PYTHON"  # names an interpreter
NEEDED = "numba, numpy, ml_dtypes"


def run(python: str, *arguments: str, seconds: float = 0) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"} | {"PYTHONPATH": path}
    command = [python, *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800 + seconds, check=False)
    assert ran.returncode == 0, f"exit code {ran.returncode}\n{ran.stderr}"
    return ran.stdout


def candidates() -> Iterator[str]:
    """Yield interpreters that were built to do without a GIL."""
    if given := os.environ.get(GIVEN):
        yield given
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield sys.executable
    yield from filter(None, [shutil.which(f"python3.{minor}t") for minor in (15, 14, 13)])
    yield from map(str, sorted(Path.home().glob(".pyenv/versions/*/bin/python3.??t"), reverse=True))


@pytest.fixture(scope="module")
def free_threaded() -> str:
    """Return an interpreter without a GIL that has what the programs need."""
    found = list(candidates())
    for python in found:
        tried = subprocess.run([python, "-X", "gil=0", "-c", f"import {NEEDED}"], capture_output=True, check=False)
        if tried.returncode == 0:
            return python
    reason = f"none of {', '.join(found)} can import {NEEDED}" if found else f"there is none, and {GIVEN} names none"
    pytest.skip(f"an interpreter without a GIL: {reason}")


def test_threads_share(seconds: float | None, counted: Callable[[str], None]) -> None:
    told = run(sys.executable, str(SCRIPT), "--seconds", str(seconds or USUAL), seconds=seconds or 0)
    assert all(json.loads(told)["counts"].values())
    counted(told.strip())


@pytest.mark.slow
def test_threads_share_without_a_gil(free_threaded: str, seconds: float | None, counted: Callable[[str], None]) -> None:
    arguments = ["-X", "gil=0", str(SCRIPT), "--seconds", str(seconds or USUAL)]
    told = run(free_threaded, *arguments, seconds=seconds or 0)
    found = json.loads(told)
    assert found["gil"] is False
    assert all(found["counts"].values())
    counted(told.strip())


@pytest.mark.slow
def test_operators_leave_the_gil_off(free_threaded: str) -> None:
    """Python turns it on, with a warning, for a module that does not say it needs none."""
    code = "import sys, dmlcpu; dmlcpu.top_k([3, 1, 2], 1); print(sys._is_gil_enabled())"
    assert run(free_threaded, "-W", "error", "-c", code).strip() == "False"
