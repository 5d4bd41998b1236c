"""The manifest records the outcome of each job, so that the same command again runs only what is not done."""

import contextlib
import json
import os
from collections import UserDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.faults import shown
from dmlcpu.files.targets import sync_folder
from dmlcpu.jobs.lines import Lines

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HEADER = {"dmlcpu": "manifest", "version": 1}
DONE, FAILED, STARTED = "done", "failed", "started"

Record = dict[str, Any]


class Records(UserDict[str, Any]):
    """The last record of each id, kept as the line of the file: a record is parsed when it is asked for."""

    # The inode of the manifest. In a copy the recorded times may be those of other files: a record is not `here` then.
    place: int | None = None

    def __getitem__(self, id_: str) -> Record:
        record: Record = json.loads(self.data[id_])
        record["here"] = self.place is not None and record.get("place") == self.place
        return record


class ManifestError(ValueError):
    """A manifest cannot be used: the file is not a manifest, or another run uses it."""


class Manifest:
    """The recorded outcomes of jobs, in a file that is only appended to. The last line of each id counts.

    Before a job that is recorded as done runs again, a line says that it has started: if the run is killed, the job is
    not done. A job that has failed stays recorded as failed until its next outcome, so that --retry-failed finds it.
    The file is locked while it is open; the system unlocks it when the process ends, even by SIGKILL.
    """

    def __init__(self, path: Path, *, lock: bool = True) -> None:
        self.path = path
        self.records = Records()  # of earlier runs, until `begin`
        self.lines: Lines | None = None
        self._size = 0
        if path.exists() and not path.is_file():  # a device or a pipe
            raise ManifestError(f"{path} is no regular file; allowed: a file, by --manifest")
        if not path.exists():
            return
        if lock:
            self._open_locked()
        with OnFailure(self.close), path.open("rb") as file:
            self.records.place = os.fstat(file.fileno()).st_ino
            self._read(file)
            self._size = file.tell()

    def _open_locked(self) -> None:
        is_new = not self.path.exists()
        self.lines = Lines(self.path)
        try:
            if fcntl is not None:
                fcntl.flock(self.lines.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise ManifestError(f"{self.path} is in use by another run") from None
            if is_new:
                self.path.unlink()
            found = f"{self.path} cannot be locked ({error.strerror})"
            raise ManifestError(f"{found}; allowed: a file on a file system that has locks, by --manifest") from None

    def _read(self, file: BinaryIO) -> None:
        header = file.readline()
        if header and (first := _loaded(header)) != _HEADER:
            what = "a file that is no manifest of dmlcpu"
            if isinstance(first, dict) and first.get("dmlcpu") == _HEADER["dmlcpu"]:
                of_it = shown(first.get("version"))
                what = f"a manifest of version {of_it}; this release has version {_HEADER['version']}"
            raise ManifestError(f"{self.path} is {what}; allowed: another file, by --manifest")
        done: set[str] = set()
        for line in file:
            record = _loaded(line)
            if not isinstance(record, dict) or not isinstance(id_ := record.get("id"), str):  # torn, or not of a run
                continue
            if record.get("outcome") != STARTED:
                self.records[id_] = line
                done.add(id_) if record.get("outcome") == DONE else done.discard(id_)
            elif id_ in done:
                del self.records[id_]
                done.discard(id_)

    def begin(self, ids: Iterable[str]) -> None:
        """Begin a run of these jobs: record that done ones are started. Outcomes are on the disk within a second."""
        if self.lines is None:
            self._open_locked()
        assert self.lines is not None
        if os.fstat(self.lines.file).st_size != self._size:  # another run has begun since this one read the file
            self.close()
            raise ManifestError(f"{self.path} is in use by another run")
        started = [id_ for id_ in ids if self.records.get(id_, {}).get("outcome") == DONE]
        header = [] if self._size else [_HEADER]
        self.lines.append(*header, *({"id": id_, "outcome": STARTED} for id_ in started))
        if started:
            self.lines.sync()
            if self.lines.error:
                raise self.lines.error
        if header:
            sync_folder(os.path.dirname(os.path.abspath(self.path)))
        self.lines.keep_synced()
        self.records = Records()  # they take memory, and are not needed any more

    def record(self, record: Record) -> None:
        """Record a job's outcome."""
        assert self.lines is not None
        self.lines.append({**record, "place": os.fstat(self.lines.file).st_ino})

    def close(self) -> None:
        """Bring the file to the disk, close and unlock it."""
        if self.lines:
            self.lines.end()
            if fcntl is not None:  # a process that was forked meanwhile also has the file open
                with contextlib.suppress(OSError):  # of a file system without locks
                    fcntl.flock(self.lines.file, fcntl.LOCK_UN)
            self.lines.close()
            self.lines = None


def _loaded(line: bytes) -> Any:
    """Return what a line holds; None if it is torn."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
