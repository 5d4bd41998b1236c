"""The settings of a run: its limits and other options; and how numbers of bytes are read and shown."""

import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from dmlcpu.errors import DmlError
from dmlcpu.jobs.entries import PathLike, of_this_machine
from dmlcpu.runtime.quota import memory_limit

_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_LEAST_MEMORY = 1 << 20
_ELSEWHERE = 1 << 30  # bytes of a job on a cluster, whose machines are not known


class Limits(NamedTuple):
    """What a run may use."""

    workers: int
    threads: int  # of each worker
    memory: int  # bytes of each worker


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `run_jobs`, where they are documented, checked when the record is made."""

    directory: PathLike | None = None
    manifest: PathLike | None = None
    log: PathLike | None = None
    workers: int | None = None
    threads: int | None = None
    max_memory: int | str | None = None
    scheduler: str | None = None
    executor: Any = None
    retries: int = 2
    timeout: float | None = None
    keep_going: bool = False
    check_as_you_go: bool = False
    max_failures: int | None = None
    force: bool = False
    retry_failed: bool = False
    content_hash: bool = False
    require_chunks: bool = False
    progress: bool = False
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        def refuse_both(one: str, other: str) -> NoReturn:
            raise DmlError("run_jobs", one, f"given together with {other}", "one of the two")

        if self.scheduler and self.executor is not None:
            refuse_both("executor", "scheduler")
        # A Dask cluster on this machine would listen on a port through which every user of it could run code.
        object.__setattr__(self, "scheduler", None if self.scheduler == "local" else self.scheduler)
        if self.max_failures is not None:
            at_least(1, "max_failures", self.max_failures)
        at_least(0, "retries", self.retries)
        if self.timeout is not None:
            if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float):
                raise TypeError(f"run_jobs: timeout is {self.timeout!r}; allowed: a number of seconds")
            if not 0 < self.timeout < math.inf:
                raise DmlError("run_jobs", "timeout", str(self.timeout), "more than 0 seconds")
            if self.scheduler or self.executor is not None:  # no timeout can end their workers
                refuse_both("timeout", "scheduler" if self.scheduler else "executor")
        if self.force and self.retry_failed:
            refuse_both("force", "retry_failed")
        object.__setattr__(self, "log", of_this_machine("log", self.log))
        object.__setattr__(self, "limits", self._limits())

    def _limits(self) -> Limits:
        """Return what a run may use; by default one worker with a thread for each core, and half of the memory."""
        from dmlcpu.runtime.threads import get_num_threads

        workers, threads = self.workers, self.threads
        if self.executor is not None and workers is None:
            workers = getattr(self.executor, "_max_workers", None) or getattr(self.executor, "num_workers", 1)
        workers = at_least(1, "workers", 1 if workers is None else workers)
        if threads is None:  # a cluster runs as many jobs at a time as it has threads
            threads = 1 if self.scheduler else max(1, get_num_threads() // workers)
        threads, given = at_least(1, "threads", threads), None if self.max_memory is None else _bytes(self.max_memory)
        if self.scheduler:
            return Limits(workers, threads, given or _ELSEWHERE)
        return Limits(workers, threads, (given or memory_limit() // 2) // workers)


def at_least(least: int, name: str, value: int) -> int:
    """Return a count, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"run_jobs: {name} is {value!r}; allowed: an integer of at least {least}")
    if value < least:
        raise DmlError("run_jobs", name, str(value), f"at least {least}")
    return value


def _bytes(value: int | str) -> int:
    """Return a number of bytes that may be written as 512M or 4 GiB; K, M, G and T are powers of 1,024."""
    match = _SIZE.fullmatch(str(value).strip())
    if not match or (nbytes := int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))) < _LEAST_MEMORY:
        raise DmlError("run_jobs", "max_memory", repr(value), "at least 1M, as in 512M or 4G")
    return nbytes


def size(nbytes: int) -> str:
    """Return a number of bytes with a unit."""
    value, units = float(nbytes), ["bytes", "KB", "MB", "GB", "TB", "PB", "EB"]
    while value >= 999.5 and len(units) > 1:  # three digits would round it to 1e+03
        value, units = value / 1024, units[1:]
    if units[0] == "bytes":
        return f"{nbytes} bytes"
    return f"{value:,.0f} {units[0]}" if value >= 999.5 else f"{value:.3g} {units[0]}"
