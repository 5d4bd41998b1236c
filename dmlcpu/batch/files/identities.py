"""The identity of a file at a time: a later one differs if the file has changed."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from dmlcpu.batch.files import remote
from dmlcpu.batch.files.stored import open_file, size_of


def identity(path: str | os.PathLike[str], *, content: bool) -> dict[str, int | str]:
    """Return the identity of a file, or of a zarr folder with everything in it: another state has another one.

    Of another folder only its own time counts: it cannot be read, and may have any number of files.

    It has ``size`` in bytes and ``mtime_ns``, for a folder the sum of all times in it. With `content` all is read, and
    it has ``sha256`` instead. It can be written as JSON. A remote file has ``version`` for ``mtime_ns``, if its server
    tells versions. Raises OSError, and FileError for a pipe or a device.
    """
    if remote.is_remote(path):
        return remote.identity(os.fspath(path), content=content)
    if os.path.isdir(path):
        return _of_folder(Path(path), content)
    if content:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"size": size_of(file), "sha256": digest}
    status = os.stat(path)
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _within(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder, or where its links lead, as reading follows them; what several lead to, once."""
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        yield from (Path(place, name) for name in (*folders, *files))


def _of_folder(folder: Path, content: bool) -> dict[str, int | str]:
    within = _within(folder) if (folder / "zarr.json").exists() else ()
    entries = sorted((entry.relative_to(folder).as_posix(), entry) for entry in within)
    size = sum(entry.stat().st_size for _, entry in entries if entry.is_file())
    if not content:  # a folder's own time changes when files come, go or are replaced
        times = [folder.stat().st_mtime_ns, *(entry.stat().st_mtime_ns for _, entry in entries)]
        return {"size": size, "mtime_ns": sum(times)}  # the latest may be one of the future, that hides later ones
    digest = hashlib.sha256()
    for name, entry in entries:
        if entry.is_file():
            digest.update(f"{name}\0{identity(entry, content=True)['sha256']}\n".encode())
    return {"size": size, "sha256": digest.hexdigest()}
