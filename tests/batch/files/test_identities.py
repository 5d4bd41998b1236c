import hashlib
import json
import os
from pathlib import Path

import pytest

from dmlcpu.batch.files import identity


@pytest.mark.parametrize("content", [False, True])
def test_file(tmp_path: Path, content: bool) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"abc")
    os.utime(path, ns=(5, 7))
    told = {"sha256": hashlib.sha256(b"abc").hexdigest()} if content else {"mtime_ns": 7}
    assert identity(path, content=content) == {"size": 3} | told
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
