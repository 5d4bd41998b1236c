"""The manifest: what became of each job, so that the same command again does only what is not done."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmlcpu.batch.jobs.job import Job
from dmlcpu.batch.jobs.lines import Lines, as_line
from dmlcpu.batch.jobs.operations import version_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HEADER = {"dmlcpu": "manifest", "version": 1}
DONE, FAILED = "done", "failed"

Record = dict[str, Any]


def record_of(job: Job, inputs: Mapping[str, Any], outcome: str, seconds: float, **more: Any) -> Record:
    """Return what the manifest says of a job, besides its id."""
    return {
        "job": job.description,
        "version": version_of(job.op),
        "inputs": inputs,
        "outcome": outcome,
        "seconds": round(seconds, 6),
        **more,
    }


class ManifestError(ValueError):
    """A manifest cannot be used: it is none, or another run is using it."""


class Manifest:
    """The recorded outcomes of jobs, one for each id.

    That a job is done is taken out before it is run again: so a run that is killed leaves no such line of what it had
    not finished. That it has failed stays until the next outcome, or else a run that was ended would hide it from
    --retry-failed. When a run ends, each job has one line; after one that is killed, the last one counts.
    """

    def __init__(self, path: Path, *, lock: bool = True) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        self._lines: Lines | None = None
        self._outdated = False  # whether the file has lines that others have replaced
        self._file = Path(os.path.realpath(path)) if path.is_symlink() else path  # a link stays one
        if self._file.exists() and not self._file.is_file():  # a device, which must not be replaced, or a pipe
            raise ManifestError(f"{path} is no regular file; allowed: a file, by --manifest")
        self._part = self._file.with_name(f".{self._file.name}.part")
        self._lock = _Lock(self._file.with_name(f".{self._file.name}.lock")) if lock else None
        if self._lock and not self._lock.take():
            raise ManifestError(f"{path} is in use by another run")
        try:
            if lock:
                self._part.unlink(missing_ok=True)
            self._read(self._file.read_bytes() if self._file.exists() else b"")
        except BaseException:
            self.close()
            raise

    def _read(self, content: bytes) -> None:
        header, *lines = content.splitlines() or [b""]
        if content and _loaded(header) != _HEADER:
            raise ManifestError(f"{self.path} is there and no manifest of dmlcpu; allowed: another file, by --manifest")
        for line in lines:
            record = _loaded(line)
            if isinstance(record, dict) and isinstance(record.get("id"), str):  # others are torn, or somebody's own
                self.records[record["id"]] = record

    def begin(self, run_again: set[str]) -> None:
        """Take out that jobs are done which are run again, and write the rest; from now on outcomes are recorded."""
        self.records = {
            id_: record
            for id_, record in self.records.items()
            if id_ not in run_again or record.get("outcome") == FAILED
        }
        self._write_anew()
        self._lines = Lines(self._file)

    def _write_anew(self) -> None:
        """Write the records, each once."""
        with self._part.open("wb") as file:
            for record in (_HEADER, *self.records.values()):
                file.write(as_line(record))
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._part, self._file)

    def record(self, id_: str, record: Mapping[str, Any]) -> None:
        """Record a job's outcome."""
        assert self._lines is not None
        self._outdated |= id_ in self.records
        self.records[id_] = {"id": id_, **record}
        self._lines.append(self.records[id_])

    def sync(self) -> None:
        """Bring what is recorded to the disk; if that fails, `error` says why."""
        if self._lines:
            self._lines.sync()

    @property
    def error(self) -> OSError | None:
        """Why outcomes are not in the file, if they are not."""
        return self._lines.error if self._lines else None

    def close(self) -> None:
        """Bring the manifest to the disk, and let others use it."""
        if self._lines:
            self._lines.close()
            if self._outdated or not self._file.exists():  # somebody has removed it
                with contextlib.suppress(OSError):  # no harm: the last line of a job counts
                    self._write_anew()
        if self._lock:
            self._lock.release()


class _Lock:
    """A file that one process at a time has locked; the system unlocks it when the process ends, however it does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Return whether the lock was free."""
        if fcntl is None:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(self._file).st_ino == os.stat(self._path).st_ino:
                    return True
            except BlockingIOError:
                os.close(self._file)
                self._file = None
                return False
            except FileNotFoundError:
                pass
            os.close(self._file)  # whoever had it has removed it meanwhile

    def release(self) -> None:
        """Remove the file and unlock it."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def _loaded(line: bytes) -> Any:
    """Return what a line holds; None if it is torn."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
