import errno
import hashlib
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dmlcpu.files import FileError, identities, identity
from dmlcpu.files.identities import differs


@pytest.mark.parametrize("content", [False, True])
def test_file(tmp_path: Path, content: bool) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"abc")
    os.utime(path, ns=(5, 7))
    status = path.stat()
    of_file = {"mtime_ns": 7, "ctime_ns": status.st_ctime_ns}
    expected = {"sha256": hashlib.sha256(b"abc").hexdigest()} if content else of_file
    assert identity(path, content=content) == {"size": 3} | expected
    with pytest.raises(FileNotFoundError):
        identity(tmp_path / "none", content=content)


@pytest.mark.parametrize("content", [False, True])
def test_folder(tmp_path: Path, content: bool) -> None:
    folder = tmp_path / "x.zarr"
    (folder / "c").mkdir(parents=True)
    for name, data in [("zarr.json", b"{}"), ("c/1", b"one"), ("c/0", b"nil")]:
        (folder / name).write_bytes(data)
    seen = [identity(folder, content=content)]
    assert seen[0]["size"] == 8
    assert json.loads(json.dumps(seen[0])) == seen[0]
    assert identity(folder, content=content) == seen[0]
    clock = 2 * 10**18

    def changed(path: Path) -> None:
        # Times of files are as coarse as the system's tick.
        nonlocal clock
        clock += 1
        os.utime(path, ns=(clock, clock))
        seen.append(identity(folder, content=content))

    (folder / "c/1").write_bytes(b"uno")
    changed(folder / "c/1")
    (folder / "c/0").rename(folder / "c/2")
    changed(folder / "c")
    (folder / "c/2").unlink()
    changed(folder / "c")
    (folder / "zarr.json").rename(folder / "zarr.jsonl")  # which leaves it the last
    changed(folder)
    assert len({str(state) for state in seen}) == 5


def test_a_time_of_the_future_hides_no_change(tmp_path: Path) -> None:
    """A wrong clock, or another machine's, leaves such times."""
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    for name in ("0", "1", "zarr.json"):
        (folder / name).write_bytes(b"one")
    os.utime(folder / "0", ns=(5 * 10**18, 5 * 10**18))
    before = identity(folder, content=False)
    os.utime(folder / "1", ns=(3 * 10**18, 3 * 10**18))
    assert identity(folder, content=False) != before


@pytest.mark.parametrize("content", [False, True])
def test_chunks_on_another_disk(tmp_path: Path, content: bool) -> None:
    """A folder that a link leads to counts, as it is read; a link that leads back ends no search."""
    folder, chunks = tmp_path / "x.zarr", tmp_path / "disk" / "c"
    folder.mkdir()
    chunks.mkdir(parents=True)
    (folder / "zarr.json").write_bytes(b"{}")
    (folder / "c").symlink_to(chunks)
    (chunks / "0").write_bytes(b"one")
    (chunks / "back").symlink_to(folder)
    before = identity(folder, content=content)
    assert before["size"] == 5
    assert identity(folder, content=content) == before
    (chunks / "0").write_bytes(b"two")
    os.utime(chunks / "0", ns=(5, 7))
    assert identity(folder, content=content) != before


@pytest.mark.parametrize("content", [False, True])
def test_other_folders_are_not_searched(tmp_path: Path, content: bool) -> None:
    """An input that is `/` would take minutes."""
    (tmp_path / "folder").mkdir()
    before = identity(tmp_path, content=content)
    (tmp_path / "folder" / "x.npy").write_bytes(b"one")
    assert identity(tmp_path, content=content) == before


@pytest.mark.parametrize("name", ["x.npy", "x.zarr/zarr.json"])
def test_a_link_that_is_switched(tmp_path: Path, name: str) -> None:
    """Both have the same size and time of change, as files that come from archives with equal times."""
    for version in ("v1", "v2"):
        file = tmp_path / version / name
        file.parent.mkdir(parents=True)
        file.write_bytes(version.encode())
        for path in (file, file.parent):
            os.utime(path, ns=(5, 7))
    (tmp_path / "current").symlink_to("v1")
    path = tmp_path / "current" / name.partition("/")[0]
    before = identity(path, content=False)
    assert identity(path, content=False) == before
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("v2")
    now = identity(path, content=False)
    assert differs(before, now, same_place=True)
    assert not differs(before, now, same_place=False)  # a copy may have another inode
    assert not differs({"size": now["size"], "mtime_ns": now["mtime_ns"]}, now, same_place=False)


class Clock:
    """Times of files as a file system with ticks of some nanoseconds has them, and sleeps that take no time."""

    def __init__(self, patch: pytest.MonkeyPatch, tick: int) -> None:
        self.now, self.slept = 10**18 + tick // 2, 0.0
        self._tick, self._stat = tick, os.stat
        self._times: dict[int, int] = {}
        patch.setattr(os, "stat", self.stat)
        patch.setattr(identities.time, "time_ns", lambda: self.now)
        patch.setattr(identities.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += round(seconds * 1e9)

    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self._times[self._stat(path).st_ino] = self.now // self._tick * self._tick + (self._tick < 10**9)

    def stat(self, path: Any, **_: Any) -> Any:
        status = self._stat(path)
        when = self._times[status.st_ino]
        return SimpleNamespace(
            st_mtime_ns=when, st_ctime_ns=when, st_size=status.st_size, st_ino=status.st_ino, st_mode=status.st_mode
        )


@pytest.mark.parametrize("tick", [10_000_000, 1_000_000_000, 2_000_000_000])
def test_after_a_settled_identity_each_change_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick: int
) -> None:
    clock = Clock(monkeypatch, tick)
    clock.write(tmp_path / "x.npy", b"one")
    at_once = identity(tmp_path / "x.npy", content=False)
    settled = identity(tmp_path / "x.npy", content=False, settled=True)
    assert settled == at_once
    assert tick / 2e9 <= clock.slept <= max(2 * tick / 1e9, 0.02)
    clock.write(tmp_path / "x.npy", b"two")
    assert identity(tmp_path / "x.npy", content=False) != settled
    clock.now, clock.slept = clock.now + 3 * max(tick, 10**9), 0.0
    identity(tmp_path / "x.npy", content=False, settled=True)
    assert clock.slept == 0


def test_a_file_that_changes_all_the_time_has_no_settled_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, 10_000_000)
    clock.write(tmp_path / "x.npy", b"one")

    def sleep(seconds: float) -> None:
        clock.now += round(seconds * 1e9)
        clock.write(tmp_path / "x.npy", b"two")

    monkeypatch.setattr(identities.time, "sleep", sleep)
    with pytest.raises(FileError, match="what changes all the time; allowed: what stays as it is while it is read"):
        identity(tmp_path / "x.npy", content=False, settled=True)


def test_times_of_the_far_future_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"one")
    identity(tmp_path / "x.npy", content=False, settled=True)
    for when in (5 * 10**18, time.time_ns() // 10**9 * 10**9 + 60 * 10**9):
        os.utime(tmp_path / "x.npy", ns=(when, when))
        begun = time.monotonic()
        assert identity(tmp_path / "x.npy", content=False, settled=True)["mtime_ns"] == when
        assert time.monotonic() - begun < 1


def test_a_folder_within_that_cannot_be_listed_is_an_error_and_not_left_out(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    (tmp_path / "zarr.json").touch()
    listed = os.scandir

    def scandir(folder):
        if os.fspath(folder).endswith("c"):
            raise OSError(errno.EIO, "Input/output error", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(OSError, match="Input/output error"):
        identity(tmp_path, content=False)
