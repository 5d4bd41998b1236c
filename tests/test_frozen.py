"""A program that PyInstaller freezes, and one in an archive."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dmlcpu
from dmlcpu._pyinstaller import hook_dirs

ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys
import numba
import numpy as np
import dmlcpu
from dmlcpu.config import cache_folder

x = dmlcpu.scatter_nd(np.zeros(3), np.array([[1]]), np.ones(1))
values, _ = dmlcpu.top_k(np.arange(10_000.0), 2)

@numba.njit
def best(x):
    return dmlcpu.top_k(x, 1)

print(x.tolist(), values.tolist(), best(np.arange(5.0))[0], cache_folder())
"""


def test_pyinstaller_finds_the_hook():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pyinstaller40"]
    module, _, name = points["hook-dirs"].partition(":")
    assert getattr(importlib.import_module(module), name)() == hook_dirs()
    assert (Path(hook_dirs()[0]) / "hook-dmlcpu.py").is_file()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("PyInstaller") is None, reason="PyInstaller is not installed")
def test_a_frozen_program_runs_and_keeps_a_cache(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    others = [f"--exclude-module={name}" for name in ("dask", "onnx", "pandas", "scipy", "sklearn", "torch")]
    options = ["--noconfirm", *others, "--log-level=ERROR", f"--additional-hooks-dir={hook_dirs()[0]}", "program.py"]
    subprocess.run([sys.executable, "-m", "PyInstaller", *options], cwd=tmp_path, check=True, timeout=900)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    for _ in range(2):
        done = subprocess.run(
            [tmp_path / "dist/program/program"], env=clean, capture_output=True, text=True, timeout=600
        )
        assert done.stdout.startswith("[0.0, 1.0, 0.0] [9999.0, 9998.0] [4.]"), done.stderr
        folder = Path(done.stdout.split()[-1])
        kept = {path.name for path in folder.rglob("*.nbc")}
        assert kept
    assert kept == {path.name for path in folder.rglob("*.nbc")}


def test_a_program_in_an_archive_says_why_it_keeps_no_cache(tmp_path):
    shutil.copytree(Path(dmlcpu.__file__).parent, tmp_path / "app/dmlcpu", ignore=shutil.ignore_patterns("__pycache__"))
    archive = shutil.make_archive(str(tmp_path / "app"), "zip", tmp_path / "app")
    code = f"import sys; sys.path.insert(0, {archive!r}); from dmlcpu.config import cache_folder; print(cache_folder())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == ("none: Numba names cache files by source files, and these are in an archive"), (
        done.stderr
    )
