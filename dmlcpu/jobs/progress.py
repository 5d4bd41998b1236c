"""Progress of a run on standard error: a bar on a terminal, and lines."""

import contextlib
import io
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from dmlcpu.common.imports import extra
from dmlcpu.jobs.limits import size

T = TypeVar("T")

INTERVAL = 30.0  # seconds between two lines where there is no bar

COMPILING = "compiling kernels that the cache does not have, which may take a minute"


class Progress:
    """tqdm's bar on a terminal; elsewhere a line at most every INTERVAL seconds says how far the run is."""

    def __init__(self, *, shown: bool = True) -> None:
        self._tqdm = extra("tqdm").tqdm if shown else None
        closed = not shown or sys.stderr is None or sys.stderr.closed  # None: it was closed when the process started
        self._stream: Any = _Heedless(io.StringIO() if closed else sys.stderr)
        self._looks = {"file": self._stream, "leave": False, "disable": None}  # None: no bar where it is no terminal
        self._bar: Any = None
        self._jobs = self._count = self._failed = 0
        self._ahead = 0  # bytes of jobs that are not finished
        self._bytes = self._total = 0  # read, and to read
        self._said = 0.0  # when the last line about the progress was due
        self._counting = threading.Lock()

    def say(self, line: str) -> None:
        """Print a line."""
        if self._bar is None:
            print(f"dmlcpu: {line}", file=self._stream, flush=True)
        else:
            self._bar.write(f"dmlcpu: {line}", file=self._stream)

    def checking(self, jobs: Iterable[T], count: int) -> Iterator[T]:
        """Return jobs that are checked while they are taken, under a bar if that takes long."""
        if self._tqdm is None:
            return iter(jobs)
        return iter(self._tqdm(jobs, "checking", count, delay=0.5, unit=" jobs", **self._looks))

    def start(self, jobs: int, nbytes: int, failed: int) -> None:
        """Begin with some jobs, and the bytes that they read; others have failed already."""
        if self._tqdm is None:
            return
        self._jobs, self._failed = jobs, failed
        self._total, self._said = nbytes, time.monotonic()
        total = nbytes or None  # not known of jobs that are checked as they run
        units = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, "dynamic_ncols": True}
        self._bar = self._tqdm(desc=self._counts(), total=total, **units, **self._looks)

    def read(self, nbytes: int) -> None:
        """Count bytes of a job that is not finished; any thread may call it."""
        with self._counting:
            if self._bar is not None:  # threads of an interrupted run may come late
                self._ahead += nbytes
                self._advance(nbytes)

    def finished(self, nbytes: int, *, failed: bool) -> None:
        """Count a job, and those of its bytes that `read` has not counted."""
        with self._counting:
            if self._bar is None:
                return
            self._count += 1
            self._failed += failed
            self._bar.set_description(self._counts(), refresh=False)
            counted = min(nbytes, self._ahead)
            self._ahead -= counted
            self._advance(nbytes - counted)

    def _advance(self, nbytes: int) -> None:
        """Count bytes; say how far the run is if that is due, and there is no bar."""
        self._bytes += nbytes
        self._bar.update(nbytes)
        if self._bar.disable and time.monotonic() - self._said >= INTERVAL:
            self._said = time.monotonic()
            of_all = f" of {size(self._total)}" if self._total else ""
            self.say(f"{self._counts()}, {size(self._bytes)}{of_all} read")

    def _counts(self) -> str:
        failures = f", {self._failed} failed" if self._failed else ""
        return f"{self._count} of {self._jobs} jobs{failures}"

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Heedless:
    """A stream whose errors are ignored: the run goes on when its terminal is closed or its disk is full."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the latter is what closed streams raise
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
