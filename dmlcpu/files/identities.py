"""The identity of a file at a time: a later one differs if the file has changed."""

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dmlcpu.files import remote
from dmlcpu.files.base import FileError, identity_of
from dmlcpu.files.formats import MARKS, known
from dmlcpu.files.stored import open_file, size_of
from dmlcpu.files.targets import fail

Identity = dict[str, Any]

# A file that changes twice within a tick of its file system's clock has the same time after both. Clocks of kernels
# tick each 1 to 10 ms; times of whole seconds are those of a file system that has no others, where it may be 2 s.
_TICK, _WHOLE_SECONDS = 20_000_000, 2_000_000_000  # ns
_LOOKS = 5  # at a file that changes within each tick


def identity(path: str | os.PathLike[str], *, content: bool, settled: bool = False, within: bool = True) -> Identity:
    """Return the identity of a file, or of a zarr folder or an index with all that is in it: it changes with the state.

    Other folders, which may have any number of files, and any folder without `within` count by their own times alone.

    It has ``size`` in bytes, ``mtime_ns`` and ``ctime_ns``, for a folder the sums over its files; with `content`
    ``size`` and ``sha256``; a remote file has ``version`` in place of the times, if its server reports versions.
    With `settled` any later change gives another identity: it waits until no time is within a tick of now.
    Numbers of devices and inodes are no part of it: some file systems give others at each mount.
    """
    path = remote.base_of(os.fspath(path))
    if remote.is_remote(path):
        return remote.identity(path, known(path), content=content)
    if content:
        return _content_of_folder(Path(path), within=within) if os.path.isdir(path) else _content(path)
    for _ in range(_LOOKS if settled else 1):
        states = [os.stat(path)]
        if within and stat.S_ISDIR(states[0].st_mode):
            states += (os.stat(each) for _, each in _within(Path(path)))
        if not (settled and (left := _left(states))):
            break
        time.sleep(left)
    else:
        raise FileError("what changes all the time", "what stays as it is while it is read")
    return identity_of(*states)


def _tick(when: int) -> int:
    return _TICK if when % 1_000_000_000 else _WHOLE_SECONDS


def differs(before: Any, now: Mapping[str, Any], *, same_place: bool) -> bool:
    """Return whether a file has changed, judged by the fields known now; without `same_place` one may be a copy."""
    if not isinstance(before, dict):
        return True
    # Copies of a file, and other machines' views, have another time of the inode's change.
    return any(before.get(key) != value for key, value in now.items() if same_place or key != "ctime_ns")


def _left(states: Iterable[os.stat_result]) -> float:
    """Return the seconds until no time is within a tick of now. A server's clock may be ahead, by no more."""
    now, left = time.time_ns(), 0
    for status in states:
        for when in (status.st_mtime_ns, status.st_ctime_ns):
            tick = _tick(when)
            if -tick < now - when < tick:
                left = max(left, when + tick - now)
    return left / 1e9


def until_read_again(times: Iterable[int], begun: int) -> float | None:
    """Return None if no file with these times has changed since `begun`, else the seconds until a new read is sure."""
    now = time.time_ns()
    left = [when + tick - now for when in times if begun - (tick := _tick(when)) < when < now + tick]
    return max(0, *left) / 1e9 if left else None


def _within(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what is in a format's folder, or where its links lead, by its name there; once if several lead to it."""
    if not any((folder / mark).exists() for mark in MARKS):
        return
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, onerror=fail, followlinks=True):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        for name in (*folders, *files):
            entry = Path(place, name)
            yield entry.relative_to(folder).as_posix(), entry


def _content(path: str | os.PathLike[str]) -> Identity:
    with open_file(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"size": size_of(file), "sha256": digest}


def _content_of_folder(folder: Path, *, within: bool) -> Identity:
    digest, size = hashlib.sha256(), 0
    for name, entry in sorted(_within(folder)) if within else ():
        if entry.is_file():
            found = _content(entry)
            size += found["size"]
            digest.update(f"{name}\0{found['sha256']}\n".encode())
    return {"size": size, "sha256": digest.hexdigest()}
