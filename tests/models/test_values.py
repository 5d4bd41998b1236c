import os
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlcpu.files import FileError
from dmlcpu.models.values import flat, lines, read, write


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
def test_values_are_printed_in_one_line_with_six_digits(values: np.ndarray, text: str) -> None:
    assert flat(values) == text


def test_verbose_lines_have_position_and_bits() -> None:
    assert lines(np.array([1, -2], np.int16)) == "[0] 1 (0x0001)\n[1] -2 (0xFFFE)"
    text = lines(np.arange(11, dtype=np.float32) / 3).splitlines()
    assert text[:2] == ["[ 0] 0 (0x00000000)", "[ 1] 0.333333 (0x3EAAAAAB)"]
    assert text[10] == "[10] 3.33333 (0x40555555)"


@pytest.mark.parametrize("name", ["a.npy", "a.NPY", "new/folder/a.npy"])
def test_a_npy_file_is_written_and_read(tmp_path: Path, name: str) -> None:
    array = np.arange(6, dtype=np.uint16).reshape(2, 3)
    write(tmp_path / name, array)
    np.testing.assert_array_equal(np.load(tmp_path / name), array, strict=True)
    np.testing.assert_array_equal(read(tmp_path / name), array, strict=True)


@pytest.mark.parametrize("link", [False, True])
def test_a_raw_file_replaces_the_old_one_or_what_a_link_leads_to(tmp_path: Path, link: bool) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"something longer")
    if link:
        if sys.platform == "win32":
            pytest.skip("links need a privilege there")
        (tmp_path / "link.bin").symlink_to(target)
    write(tmp_path / ("link.bin" if link else "a.bin"), np.array([1, 2, 3], np.uint8))
    assert target.read_bytes() == b"\x01\x02\x03"
    assert read(target).tolist() == [1, 2, 3]
    assert (tmp_path / "link.bin").is_symlink() == link


@pytest.mark.parametrize("name", ["a.npy", "a.bin"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fail(descriptor: int) -> None:
        assert len(list(tmp_path.iterdir())) == 2  # the new file stands beside the old one
        raise OSError(28, "No space left on device")

    (tmp_path / name).write_bytes(b"what was there")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / name, np.zeros(3, np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"what was there"


def test_a_folder_in_the_place_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.bin").mkdir()
    with pytest.raises(FileError, match=r"a\.bin'?: a folder in the place of the output; allowed: a file, or nothing"):
        write(tmp_path / "a.bin", np.zeros(3, np.uint8))


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    write(tmp_path / "a.bin", np.zeros(1, np.uint8))
    (tmp_path / "usual").write_bytes(b"")
    assert (tmp_path / "a.bin").stat().st_mode == (tmp_path / "usual").stat().st_mode
