"""A file of JSON lines that gains whole lines only, even if the process is killed or the disk is full."""

import errno
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmlcpu.files.targets import make_folder

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # of pipes and terminals: there is nothing to bring to the disk


def as_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of JSON. In names of files, bytes that are not UTF-8 are escaped."""
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _opened(path: Path) -> int:
    """Open a file to append to it, and to read its end; a pipe only to write, or it would always have this reader."""
    flags = os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    if not path.is_fifo():
        return os.open(path, flags | os.O_RDWR, 0o666)
    try:
        file = os.open(path, flags | os.O_WRONLY | os.O_NONBLOCK)  # it waits for no reader that may never come
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "a pipe without a reader", str(path)) from None
        raise
    os.set_blocking(file, True)
    return file


class Lines:
    """A file that lines are appended to; those that a full disk does not take are written with later ones."""

    late = 0.9  # seconds until lines are brought to the disk, from `keep_synced` on

    def __init__(self, path: Path) -> None:
        make_folder(os.fspath(path.parent))
        self.path = path
        self.file = _opened(path)
        self._end = 0  # the file's size after the last write: a whole line ends there
        self._pending = b""
        self._unwritten: OSError | None = None  # why the pending lines are not in the file
        self._lost: OSError | None = None  # why lines that are in the file may not be on the disk
        self._synced = True
        self._using = threading.Lock()
        self._closing = threading.Event()
        self._syncing: threading.Thread | None = None

    @property
    def error(self) -> OSError | None:
        """Why lines may not be on the disk. What a sync has lost stays lost: the system reports it only once."""
        return self._lost or self._unwritten

    def append(self, *records: Mapping[str, Any]) -> None:
        """Append lines in one write; if it fails, `error` says why, and the next call tries again."""
        with self._using:
            self._pending += b"".join(map(as_line, records))
            self._write()

    def keep_synced(self) -> None:
        """Bring lines to the disk from now on, in a thread, however long it takes until the next ones come."""

        def sync() -> None:
            while not self._closing.wait(self.late):
                if not self._synced:
                    self.sync()

        self._syncing = threading.Thread(target=sync, name="dmlcpu-manifest", daemon=True)
        try:
            self._syncing.start()
        except RuntimeError:  # the system starts no more threads: they are synced at the end
            self._syncing = None

    def _write(self) -> None:
        if not self._pending:
            return
        try:
            size = os.fstat(self.file).st_size
            content = self._pending
            if size and size != self._end:  # others have written
                os.lseek(self.file, size - 1, os.SEEK_SET)
                if os.read(self.file, 1) != b"\n":  # the last line has no end: a machine has lost power
                    content = b"\n" + content
            written = os.write(self.file, content)
            if written < len(content):
                os.ftruncate(self.file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # nothing else takes a part of a write
            self._end = size + written
        except OSError as error:
            error.filename = str(self.path)
            self._unwritten = error
        else:
            self._pending, self._unwritten, self._synced = b"", None, False

    def sync(self) -> None:
        """Bring lines to the disk that are not there yet."""
        with self._using:
            self._write()
            synced, self._synced = self._synced, True
        try:  # outcomes are recorded meanwhile
            if not synced:
                os.fsync(self.file)
            if not os.fstat(self.file).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "the file was removed during the run")
        except OSError as error:
            if error.errno not in _NO_SYNC:
                self._lost = self._lost or error

    def end(self) -> None:
        """Bring all lines to the disk, for the last time. Lines that cannot be written are lost; `error` says why."""
        self._closing.set()
        if self._syncing is not None:
            self._syncing.join()
        self.sync()

    def close(self) -> None:
        """End, and close the file."""
        self.end()
        os.close(self.file)
