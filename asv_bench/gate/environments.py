"""The environments: a virtual environment for each side, with a commit's dmlcpu and kernels of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .changes import GateError, git

CHILD = Path(__file__).parent / "child.py"
EXTRAS = ("ml_dtypes",)  # what cases need beside the package's own requirements


class Side(NamedTuple):
    """How a process of a side is started, and where its environment lies."""

    command: list[str]
    environment: dict[str, str]
    folder: Path


def make(repository, base, head, folder, python=None):
    """Make the environments of two commits, and return their sides. What an earlier run left in the folder is used.

    The base gets the versions of all packages that the head got. python: an interpreter whose packages, but not its
    dmlcpu, both use instead of their own.
    """
    sides = {}
    for role, commit in (("head", head), ("base", base)):
        kind = "shared" if python else "own"
        place = (folder / f"{role}-{commit[:12]}-{kind}").resolve()
        if not (place / "complete").exists():
            print(f"gate: making the environment of {role}", file=sys.stderr, flush=True)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            _fill(place, repository, commit, python, sides.get("head"))
            (place / "complete").touch()
        sides[role] = _side(place)
    return sides


def _fill(place, repository, commit, python, head):
    sources, venv = place / "sources", place / "venv"
    git(repository, "clone", "--quiet", "--shared", "--no-checkout", str(repository), str(sources))
    git(sources, "checkout", "--quiet", "--detach", commit)
    inside = venv / "bin" / "python"
    if python:
        run(python, "-I", "-m", "venv", "--without-pip", venv)
        (packages,) = venv.glob("lib/python*/site-packages")
        shared = run(python, "-I", "-c", "import site; print(*site.getsitepackages(), sep='\\n')")
        (packages / "shared.pth").write_text(shared, "utf-8")
        # This pip builds with the setuptools of its own interpreter.
        only = ("--quiet", "--no-deps", "--no-build-isolation", "--target", packages)
        run(python, "-I", "-m", "pip", "install", *only, sources)
        return
    run(sys.executable, "-I", "-m", "venv", venv)
    constraints = place / "constraints.txt"
    same = run(head.command[0], "-I", "-m", "pip", "freeze", "--exclude", "dmlcpu") if head else ""
    constraints.write_text(same, "utf-8")
    run(inside, "-I", "-m", "pip", "install", "--quiet", "--constraint", constraints, sources, *EXTRAS)


def _side(place):
    # Of OpenBLAS, the benchmarks set it, too; that of NumPy in the controls must not depend on them.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(place / "cache"), "OPENBLAS_NUM_THREADS": "1"}
    return Side([str(place / "venv" / "bin" / "python"), "-I", str(CHILD)], environment, place)


def run(*command):
    """Run a command and return what it prints; raise GateError with its errors if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise GateError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def not_warm(side, cells):
    """Return the cells that no process of the side has built yet, so that their kernels may not be compiled."""
    kept = side.folder / "warm.json"
    warm = set(json.loads(kept.read_text("utf-8"))) if kept.exists() else set()
    return [cell for cell in cells if str(cell) not in warm]


def set_warm(side, cells):
    """Remember cells whose kernels the side has compiled."""
    kept = side.folder / "warm.json"
    warm = json.loads(kept.read_text("utf-8")) if kept.exists() else []
    kept.write_text(json.dumps(sorted({*warm, *map(str, cells)})), "utf-8")
