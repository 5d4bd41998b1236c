"""Jobs whose system calls fail at random: what is said done is done, and what is not is said."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux's linker preloads the library"),
    pytest.mark.skipif(COMPILER is None, reason="no compiler of C"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faulty") / "faulty.so"
    command = [str(COMPILER), "-shared", "-fPIC", "-o", str(path), str(FOLDER / "faulty_calls.c"), "-ldl"]
    subprocess.run(command, check=True)
    return path


def test_what_is_said_of_jobs_is_so(library: Path, seconds: float | None, counted: Callable[[str], None]) -> None:
    pytest.importorskip("zarr")
    pytest.importorskip("safetensors")
    longer = [] if seconds is None else ["--seconds", str(seconds), "--seed", str(time.time_ns() % 2**32)]
    command = [sys.executable, str(FOLDER / "faulty_calls.py"), "--runs", "3", *longer]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    ran = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=1200 + (seconds or 0), check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counted(ran.stdout.strip())


WRONG = """
import faulty_calls
from dmlcpu.jobs.step import Step

Step.finish = lambda self: None
real = Step.attempt

def attempt(self, action):
    real(self, action)
    self.error = None  # what fails is said done

Step.attempt = attempt
faulty_calls.main()
"""


def test_a_run_that_says_done_of_what_is_not_is_found(library: Path) -> None:
    pytest.importorskip("zarr")
    pytest.importorskip("safetensors")
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join([*sys.path, str(FOLDER)])}
    command = [sys.executable, "-c", WRONG, "--only", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "said done: " in ran.stderr
