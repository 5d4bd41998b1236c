import errno
import os
import stat
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from writing import contents, everything, strays, write

from dmlcpu.common.regions import Tensor
from dmlcpu.files import FileError, create, open_source
from dmlcpu.files.folders import remove
from dmlcpu.files.formats import suffixes_where
from dmlcpu.files.remote import located
from dmlcpu.files.targets import sync_folder

ARRAY = np.arange(12, dtype="f4").reshape(3, 4)
TENSORS = {"y": Tensor(ARRAY.shape, ARRAY.dtype)}


PACKAGES = {".safetensors": "safetensors", ".zarr": "zarr", ".pb": "onnx"}


@pytest.fixture(params=suffixes_where(lambda each: each.check))
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    pytest.importorskip(PACKAGES.get(request.param, "numpy"))
    return tmp_path / f"y{request.param}"


def test_nothing_is_seen_until_it_is_in_place(target: Path) -> None:
    write(target, y=ARRAY)
    writer = create(target, TENSORS, "0a")
    writer.sinks["y"].write(everything(ARRAY.shape), ARRAY + 1)
    for step in (writer.finish, writer.put_in_place):
        with open_source(target) as source:
            np.testing.assert_array_equal(source.read(), ARRAY)
        assert contents(target.parent) == sorted([target.name, f".{target.name}.0a.part"])
        step()
    with open_source(target) as source:
        np.testing.assert_array_equal(source.read(), ARRAY + 1)
    assert contents(target.parent) == [target.name]
    writer.discard()
    assert contents(target.parent) == [target.name]


def test_the_same_bytes_each_time(target: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / target.name
    for path in (target, other):
        write(path, y=ARRAY)
    files = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert path.read_bytes() == (other / path.relative_to(target)).read_bytes()


@pytest.mark.parametrize("finished", [False, True])
def test_discard(target: Path, finished: bool) -> None:
    writer = create(target, TENSORS, "0a")
    writer.sinks["y"].write(everything(ARRAY.shape), ARRAY)
    if finished:
        writer.finish()
    assert contents(target.parent) != []
    for _ in range(2):
        writer.discard()
        assert contents(target.parent) == []


def test_stray(target: Path) -> None:
    other = target.with_stem("yy")
    writers = [create(path, TENSORS, token) for path, token in [(target, "0a"), (target, "ff"), (other, "0a")]]
    for name in (f".{target.name}.part", f".{target.name}.xy.part", f"{target.name}.0a.part", ".other.0a.part"):
        (target.parent / name).write_bytes(b"")
    found = strays(target, target.parent / "nowhere" / "y.npy", target / "in it" / "y.npy")
    assert [path.name for path in found] == [f".{target.name}.0a.part", f".{target.name}.ff.part"]
    for writer in writers[:2]:
        writer.finish()
    for path in found:
        remove(path)
        remove(path)
    assert strays(target) == []
    assert len(strays(other)) == 1
    writers[2].discard()


def test_folders_are_made(target: Path) -> None:
    write(target.parent / "a" / "b" / target.name, y=ARRAY)
    with open_source(target.parent / "a" / "b" / target.name) as source:
        np.testing.assert_array_equal(source.read(), ARRAY)


def test_links_are_followed(target: Path) -> None:
    real = target.parent / "real" / target.name
    target.symlink_to(real)
    for array in (ARRAY, ARRAY + 1):  # a link to nothing, then to a file
        writer = create(target, TENSORS, "0a")
        assert contents(target.parent) == ["real", target.name]
        assert strays(target) == [real.parent / f".{target.name}.0a.part"]
        writer.sinks["y"].write(everything(array.shape), array)
        writer.finish()
        writer.put_in_place()
        assert target.is_symlink()
        with open_source(real) as source:
            np.testing.assert_array_equal(source.read(), array)
        assert contents(real.parent) == [target.name]


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="no handles of folders")
def test_a_folder_that_is_renamed_for_a_moment(target: Path) -> None:
    """What is written meanwhile is a part of the new file all the same."""
    folder = target.parent / "out"
    writer = create(folder / target.name, TENSORS, "0a")
    folder.rename(target.parent / "moved")
    folder.mkdir()
    writer.write({"y": ARRAY})
    assert contents(folder) == []
    folder.rmdir()
    (target.parent / "moved").rename(folder)
    writer.finish()
    writer.put_in_place()
    with open_source(folder / target.name) as source:
        np.testing.assert_array_equal(source.read(), ARRAY)


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="no handles of folders")
def test_nothing_stays_in_a_folder_that_was_renamed(target: Path) -> None:
    folder = target.parent / "out"
    writer = create(folder / target.name, TENSORS, "0a")
    writer.write({"y": ARRAY})
    folder.rename(target.parent / "moved")
    writer.discard()
    assert contents(target.parent / "moved") == []


