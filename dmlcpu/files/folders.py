"""New folders, and how they take the place of old ones."""

import contextlib
import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from dmlcpu.common.cleanup import OnFailure
from dmlcpu.files.targets import HANDLES, OLD, PART, TEMPORARY, Writer, fail, file_of, sync_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # Linux's
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV)  # of a kernel, or a file system, that has none


class FolderWriter(Writer):
    """A writer of a folder, which is locked while it has its temporary name."""

    def __init__(self, target: str, token: str) -> None:
        super().__init__(target, token)
        self._lock = contextlib.ExitStack()
        with OnFailure(self._leave):
            os.mkdir(self._temporary)
            self.held = self._lock.enter_context(_held(self._temporary))
        self._needed: Sequence[str] = ()  # files that the folder must have at the end

    @property
    def inside(self) -> str:
        """The new folder: whatever is renamed meanwhile, all is written into this one."""
        return _by_handle(self.held, self._temporary)

    def put_in_place(self) -> None:
        """Replace the target: on Linux atomically."""
        # Another program may have removed the folder; what is written later is then in a new folder of this name.
        for name in self._needed:
            os.stat(os.path.join(self._temporary, name))
        put_folder(self._temporary, self.target)
        self.placed = file_of(os.stat(self.target))
        self._leave()

    def discard(self) -> None:
        """Remove the temporary folder. Never fails: `stray` finds what could not be removed."""
        with contextlib.suppress(OSError):
            remove(os.path.join(_by_handle(self._at, self.folder), os.path.basename(self._temporary)))
        self._leave()

    def _leave(self) -> None:
        self._lock.close()
        super()._leave()


def _by_handle(handle: int | None, folder: str) -> str:
    """Return the path of an open folder: on Linux one that holds even if the folder is renamed."""
    path = f"/proc/self/fd/{handle}"
    return path if HANDLES and handle is not None and os.path.isdir(path) else folder


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


def put_folder(temporary: str, target: str) -> None:
    """Give a new folder, named as `Writer` names them, the name of its target, in the place of a folder there.

    On Linux the two folders exchange names, so at every moment the target is all of the old or all of the new. Where
    the system has no such call, the old folder is renamed first: between two renames there is no target. An overlay
    file system does not rename a folder of a lower layer: there it is copied, and removed. After a run that is killed
    in between, `remove` brings the old folder back.
    """
    if not os.path.isdir(target):
        os.rename(temporary, target)
    elif exchange(temporary, target):
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        old = temporary.removesuffix(PART) + OLD
        with _held(target), OnFailure(lambda: _bring_back(old, target)):  # a lock stays with a folder that is renamed
            _set_aside(target, old)
            os.rename(temporary, target)
        with contextlib.suppress(OSError):
            os.rename(old, temporary)  # what has a name with .old is always whole
        shutil.rmtree(temporary, ignore_errors=True)


def _set_aside(target: str, old: str) -> None:
    """Give a folder the name of an old one; one that cannot be renamed is copied, then removed."""
    try:
        os.rename(target, old)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = old.removesuffix(OLD) + "0" + PART
        with OnFailure(lambda: shutil.rmtree(copy, ignore_errors=True)):
            os.mkdir(copy)
            with _held(copy):
                shutil.copytree(target, copy, symlinks=True, dirs_exist_ok=True)
                sync_within(copy)
                os.rename(copy, old)
                sync_folder(os.path.dirname(old))
                shutil.rmtree(target)


def _bring_back(old: str, target: str) -> None:
    """Give an old folder its name back, if it was set aside; what is left in its place is a part of it."""
    if os.path.isdir(old):
        if os.path.lexists(target):
            shutil.rmtree(target)
        os.rename(old, target)


def sync_within(folder: str) -> None:
    """Bring a folder and all in it to the disk."""
    for place, _, files in os.walk(folder, onerror=fail):
        for name in files:
            file = os.path.join(place, name)
            if not os.path.islink(file):
                with open(file, "rb+" if os.name == "nt" else "rb") as opened:  # a copy may be read-only
                    os.fsync(opened.fileno())
        sync_folder(place)


@contextlib.contextmanager
def _held(folder: str | os.PathLike[str]) -> Iterator[int | None]:
    """Lock a temporary folder, as a sign to other runs that it is in use; yield the handle, if there are such locks.

    A file needs none: if somebody removes it, it cannot be renamed, but of a folder some parts may be left.
    """
    if fcntl is None:
        yield None
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # of a file system without locks
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def is_held(path: str | os.PathLike[str]) -> bool:
    """Return whether a process has a temporary folder in use, by `_held`."""
    try:
        with _held(path) as handle:
            if handle is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file or a whole folder, if it exists; but an old folder that was not replaced gets its name back.

    It was not if the new folder still has its temporary name: this is removed after the old one.
    """
    folder, name = os.path.split(path)
    temporary = TEMPORARY.fullmatch(name)
    if temporary and not temporary["old"] and os.path.lexists(os.fspath(path).removesuffix(PART) + OLD):
        return  # the sign that the target is not the new folder: the old one could not be brought back yet
    if temporary and temporary["old"]:
        target, new = os.path.join(folder, temporary["name"]), os.fspath(path).removesuffix(OLD) + PART
        if os.path.lexists(new) or not os.path.lexists(target):
            _bring_back(os.fspath(path), target)
            return
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
