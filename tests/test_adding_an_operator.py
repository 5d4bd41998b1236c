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


FOLDERS = ("dmlcpu", "docs", "examples", "tests")  # with what is compiled, and so need not be compiled for the copy
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", "setup.cfg")
OF_OPERATORS = [f"tests/operators/{name}" for name in ("cumulative_sum", "test_table.py", "test_blocks.py")]
OTHERS = [f"tests/test_{name}.py" for name in ("docs", "import_circles", "words")]
CHOSEN = "cumulative or CUMULATIVE or type_checkers or in_one_row or circle or sphinx or docstrings_and_messages"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diff")
def test_cumulative_sum_of_the_page_passes_the_tests_of_operators(tmp_path):
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("_build", "*.tmp")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored, copy_function=copy)
    for file in FILES:
        shutil.copy(ROOT / file, tmp_path)
    subprocess.run(["git", "apply", "docs/cumulative_sum.diff"], cwd=tmp_path, check=True)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", CHOSEN]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *OF_OPERATORS, *OTHERS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert found.returncode == 0, found.stdout
