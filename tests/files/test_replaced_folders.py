"""Folders that cannot be renamed, as those of a lower layer of an overlay file system, are replaced all the same."""

import contextlib
import ctypes
import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from writing import contents, everything, strays, write

from dmlcpu.common.regions import Tensor
from dmlcpu.files import create, open_source
from dmlcpu.files.folders import remove
from dmlcpu.files.targets import Writer
from dmlcpu.search import Int8Index

pytest.importorskip("zarr")

ARRAY = np.arange(60, dtype="i4").reshape(5, 3, 4)


class Killed(BaseException):
    """What no code catches, as a run that is killed catches nothing."""


class Layers:
    """The system's calls, where folders of a lower layer cannot be renamed or exchanged; one of the calls may fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lower: set[int] = set()  # inodes
        self.calls = 0  # that change something
        self.stop = 0  # the number of the call that fails
        self.error: type[BaseException] = Killed
        for name in ("unlink", "rmdir", "fsync", "rename"):
            patch.setattr(os, name, self._counted(getattr(os, name)))
        patch.setattr(sys, "platform", "linux")
        patch.setattr(ctypes, "CDLL", lambda *_args, **_options: SimpleNamespace(renameat2=self._renameat2))

    def _renameat2(self, *_: object) -> int:
        ctypes.set_errno(errno.EXDEV)
        return -1

    def _counted(self, call: Callable[..., None]) -> Callable[..., None]:
        def counted(first: Any, *others: Any, **options: Any) -> None:
            if call.__name__ == "rename" and os.stat(first).st_ino in self.lower:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), first)
            self.calls += 1
            if self.calls == self.stop or (self.calls > self.stop > 0 and self.error is Killed):
                raise self.error("stopped")
            call(first, *others, **options)

        return counted

    def folder(self, path: Path) -> Writer:
        """Make a zarr folder of a lower layer; return the finished writer of one that is to replace it."""
        self.lower = set()
        write(path, y=ARRAY)
        self.lower = {path.stat().st_ino}
        writer = create(path, {"y": Tensor(ARRAY.shape, ARRAY.dtype)}, "0a")
        writer.sinks["y"].write(everything(ARRAY.shape), ARRAY + 1)
        writer.finish()
        self.calls = 0
        return writer


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> Layers:
    return Layers(monkeypatch)


def check(target: Path, array: np.ndarray) -> None:
    with open_source(target) as source:
        np.testing.assert_array_equal(source.read(), array)
    assert contents(target.parent) == [target.name]


def test_a_folder_of_a_lower_layer_is_replaced(tmp_path: Path, layers: Layers) -> None:
    layers.folder(tmp_path / "y.zarr").put_in_place()
    check(tmp_path / "y.zarr", ARRAY + 1)


def test_it_stays_if_there_is_no_space_for_its_copy(
    tmp_path: Path, layers: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = layers.folder(tmp_path / "y.zarr")

    def full(_: str, copy: str, **__: object) -> None:
        Path(copy, "c").mkdir()
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="full"):
        writer.put_in_place()
    writer.discard()
    check(tmp_path / "y.zarr", ARRAY)


def test_an_old_folder_that_cannot_be_brought_back_yet_is_kept(
    tmp_path: Path, layers: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in it cannot be removed, for now: neither the old folder nor the new one may be lost."""
    target = tmp_path / "y.zarr"
    writer = layers.folder(target)
    removed = shutil.rmtree

    def refused(path: Any, ignore_errors: bool = False) -> None:
        if Path(path) == target:
            (target / "zarr.json").unlink(missing_ok=True)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        removed(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(PermissionError):
        writer.put_in_place()
    writer.discard()
    for path in strays(target):
        with contextlib.suppress(PermissionError):
            remove(path)
    create(target, {"y": Tensor(ARRAY.shape, ARRAY.dtype)}, "0b").discard()  # what is left is no fault of the next run
    monkeypatch.setattr(shutil, "rmtree", removed)
    for path in strays(target):
        remove(path)
    check(target, ARRAY)


@pytest.mark.parametrize("error", [Killed, OSError])
def test_a_stop_at_any_call_loses_nothing(tmp_path: Path, layers: Layers, error: type[BaseException]) -> None:
    """The next run finds the old folder or the new one, whole, also if a single file of the old one was removed."""
    target, layers.error = tmp_path / "y.zarr", error
    found = []
    for stop in itertools.count(1):
        writer = layers.folder(target)
        layers.stop = stop
        with contextlib.suppress(error):
            writer.put_in_place()
        was_stopped, layers.stop = layers.calls >= stop, 0
        if error is OSError:
            writer.discard()
        for path in strays(target):
            remove(path)
        with open_source(target) as source:
            found.append(source.read().tolist())
        assert found[-1] in (ARRAY.tolist(), (ARRAY + 1).tolist())
        assert contents(tmp_path) == ["y.zarr"]
        shutil.rmtree(target)
        if not was_stopped:
            break
    assert len(found) > 10
    assert found[0] == ARRAY.tolist()
    assert found[-1] == (ARRAY + 1).tolist()


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """A real overlay file system, whose lower layer has a zarr folder and an index."""
    layers = {name: tmp_path / name for name in ("lower", "upper", "work", "merged")}
    for folder in layers.values():
        folder.mkdir()
    write(layers["lower"] / "y.zarr", y=ARRAY)
    Int8Index(np.eye(4, dtype="f4")).save(layers["lower"] / "x.index")
    options = ",".join(
        f"{name}={layers[at]}" for name, at in zip(("lowerdir", "upperdir", "workdir"), layers, strict=False)
    )
    command = ["mount", "-t", "overlay", "overlay", "-o", options, str(layers["merged"])]
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("no overlay file systems")
    if (run := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip(f"no overlay file system can be mounted: {run.stderr.strip()}")
    yield layers["merged"]
    subprocess.run(["umount", "--lazy", str(layers["merged"])], check=True)


def test_folders_of_a_real_lower_layer(overlay: Path) -> None:
    write(overlay / "y.zarr", y=ARRAY + 1)
    with open_source(overlay / "y.zarr") as source:
        np.testing.assert_array_equal(source.read(), ARRAY + 1)
    Int8Index(np.eye(4, dtype="f4")[::-1]).save(overlay / "x.index")
    assert contents(overlay) == ["x.index", "y.zarr"]
    _, found = Int8Index.load(overlay / "x.index").search(np.eye(4, dtype="f4"), 1)
    np.testing.assert_array_equal(found[:, 0], [3, 2, 1, 0])
