"""The manifest: what became of each job, so that the same command again does only what is not done."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dmlcpu.batch.jobs.lines import Lines
from dmlcpu.common.wording import shown

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HEADER = {"dmlcpu": "manifest", "version": 1}
DONE, FAILED, STARTED = "done", "failed", "started"

Record = dict[str, Any]


class ManifestError(ValueError):
    """A manifest cannot be used: the file is something else, or another run uses it."""


class Manifest:
    """The recorded outcomes of jobs, in a file that is only appended to. The last line of each id counts.

    Before a job that is recorded as done runs again, a line says that it has started: if the run is killed, the job is
    not done. A job that has failed stays recorded as failed until its next outcome, so that --retry-failed finds it.

    The file is locked while it is open; the system unlocks it when the process ends, even by SIGKILL. `begin` creates a
    file that does not exist.
    """

    def __init__(self, path: Path, *, lock: bool = True) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        self.lines: Lines | None = None
        self._size = 0
        if path.exists() and not path.is_file():  # a device or a pipe
            raise ManifestError(f"{path} is no regular file; allowed: a file, by --manifest")
        if not path.exists():
            return
        if lock:
            self._open()
        try:
            content = path.read_bytes()
            self._size = len(content)
            self._read(content)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """Open the file, and lock it."""
        self.lines = Lines(self.path)
        try:
            if fcntl is not None:
                fcntl.flock(self.lines.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ManifestError(f"{self.path} is in use by another run") from None

    def _read(self, content: bytes) -> None:
        header, *lines = content.splitlines() or [b""]
        if content and (first := _loaded(header)) != _HEADER:
            what = "there and no manifest of dmlcpu"
            if isinstance(first, dict) and first.get("dmlcpu") == _HEADER["dmlcpu"]:
                of_it = shown(first.get("version"))
                what = f"a manifest of version {of_it}; this release has version {_HEADER['version']}"
            raise ManifestError(f"{self.path} is {what}; allowed: another file, by --manifest")
        for line in lines:
            record = _loaded(line)
            if not isinstance(record, dict) or not isinstance(record.get("id"), str):  # torn, or not written by a run
                continue
            if record.get("outcome") != STARTED:
                self.records[record["id"]] = record
            elif self.records.get(record["id"], {}).get("outcome") == DONE:
                del self.records[record["id"]]

    def begin(self, ids: Iterable[str]) -> None:
        """Begin a run of these jobs: record that the done ones are started. From now on outcomes are recorded."""
        if self.lines is None:
            self._open()
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
        for id_ in started:
            del self.records[id_]

    def record(self, record: Record) -> None:
        """Record a job's outcome."""
        assert self.lines is not None
        self.lines.append(record)

    def close(self) -> None:
        """Bring the file to the disk, close and unlock it."""
        if self.lines:
            self.lines.sync()
            if fcntl is not None:  # a process that was forked meanwhile has the file open, too
                fcntl.flock(self.lines.file, fcntl.LOCK_UN)
            self.lines.close()
            self.lines = None


def _loaded(line: bytes) -> Any:
    """Return what a line holds; None if it is torn."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
