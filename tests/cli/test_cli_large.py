"""A file that is many times as large as the memory that a command may take."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import dmlcpu

ROWS, COLUMNS, K = 1 << 15, 1 << 14, 20
# Runs a command; prints the most memory that the process had, in KB.
MAIN = """\
import sys
from dmlcpu.cli import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(code)
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


@pytest.fixture
def block():
    """The first 256 rows of the file; each later 256 are the ones before, rolled by 256 columns."""
    return np.random.default_rng(0).standard_normal((256, COLUMNS), np.float32)


@pytest.fixture
def folder(block, tmp_path):
    if shutil.disk_usage(tmp_path).free < 3 << 30:
        pytest.skip("there is no space for a file of 2 GiB")
    header = {"descr": "<f4", "fortran_order": False, "shape": (ROWS, COLUMNS)}
    try:
        with (tmp_path / "x.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, ROWS, 256):
                np.roll(block, start, 1).tofile(file)
        yield tmp_path
    finally:
        for path in tmp_path.iterdir():
            path.unlink()


def winners(folder, axis):
    """Return the command's results within 512 MB, and the peak of its memory in bytes."""
    command = ["top-k", "x.npy", "--k", str(K), "--axis", str(axis), "--max-memory", "512M", "-o", f"{axis}.npz", "-q"]
    process = [sys.executable, "-c", MAIN, *command]
    told = subprocess.run(process, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert (told.returncode, told.stderr) == (0, "")
    with np.load(folder / f"{axis}.npz") as found:
        return found["values"], found["indices"], int(told.stdout) << 10


def check_rows(block, values, indices):
    for start in (0, 256, ROWS // 2, ROWS - 256):
        expected = dmlcpu.top_k(np.roll(block, start, 1), K)
        assert values[start : start + 256].tobytes() == expected.values.tobytes()
        assert indices[start : start + 256].tobytes() == expected.indices.tobytes()


def check_columns(block, values, indices):
    row = np.arange(ROWS)[:, None]
    for first in range(0, COLUMNS, COLUMNS // 32):
        columns = np.arange(first, first + 8)
        expected = dmlcpu.top_k(block[row % 256, (columns - row // 256 * 256) % COLUMNS], K, axis=0)
        assert values[:, columns].tobytes() == expected.values.tobytes()
        assert indices[:, columns].tobytes() == expected.indices.tobytes()


def test_a_file_of_2_gib_along_both_axes(block, folder):
    for axis, check in ((1, check_rows), (0, check_columns)):
        values, indices, peak = winners(folder, axis)
        assert peak < 1 << 30
        check(block, values, indices)
