import sys
from pathlib import Path

import numpy as np
import pytest

from dmlcpu.models.values import flat, lines, write_npy, write_raw


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.array([1, 0.5, 0.1, -2.25], np.float32), "1, 0.5, 0.1, -2.25"),
        (np.array([np.nan, np.inf, -np.inf, -0.0], np.float32), "nan, inf, -inf, -0"),
        (np.array([1 / 3, 1e-7, 16777216, 1e30]), "0.333333, 1e-07, 1.67772e+07, 1e+30"),
        (np.array([65504, 0.1], np.float16), "65504, 0.0999756"),
        (np.array([-128, 127], np.int8), "-128, 127"),
        (np.array([0, 255], np.uint8), "0, 255"),
        (np.array([2**64 - 1], np.uint64), "18446744073709551615"),
    ],
)
def test_flat(values: np.ndarray, text: str) -> None:
    assert flat(values) == text


def test_lines() -> None:
    assert lines(np.array([1, -2], np.int16)) == "[0] 1 (0x0001)\n[1] -2 (0xFFFE)"
    text = lines(np.arange(11, dtype=np.float32) / 3).splitlines()
    assert text[:2] == ["[ 0] 0 (0x00000000)", "[ 1] 0.333333 (0x3EAAAAAB)"]
    assert text[10] == "[10] 3.33333 (0x40555555)"


def test_write_npy(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.uint16).reshape(2, 3)
    write_npy(tmp_path / "new" / "folder" / "a.npy", array)
    read = np.load(tmp_path / "new" / "folder" / "a.npy")
    assert read.dtype == np.uint16
    np.testing.assert_array_equal(read, array)


def test_write_raw_replaces(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"something longer")
    write_raw(target, np.array([1, 2, 3], np.uint8))
    assert target.read_bytes() == b"\x01\x02\x03"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.bin").write_bytes(b"old")
    (tmp_path / "link.bin").symlink_to(tmp_path / "real.bin")
    write_raw(tmp_path / "link.bin", np.array([7], np.uint8))
    assert (tmp_path / "link.bin").is_symlink()
    assert (tmp_path / "real.bin").read_bytes() == b"\x07"


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: object, *_args: object, **_options: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    target = tmp_path / "a.npy"
    target.write_bytes(b"what was there")
    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="No space left"):
        write_npy(target, np.zeros(3))
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]
    assert target.read_bytes() == b"what was there"


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    write_raw(tmp_path / "a.bin", np.zeros(1, np.uint8))
    (tmp_path / "usual").write_bytes(b"")
    assert (tmp_path / "a.bin").stat().st_mode == (tmp_path / "usual").stat().st_mode
