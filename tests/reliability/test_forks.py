"""Threads call operators beside forks and pools of processes. Everything runs in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

METHODS = ["fork", "spawn", "forkserver"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.slow
def test_calls_beside_forks(seconds: float | None, counted: Callable[[str], None]) -> None:
    script = Path(__file__).parent / "forks.py"
    command = [sys.executable, str(script), "--seconds", str(seconds or 1), "--methods", *METHODS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1200 + (seconds or 0), check=False)
    assert ran.returncode == 0, ran.stderr
    counted(ran.stdout.strip())
