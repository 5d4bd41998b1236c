"""New files: written under a temporary name beside their target, then put in its place in one step."""

import contextlib
import ctypes
import errno
import io
import os
import re
import shutil
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmlcpu.batch.files.base import FileError, check_block
from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Region, Sink, Tensor

# Writer's names of files: the target's name, then the token of the attempt; .old is what a folder replaces.
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]+(\.old)?\.part", re.DOTALL)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # Linux's
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # of a kernel, or a file system, that has none
_NO_SYNC_OF_FOLDERS = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


class Writer(ABC):
    """A new file, or folder, with one array or several.

    It is written under a temporary name beside the target: `finish`, then `put_in_place`. Until then the target is
    as it was; `discard` leaves it so. Last, `sync_folder` of its `folder`, of which several may share one.

    Parameters
    ----------
    target : str
        The file to be; its folder is made.
    token : str
        Hexadecimal digits, others for each attempt.

    Attributes
    ----------
    sinks : dict of str to Sink
        Where the arrays' elements are to be written, each of them once.
    folder : str
        Where the target is.
    """

    def __init__(self, target: str, token: str) -> None:
        self.sinks: Mapping[str, Sink] = {}
        self._target = target
        self.folder, name = os.path.split(target)
        self._temporary = os.path.join(self.folder, f".{name}.{token}.part")

    @abstractmethod
    def finish(self) -> None:
        """Write what is not written yet, and have it all on the disk, under the temporary name."""

    def put_in_place(self) -> None:
        """Replace the target by what has been written: at every moment it is all of the old or all of the new.

        (A zarr folder only where the system can exchange names, see there.) Until `sync_folder` has had the folder, a
        loss of power may undo the replacement.
        """
        os.replace(self._temporary, self._target)

    def discard(self) -> None:
        """Remove what has been written. Never fails: what cannot be removed is `stray`."""
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


class FileWriter(Writer):
    """A writer of one file, which is open until it is finished."""

    def __init__(self, target: str, token: str) -> None:
        super().__init__(target, token)
        try:
            self._file = self._create()
        except FileNotFoundError:
            make_folder(self.folder)
            self._file = self._create()

    def _create(self) -> io.FileIO:
        return io.FileIO(self._temporary, "x")

    def finish(self) -> None:
        """Write what is not written yet, and have it all on the disk, under the temporary name."""
        self._complete()
        os.fsync(self._file.fileno())
        self._file.close()

    def _complete(self) -> None:
        """Write what is not written yet."""

    def discard(self) -> None:
        """Remove what has been written. Never fails: what cannot be removed is `stray`."""
        with contextlib.suppress(OSError):
            self._file.close()
        super().discard()


class HeldWriter(FileWriter):
    """A writer of a file that is written at once, from arrays held in memory."""

    def __init__(self, target: str, tensors: Mapping[str, Tensor], token: str) -> None:
        # First: if there is no memory for them, nothing has been created.
        self._arrays = {name: np.empty(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        super().__init__(target, token)
        self.sinks = {name: HeldSink(array) for name, array in self._arrays.items()}


class HeldSink:
    """An array in memory, of which regions are written."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def write(self, region: Region, block: Array) -> None:
        """Write the elements of a region."""
        check_block(region, block, self._array.dtype)
        self._array[region] = block


def write_whole(writer: Writer, arrays: Mapping[str, Array]) -> None:
    """Write arrays that are in memory, and put the file in place; after a failure the target is as it was."""
    try:
        for name, array in arrays.items():
            writer.sinks[name].write(tuple(slice(0, size) for size in array.shape), array)
        writer.finish()
        writer.put_in_place()
    except BaseException:
        writer.discard()
        raise


def resolved(path: str | os.PathLike[str], folder: bool = False) -> str:
    """Return what a target's links lead to, refusing what must not be replaced by a file (or by a folder)."""
    target = os.path.abspath(path)
    try:
        mode = os.lstat(target).st_mode
        if stat.S_ISLNK(mode):
            target = os.path.realpath(target)
            mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        kind = "a folder" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "a device or a pipe"
        raise FileError(f"{kind} in the place of the output", f"{'a folder' if folder else 'a file'}, or nothing")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    return target


def exchange(one: str, other: str) -> bool:
    """Exchange the names of two files or folders in one step; return False where the system cannot do that."""
    libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if not hasattr(libc, "renameat2"):  # a C library older than Linux's call
        return False
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NO_EXCHANGE:
        return False
    raise OSError(error, os.strerror(error), one, None, other)


def make_folder(folder: str) -> None:
    """Make a folder, and those that it is to be in, where they are not there; have their names on the disk."""
    around = os.path.dirname(folder)
    if os.path.isdir(folder):
        return
    if around != folder:
        make_folder(around)
    os.makedirs(folder, exist_ok=True)  # somebody else may make it, too
    sync_folder(around)


def sync_folder(folder: str) -> None:
    """Have a folder's names on the disk, where the system can."""
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC_OF_FOLDERS:
            raise


def stray(targets: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the temporary files and folders that a killed run has left beside targets, each folder listed once.

    Parameters
    ----------
    targets : iterable of path
        What the run was to write; it need not be there.

    Returns
    -------
    list of Path
        In the order of their names. `remove` removes them.
    """
    folders = _by_folder(targets)
    links = [entry.path for folder, names in folders.items() for entry in _listed(folder) if _is_link(entry, names)]
    for folder, names in _by_folder(map(os.path.realpath, links)).items():
        folders.setdefault(folder, set()).update(names)
    found = []
    for folder, names in folders.items():
        for entry in _listed(folder):
            match = _TEMPORARY.fullmatch(entry.name)
            if match and match["name"] in names:
                found.append(Path(entry.path))
    return sorted(found)


def _by_folder(targets: Iterable[str | os.PathLike[str]]) -> dict[str, set[str]]:
    """Return the names of targets by their folders."""
    folders: dict[str, set[str]] = {}
    for target in targets:
        folder, name = os.path.split(target)
        folders.setdefault(folder, set()).add(name)
    return folders


def _listed(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder, which need not be there, and may be one that only can be written to."""
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        return list(entries)
    return []


def _is_link(entry: os.DirEntry[str], names: set[str]) -> bool:
    return entry.name in names and entry.is_symlink()


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file or a whole folder, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):  # the latter is what macOS says of folders
        if not os.path.isdir(path):
            raise
        shutil.rmtree(path)
