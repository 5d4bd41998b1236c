"""The diff that docs/adding_an_operator.rst explains."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def copy(source, target):
    """Copy a file, unless another process has replaced it by the same under another name."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diff")
def test_cumulative_sum_of_the_page_passes_the_tests_of_operators(tmp_path):
    for folder in ("dmlcpu", "docs", "tests"):  # with what is compiled, and so need not be compiled for the copy
        ignored = shutil.ignore_patterns("_build", "*.tmp")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored, copy_function=copy)
    for file in ("CHANGELOG.md", "pyproject.toml", "setup.cfg"):
        shutil.copy(ROOT / file, tmp_path)
    subprocess.run(["git", "apply", "docs/cumulative_sum.diff"], cwd=tmp_path, check=True)
    tests = ["tests/operators/cumulative_sum", "tests/operators/test_table.py", "tests/operators/test_blocks.py"]
    chosen = ["-k", "cumulative or CUMULATIVE or type_checkers or in_one_row"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests, *chosen],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert found.returncode == 0, found.stdout
