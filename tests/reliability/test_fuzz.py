"""Whatever stands in a file, it is read or refused, in little time and memory."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fuzz
import pytest
from fuzz_targets import TARGETS, Target

INPUTS = {
    "model": 150,
    "onnx": 60,
    "jobs": 150,
    "toml": 150,
    "npy": 300,
    "npz": 150,
    "safetensors": 200,
    "pb": 200,
    "zarr": 100,
    "index": 100,
    "desc": 500,
}


@pytest.mark.parametrize("part", [pytest.param(0, id="some"), pytest.param(1, id="others", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TARGETS)
def test_any_input_is_read_or_refused(
    name: str,
    part: int,
    seconds: float | None,
    counted: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = tmp_path / "work"  # inputs name files in the folder above
    work.mkdir()
    monkeypatch.chdir(work)
    if seconds is None:
        some = INPUTS[name] // 4
        found = fuzz.seeded(TARGETS[name], (range(some), range(some, INPUTS[name]))[part])
        assert not found.failures
        counted(str(found))
        return
    command = [sys.executable, fuzz.__file__, name, "--seconds", str(seconds)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1200 + seconds, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counted(ran.stdout.splitlines()[-1])


def _fails(data: bytes) -> None:
    if data[:1] > b"A":
        raise KeyError(data)
    if data[:1] == b"A":
        bytearray(8 * fuzz.MOST_BYTES)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone")
def test_what_is_neither_read_nor_refused_is_found() -> None:
    found = fuzz.Findings(Target(lambda draws: draws.bytes(9), _fails, ()))
    for data in (b"", b"BC", b"B", b"A", b"DEF"):
        found.attempt(data)
    inputs = {kind.split()[0]: data for kind, (data, _) in found.failures.items()}
    assert inputs["KeyError"] == b"B"
    assert inputs["MemoryError"] == b"A"
    assert str(found).startswith("5 inputs: 4 failed, 1 read; ")
