"""New files: written under a temporary name in the folder of their target, then put in its place in one step."""

import contextlib
import errno
import functools
import io
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.regions import Region, Sink, Tensor
from dmlcpu.files.base import FileError, check_block, whole

# Writer's names of files: the target's name, then the token of the attempt; .old: the folder that was the target.
TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]+(?P<old>\.old)?\.part", re.DOTALL)
PART, OLD = ".part", ".old.part"
LONGER = len("...part") + 12  # bytes that such a name has more than the target's, with a token of 12 digits
# What systems say that cannot sync folders; Windows, that cannot open one, EACCES.
_NO_SYNC_OF_FOLDERS = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.EPERM)

HANDLES = hasattr(os, "O_PATH")  # of folders, relative to which files are opened and renamed


class Writer(ABC):
    """A new file, or folder, with one array or several.

    `sinks` take the arrays' elements, each of them once. All is written under a temporary name in the target's folder:
    `finish`, then `put_in_place`. Until then the target is as it was; `discard` leaves it so. Last, call `sync_folder`
    with `folder`, once for all targets in it. `token` is hexadecimal digits, others for each attempt. `placed` is the
    new file's device and inode, once it is in place: some file systems give others when a file is renamed.
    """

    def __init__(self, target: str, token: str) -> None:
        self.sinks: Mapping[str, Sink] = {}
        self.placed: tuple[int, int] | None = None
        self.target = target
        self.folder, name = os.path.split(target)
        self._temporary = os.path.join(self.folder, f".{name}.{token}.part")
        self._at: int | None = None  # no link that takes the folder's place later is followed
        with contextlib.suppress(FileNotFoundError):
            self._at = _opened(self.folder)
        if self._at is None:
            make_folder(self.folder)
            self._at = _opened(self.folder)

    def _leave(self) -> None:
        if self._at is not None:
            os.close(self._at)
            self._at = None

    def write(self, arrays: Mapping[str, Array]) -> None:
        """Write arrays that are in memory."""
        for name, array in arrays.items():
            self.sinks[name].write(whole(array.shape), array)

    @abstractmethod
    def finish(self) -> None:
        """Write the rest, and have it all on the disk, under the temporary name."""

    @abstractmethod
    def put_in_place(self) -> None:
        """Replace the target atomically, a folder if the system can; until `sync_folder` it may be undone."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what has the temporary name. Never fails: `stray` finds what could not be removed."""


class FileWriter(Writer):
    """A writer of one file, which is open until it is finished."""

    def __init__(self, target: str, token: str) -> None:
        super().__init__(target, token)
        with OnFailure(self._leave):
            opener = functools.partial(os.open, mode=0o666, dir_fd=self._at)
            self._file = io.FileIO(self._from(self._temporary), "x", opener=opener)

    def _from(self, path: str) -> str:
        """Return a path as it is given along with the folder's handle."""
        return path if self._at is None else os.path.basename(path)

    def put_in_place(self) -> None:
        """Replace the target atomically: a reader finds the old file or the new one."""
        old, new = self._from(self._temporary), self._from(self.target)
        os.replace(old, new, src_dir_fd=self._at, dst_dir_fd=self._at)
        self.placed = file_of(os.stat(new, dir_fd=self._at))
        self._leave()

    def finish(self) -> None:
        """Have it all on the disk, under the temporary name."""
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Remove the temporary file. Never fails: `stray` finds what could not be removed."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._from(self._temporary), dir_fd=self._at)
        self._leave()


