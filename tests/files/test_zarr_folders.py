import asyncio
import ctypes
import errno
import gc
import itertools
import json
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from writing import check_reads, contents, everything, strays, write

from dmlcpu.common.regions import Tensor
from dmlcpu.files import FileError, Writer, check_target, create, open_source, write_whole
from dmlcpu.files.folders import exchange, remove

zarr = pytest.importorskip("zarr")

ARRAY = np.arange(60, dtype="i4").reshape(5, 3, 4)


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", "f4", ">f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(5, 12), (), (0, 2)])
def test_reads_what_zarr_writes(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(60)[: np.prod(shape, dtype=int)].reshape(shape).astype(dtype)
    zarr.create_array(tmp_path / "x.zarr", shape=shape, dtype=dtype, chunks=tuple(min(3, n or 1) for n in shape))[
        everything(shape)
    ] = array
    check_reads(tmp_path / "x.zarr", array)


def test_writes_regions(tmp_path: Path) -> None:
    writer = create(tmp_path / "y.zarr", {"y": Tensor(ARRAY.shape, ARRAY.dtype)}, "0a")
    for region in itertools.product((slice(0, 2), slice(2, 5)), (slice(0, 3),), (slice(0, 1), slice(1, 4))):
        writer.sinks["y"].write(region, ARRAY[region])
    writer.finish()
    writer.put_in_place()
    opened = zarr.open_array(tmp_path / "y.zarr", mode="r", zarr_format=3)
    np.testing.assert_array_equal(opened[...], ARRAY)


def test_groups(tmp_path: Path) -> None:
    path = tmp_path / "y.zarr"
    write(path, values=ARRAY, indices=ARRAY[0])
    with open_source(path, "indices") as source:
        np.testing.assert_array_equal(source.read(), ARRAY[0])
    with pytest.raises(FileError, match="2 arrays and no name; allowed: a name: indices, values"):
        open_source(path)
    with pytest.raises(FileError, match="the name 'x'"):
        open_source(path, "x")
    write(path, y=ARRAY)  # in the place of the group
    with pytest.raises(FileError, match="the name 'x'"):
        open_source(path, "x")
    zarr.open_group(tmp_path / "g.zarr", mode="w").create_group("a").create_array("b", shape=(2,), dtype="u2")
    with open_source(tmp_path / "g.zarr", "a/b", "bfloat16") as source:
        assert source.shape == (2,)
    with open_source(tmp_path / "g.zarr", dtype="bfloat16") as source:
        assert source.read().dtype == ml_dtypes.bfloat16


def test_groups_that_links_lead_to_again(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_group("a").create_array("b", shape=(2,), dtype="u2")
    for name in ("again", "and again"):
        (tmp_path / "x.zarr" / "a" / name).symlink_to(tmp_path / "x.zarr")
    with open_source(tmp_path / "x.zarr") as source:
        assert source.shape == (2,)
    (tmp_path / "x.zarr" / "c").symlink_to(tmp_path / "x.zarr" / "a" / "b")
    with pytest.raises(FileError, match="2 arrays and no name; allowed: a name: a/b, c"):
        open_source(tmp_path / "x.zarr")


def test_bad_folders(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    with pytest.raises(FileNotFoundError):
        open_source(path)
    path.mkdir()
    for text, message in [(None, "without zarr.json"), ("{", "unreadable data"), ("[]", "unreadable data")]:
        if text is not None:
            (path / "zarr.json").write_text(text)
        with pytest.raises(FileError, match=message):
            open_source(path)
    shutil.rmtree(path)
    path.write_bytes(b"")
    with pytest.raises(FileError, match="a file; allowed: a zarr folder"):
        open_source(path)


def test_truncated_chunk_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.zarr", y=np.arange(1000))
    [chunk] = [path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file() and path.name != "zarr.json"]
    chunk.write_bytes(chunk.read_bytes()[:20])
    with open_source(tmp_path / "x.zarr") as source, pytest.raises(FileError, match="unreadable data"):
        source.read()


@pytest.mark.parametrize("shape", [(2**62, 3), (0, 2**62, 3), (2**63, 1)])
def test_arrays_that_no_memory_could_hold_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    zarr.create_array(tmp_path / "x.zarr", shape=(4,) * len(shape), dtype="f4", zarr_format=3)
    described = json.loads((tmp_path / "x.zarr" / "zarr.json").read_text())
    (tmp_path / "x.zarr" / "zarr.json").write_text(json.dumps({**described, "shape": shape}))
    with pytest.raises(FileError, match=r"the shape .*; allowed: an array that memory can address"):
        open_source(tmp_path / "x.zarr")


def test_version_2_is_not_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    zarr.create_array(tmp_path / "x.zarr", shape=(2,), dtype="f4", zarr_format=2)[...] = 1
    zarr.create_group(tmp_path / "y.zarr", zarr_format=2)
    for name in ("x.zarr", "y.zarr"):
        with pytest.raises(FileError, match="one of version 2; allowed: a zarr folder of version 3"):
            open_source(tmp_path / name)
    assert contents(tmp_path) == ["x.zarr", "y.zarr"]


def test_strings_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", shape=(2,), dtype=str)
    with pytest.raises(FileError, match="Python objects"):
        open_source(tmp_path / "x.zarr")


def test_other_folders_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "y.zarr"
    path.mkdir()
    write(path, y=ARRAY)  # an empty folder
    (path / "zarr.json").rename(path / "thesis.txt")
    with pytest.raises(FileError, match="a folder of other files"):
        create(path, {"y": Tensor((2,), np.dtype("f4"))}, "0a")
    assert (path / "thesis.txt").exists()


@pytest.fixture
def replacing(tmp_path: Path) -> Writer:
    """A finished writer whose target, y.zarr, is a folder already."""
    write(tmp_path / "y.zarr", y=ARRAY)
    writer = create(tmp_path / "y.zarr", {"y": Tensor(ARRAY.shape, ARRAY.dtype)}, "0a")
    writer.sinks["y"].write(everything(ARRAY.shape), ARRAY + 1)
    writer.finish()
    return writer


def read(path: Path) -> list[int]:
    with open_source(path) as source:
        return source.read().reshape(-1).tolist()


OLD, NEW = ARRAY.reshape(-1).tolist(), (ARRAY + 1).reshape(-1).tolist()


def can_exchange(folder: Path) -> bool:
    for name in ("one", "other"):
        (folder / name).mkdir()
    try:
        return exchange(str(folder / "one"), str(folder / "other"))
    finally:
        (folder / "one").rmdir()
        (folder / "other").rmdir()


def test_a_watcher_always_finds_a_whole_folder(tmp_path: Path, replacing: Writer) -> None:
    """The watcher looks before and after every call that Python makes while the folder is replaced."""
    if not can_exchange(tmp_path):
        pytest.skip("this system cannot exchange names")
    wanted = sorted(path.relative_to(tmp_path / "y.zarr") for path in (tmp_path / "y.zarr").rglob("*"))
    seen = []

    def watch(*_: object) -> None:
        seen.append(all(os.path.exists(tmp_path / "y.zarr" / path) for path in wanted))

    sys.setprofile(watch)
    try:
        replacing.put_in_place()
    finally:
        sys.setprofile(None)
    assert len(seen) > 20
    assert all(seen)
    assert read(tmp_path / "y.zarr") == NEW
    assert contents(tmp_path) == ["y.zarr"]


def test_the_old_folder_is_a_stray_if_a_run_is_killed_after_the_exchange(
    tmp_path: Path, replacing: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange(tmp_path):
        pytest.skip("this system cannot exchange names")
    monkeypatch.setattr(shutil, "rmtree", lambda *_args, **_options: None)
    replacing.put_in_place()
    assert read(tmp_path / "y.zarr") == NEW
    monkeypatch.undo()
    [found] = strays(tmp_path / "y.zarr")
    assert found.name == ".y.zarr.0a.part"
    remove(found)
    assert contents(tmp_path) == ["y.zarr"]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EACCES, None])
def test_the_folder_is_renamed_twice_where_names_cannot_be_exchanged(
    tmp_path: Path, replacing: Writer, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    def renameat2(*_: object) -> int:
        ctypes.set_errno(error)
        return -1

    library = SimpleNamespace(renameat2=renameat2) if error else SimpleNamespace()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_options: library)
    if error == errno.EACCES:
        with pytest.raises(PermissionError):
            replacing.put_in_place()
        replacing.discard()
    else:
        replacing.put_in_place()
    assert read(tmp_path / "y.zarr") == (OLD if error == errno.EACCES else NEW)
    assert contents(tmp_path) == ["y.zarr"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_stopped_between_two_renames_loses_nothing(
    tmp_path: Path, replacing: Writer, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """The next run, which removes what is left, brings the old folder back."""
    rename = os.rename

    def stopped(source: str, target: str) -> None:
        if source.endswith(".0a.part") or (killed and source.endswith(".old.part")):
            raise OSError("stopped")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("dmlcpu.files.folders.exchange", lambda *_: False)
        patch.setattr(os, "rename", stopped)
        with pytest.raises(OSError, match="stopped"):
            replacing.put_in_place()
    if killed:
        found = strays(tmp_path / "y.zarr")
        assert [path.name for path in found] == [".y.zarr.0a.old.part", ".y.zarr.0a.part"]
        for path in found:
            remove(path)
    else:
        replacing.discard()
    assert contents(tmp_path) == ["y.zarr"]
    assert read(tmp_path / "y.zarr") == OLD


@pytest.mark.parametrize("names", [("y",), ("y", "z")])
@pytest.mark.parametrize("removed", ["", "zarr.json", "z"])
def test_a_folder_that_vanishes_while_it_is_written(tmp_path: Path, names: tuple[str, ...], removed: str) -> None:
    """Another run takes it for a stray; by its path zarr would make it anew for the rest, which is not all."""
    write(tmp_path / "y.zarr", **dict.fromkeys(names, ARRAY))
    writer = create(tmp_path / "y.zarr", dict.fromkeys(names, Tensor(ARRAY.shape, ARRAY.dtype)), "0a")
    part = tmp_path / ".y.zarr.0a.part" / removed
    if removed == "z" and len(names) == 1:
        pytest.skip("no group")
    part.unlink() if part.is_file() else shutil.rmtree(part)
    with pytest.raises(FileNotFoundError):  # on Linux at once: by its handle, nothing is made anew
        write_whole(writer, dict.fromkeys(names, ARRAY + 1))
    writer.discard()
    assert contents(tmp_path) == ["y.zarr"]
    for name in names:
        check_reads(tmp_path / "y.zarr", ARRAY, name if len(names) > 1 else None)


def test_nothing_is_written_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zarr writes several chunks at a time: those that go on would make the folder anew after it is removed."""
    array = np.ones((4, 1 << 20), "f4")
    writer = create(tmp_path / "y.zarr", {"y": Tensor(array.shape, array.dtype)}, "0a")
    put = zarr.storage.LocalStore.set

    async def put_slowly(store: object, key: str, value: object) -> None:
        if key == "c/1/0":
            raise OSError(errno.ENOSPC, "full")
        await asyncio.sleep(0.2)
        await put(store, key, value)

    monkeypatch.setattr(zarr.storage.LocalStore, "set", put_slowly)
    with pytest.raises(OSError, match="full"):
        writer.write({"y": array})
    writer.discard()
    time.sleep(0.4)
    assert contents(tmp_path) == []


def test_no_coroutine_is_left_if_the_group_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get = zarr.storage.LocalStore.get

    async def failing(store: object, key: str, *arguments: object, **options: object) -> object:
        if key == "zarr.json" and (tmp_path / ".y.zarr.0a.part" / key).exists():
            raise OSError(errno.EIO, "broken")
        return await get(store, key, *arguments, **options)

    monkeypatch.setattr(zarr.storage.LocalStore, "get", failing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(OSError, match="broken"):
            create(tmp_path / "y.zarr", dict.fromkeys(("y", "z"), Tensor(ARRAY.shape, ARRAY.dtype)), "0a")
        gc.collect()
    assert [str(each.message) for each in caught] == []
    assert contents(tmp_path) == []


def test_a_folder_that_was_replaced_does_not_come_back(tmp_path: Path) -> None:
    """A run killed after the second rename leaves the old folder, whole or half removed."""
    write(tmp_path / "y.zarr", y=ARRAY)
    (tmp_path / ".y.zarr.0a.old.part").mkdir()
    (tmp_path / ".y.zarr.0b.part").mkdir()
    for path in strays(tmp_path / "y.zarr"):
        remove(path)
    assert contents(tmp_path) == ["y.zarr"]
    assert read(tmp_path / "y.zarr") == OLD


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((), ()),
        ((10, 0, 3), (1, 1, 3)),
        ((10, 3), (10, 3)),
        ((1 << 20, 1024), (1024, 1024)),
        ((8, 1 << 24), (1, 1 << 20)),
        ((8, 1, 1 << 19), (2, 1, 1 << 19)),
    ],
)
def test_chunks(tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    writer = create(tmp_path / "y.zarr", {"y": Tensor(shape, np.dtype("f4"))}, "00")
    writer.finish()
    writer.put_in_place()
    assert zarr.open(tmp_path / "y.zarr", mode="r").chunks == chunks


def test_target_takes_a_type_that_was_swapped_back(tmp_path: Path) -> None:
    """A type that was swapped is equal to NumPy's own, but not the same object."""
    dtype = np.dtype(">f4").newbyteorder("=")
    assert dtype.isbuiltin != 1
    check_target(tmp_path / "y.zarr", {"y": Tensor((3,), dtype)})
