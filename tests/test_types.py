"""What type checkers know about the package: a program is right for them, and mistakes are found."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dmlcpu

PROGRAMS = Path(__file__).parent / "typed_programs"
MISTAKES = [
    number for number, line in enumerate((PROGRAMS / "mistakes.py").read_text().splitlines(), 1) if "  # " in line
]


def output(folder, *command):
    """Return what a type checker prints.

    It runs in a folder of its own, without the repository's settings. A copy of the package is there, as type checkers
    do not find one that is installed to be edited.
    """
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    shutil.copytree(Path(dmlcpu.__file__).parent, folder / "dmlcpu", ignore=shutil.ignore_patterns("__pycache__"))
    process = subprocess.run(
        [sys.executable, "-m", *command, "program.py", "mistakes.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 1, process.stdout + process.stderr  # there are mistakes; 2 is another failure
    return process.stdout


def by_mypy(folder):
    """Return the errors as pairs of file and line."""
    pytest.importorskip("mypy")
    # The programs do not use these, which dmlcpu or Dask imports if they are there: most of the time.
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-distributed.*,numba.*,onnx.*,torch.*]\nfollow_imports = skip\n")
    # Silent: about the package itself mypy would tell a user nothing, as it is installed.
    lines = output(folder, "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache")
    parts = [line.split(":") for line in lines.splitlines() if ": error: " in line]
    return [(file, int(number)) for file, number, *_ in parts]


def by_pyright(folder):
    """Return the errors as pairs of file and line."""
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--version"]
    works = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if works.returncode:
        pytest.skip(f"pyright does not run: {works.stderr.strip() or works.stdout.strip()}")
    found = json.loads(output(folder, "pyright", "--outputjson", "--pythonpath", sys.executable))
    return [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    ]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("dask") is None, reason="dask is not installed: its arrays are unknown then")
@pytest.mark.parametrize("errors", [by_mypy, by_pyright])
def test_type_checkers_find_the_mistakes_and_nothing_else(errors, tmp_path):
    assert len(MISTAKES) >= 10
    assert sorted(set(errors(tmp_path))) == [("mistakes.py", number) for number in MISTAKES]


@pytest.mark.skipif(find_spec("dask") is None, reason="dask is not installed")
def test_the_program_runs():
    process = subprocess.run(
        [sys.executable, "-W", "error", PROGRAMS / "program.py"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "k 0 to 8 (the elements along axis 1)\n"