class HeldWriter(FileWriter):
    """A writer of a file that `save` writes at once, from arrays held in memory."""

    def __init__(self, target: str, tensors: Mapping[str, Tensor], token: str, save: Callable[..., None]) -> None:
        # First: if there is no memory for them, nothing has been created.
        self._arrays = {name: np.empty(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        super().__init__(target, token)
        self._save = save
        self.sinks = {name: ArraySink(array) for name, array in self._arrays.items()}

    def finish(self) -> None:
        """Write the arrays, and have them on the disk, under the temporary name."""
        self._save(self._file, self._arrays)
        super().finish()


class ArraySink:
    """An array, or one of zarr's, that is written by regions."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def write(self, region: Region, block: Array) -> None:
        """Write the elements of a region."""
        check_block(region, block, self._array.dtype)
        self._array[region] = block


def write_whole(writer: Writer, arrays: Mapping[str, Array]) -> None:
    """Write arrays that are in memory, and put the file in place; after a failure the target is as it was."""
    with OnFailure(writer.discard):
        writer.write(arrays)
        writer.finish()
        writer.put_in_place()


def resolved(path: str | os.PathLike[str], mark: str | None = None, is_real: bool = False) -> str:
    """Return the target that links lead to, or refuse it if a file, or a folder with a `mark`, must not replace it."""
    target = os.fspath(path)
    if not is_real:
        target = os.fspath(Path(path).absolute())  # not abspath: `..` after a link leads elsewhere
        folder, name = os.path.split(target)
        target = os.path.realpath(target) if name == os.pardir else os.path.join(os.path.realpath(folder), name)
    try:
        mode = os.lstat(target).st_mode
        if stat.S_ISLNK(mode):
            target = os.path.realpath(target)
            mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    if not (stat.S_ISDIR(mode) if mark else stat.S_ISREG(mode)):
        kind = "a folder" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "a device or a pipe"
        raise FileError(f"{kind} in the place of the output", f"{'a folder' if mark else 'a file'}, or nothing")
    if mark and os.listdir(target) and not os.path.exists(os.path.join(target, mark)):
        around = stray([os.path.dirname(target)], lambda file: file == target)
        # If a run was killed while it replaced the folder, the old one is whole under another name.
        if not any(each.name.endswith(OLD) for each in around):
            raise FileError("a folder of other files in the place of the output", f"a folder with {mark}, or nothing")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    return target


def file_of(status: os.stat_result) -> tuple[int, int]:
    """Return the device and inode of a file: no other file has both at the same time."""
    return status.st_dev, status.st_ino


def _opened(folder: str) -> int | None:
    """Open a folder whose path has no links; refuse one that has any by now. None: the system has no such handles."""
    if not HANDLES:
        return None
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with OnFailure(lambda: os.close(handle)):
        try:
            found = os.readlink(f"/proc/self/fd/{handle}")  # fewer calls than a look at each folder around it
        except OSError:
            found = ""
        if found != folder and (found := os.path.realpath(folder)) != folder:
            raise FileError(f"a link to {found!r}", f"{folder!r}, as when the job was checked")
    return handle


def fail(error: OSError) -> NoReturn:
    """Raise what `os.walk` met in a folder: it would leave the folder out."""
    raise error


def folder_error(folder: str) -> str | None:
    """Return why no file can be made in a folder, which need not exist yet; None if one can."""
    found = existing(folder)
    if not found.is_dir():
        return f"{found} is no folder"
    return None if os.access(found, os.W_OK | os.X_OK) else f"{found} is read-only"


def existing(folder: str) -> Path:
    """Return a folder, or the nearest around it that exists."""
    found = Path(folder)
    return next((each for each in (found, *found.parents) if os.path.exists(each)), found)


def make_folder(folder: str) -> None:
    """Make a folder and the folders around it, where they are missing; have their names on the disk."""
    around = os.path.dirname(folder) or os.curdir
    if os.path.isdir(folder):
        return
    if around != folder:
        make_folder(around)
    os.makedirs(folder, exist_ok=True)  # another process may also make it
    sync_folder(around)


def sync_folder(folder: str) -> None:
    """Sync a folder, so that its names are on the disk, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC_OF_FOLDERS:
            raise


def stray(folders: Iterable[str], is_target: Callable[[str], bool]) -> list[Path]:
    """Return the temporary files and folders of killed runs in targets' folders, in the order to `remove` them."""
    found: list[tuple[str, re.Match[str]]] = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:  # it may not exist
            found += ((folder, match) for entry in entries if (match := TEMPORARY.fullmatch(entry.name)))
    return sorted(Path(folder, match[0]) for folder, match in found if is_target(os.path.join(folder, match["name"])))