def test_what_two_dots_after_a_link_mean(tmp_path: Path) -> None:
    """The folder around the one that the link leads to, as for the system."""
    (tmp_path / "else" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "else" / "folder")
    write(tmp_path / "link" / ".." / "y.npy", y=ARRAY)
    assert contents(tmp_path) == ["else", "link"]
    np.testing.assert_array_equal(np.load(tmp_path / "else" / "y.npy"), ARRAY)
    assert located(tmp_path, "zip://x.npy::link/../x.zip") == f"zip://x.npy::{tmp_path.resolve()}/else/x.zip"


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="no handles of folders")
def test_a_folder_that_becomes_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while the file is made, nor before it takes its name."""
    for name in ("out", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "y.npy").write_bytes(b"mine")
    writer = create(tmp_path / "out" / "y.npy", TENSORS, "0a")
    os.rename(tmp_path / "out", tmp_path / "moved")
    (tmp_path / "out").symlink_to("mine")
    writer.write({"y": ARRAY})
    writer.finish()
    writer.put_in_place()
    np.testing.assert_array_equal(np.load(tmp_path / "moved" / "y.npy"), ARRAY)
    monkeypatch.setattr("dmlcpu.files.resolved", lambda path, **_: os.fspath(path))
    with pytest.raises(FileError, match=r"a link to .*mine'; allowed: .*out', as when the job was checked"):
        create(tmp_path / "out" / "y.npy", TENSORS, "0a")
    assert contents(tmp_path / "mine") == ["y.npy"]
    assert (tmp_path / "mine" / "y.npy").read_bytes() == b"mine"


@pytest.mark.skipif(os.name == "nt", reason="no modes")
def test_mode_is_that_of_new_files(target: Path) -> None:
    before = os.umask(0o027)
    try:
        write(target, y=ARRAY)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == (0o750 if target.is_dir() else 0o640)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_what_is_no_file_is_not_replaced(target: Path) -> None:
    os.mkfifo(target)
    with pytest.raises(FileError, match="a device or a pipe in the place of the output"):
        create(target, TENSORS, "0a")
    target.unlink()
    if target.suffix == ".zarr":
        target.write_bytes(b"")
    else:
        target.mkdir()
    with pytest.raises(FileError, match="in the place of the output; allowed: a f"):
        create(target, TENSORS, "0a")
    assert contents(target.parent) == [target.name]


def test_read_only_target_stays(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(target, y=ARRAY)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(PermissionError, match=target.name):
        create(target, TENSORS, "0a")
    assert contents(target.parent) == [target.name]


def test_target_below_a_file_is_refused(target: Path) -> None:
    (target.parent / "file").write_bytes(b"")
    with pytest.raises(OSError):
        create(target.parent / "file" / target.name, TENSORS, "0a")


@pytest.mark.skipif(os.name == "nt", reason="no limit to set")
def test_no_space_is_an_error_of_the_system(target: Path) -> None:
    import resource
    import signal

    array = np.random.default_rng(1).integers(0, 255, 100_000, "u1")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        writer = create(target, {"y": Tensor(array.shape, array.dtype)}, "0a")

        def written() -> None:
            writer.sinks["y"].write(everything(array.shape), array)
            writer.finish()

        with pytest.raises(OSError) as caught:
            written()
        assert caught.value.errno == errno.EFBIG
        writer.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert contents(target.parent) == []


def test_folder_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = []

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            failed.append(descriptor)
            raise OSError(errors[0], "no")

    monkeypatch.setattr(os, "fsync", fsync)
    errors = [errno.EINVAL]
    sync_folder(str(tmp_path))
    errors = [errno.EIO]
    with pytest.raises(OSError, match="no"):
        sync_folder(str(tmp_path))
    assert len(failed) == (0 if os.name == "nt" else 2)


@pytest.mark.skipif(os.name == "nt", reason="folders are not synced")
def test_names_of_new_folders_are_on_the_disk(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("dmlcpu.files.targets.sync_folder", synced.append)
    create(target.parent / "new" / "newer" / target.name, TENSORS, "0a").discard()
    assert synced == [str(target.parent), str(target.parent / "new")]


@pytest.mark.skipif(os.name == "nt", reason="folders are not synced")
def test_all_is_on_the_disk_before_it_is_in_place(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    writer = create(target, TENSORS, "0a")
    writer.sinks["y"].write(everything(ARRAY.shape), ARRAY)
    writer.finish()
    [temporary] = strays(target)
    assert {path.stat().st_ino for path in [temporary, *temporary.rglob("*")]} <= synced
    writer.put_in_place()
    assert target.parent.stat().st_ino not in synced
    assert writer.folder == str(target.parent)
    sync_folder(writer.folder)
    assert target.parent.stat().st_ino in synced


def test_no_folder_is_in_the_way_of_a_look_for_strays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".y.npy.0a.part").touch()
    (tmp_path / "z.npy").touch()
    too_long = tmp_path / ("long" * 1000) / "y.npy"
    assert strays(too_long, tmp_path / "z.npy" / "y.npy", tmp_path / "y.npy") == [tmp_path / ".y.npy.0a.part"]

    def refuse(path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert strays(tmp_path / "y.npy") == []


def test_suffixes(tmp_path: Path) -> None:
    for name, message in [("y.txt", "the suffix '.txt'; allowed: .npy, .npz"), ("y", "no suffix")]:
        with pytest.raises(FileError, match=message):
            create(tmp_path / name, TENSORS, "0a")
        with pytest.raises(FileError, match=message):
            open_source(tmp_path / name)


ONE = Tensor((2,), np.dtype("f4"))
REFUSED = [
    ("npy", {"a": ONE, "b": ONE}, "2 arrays for a .npy file"),
    ("npy", {}, "0 arrays"),
    ("npy", "O", "Python objects"),
    ("npy", "f4,i4", "structured"),
    ("npz", "O", "Python objects"),
    ("safetensors", "c16", "complex128"),
    ("safetensors", "O", "object"),
    ("safetensors", ml_dtypes.int4, "int4 for a safetensors file"),
    ("safetensors", {"__metadata__": ONE}, "the name"),
    ("pb", {"a": ONE, "b": ONE}, "2 arrays for a .pb file"),
    ("pb", "V2", "for an ONNX tensor"),
    ("pb", {"a": Tensor((2**29,), np.dtype("f4"))}, "2,147,483,648 bytes"),
    *(("zarr", dtype, "for a zarr folder") for dtype in ("O", "V2", "S3", ml_dtypes.bfloat16, ml_dtypes.uint4)),
]


@pytest.mark.parametrize(("suffix", "of", "message"), REFUSED)
def test_arrays_that_a_format_cannot_hold_are_refused(tmp_path: Path, suffix: str, of: object, message: str) -> None:
    pytest.importorskip(PACKAGES.get(f".{suffix}", "numpy"))
    tensors = of if isinstance(of, dict) else {"a": Tensor((2,), np.dtype(of))}
    with pytest.raises(FileError, match=message):
        create(tmp_path / f"y.{suffix}", tensors, "0a")
    assert contents(tmp_path) == []
