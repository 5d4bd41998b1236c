"""Limits of processes, threads and memory; and how numbers of bytes are read and shown."""

import re
from typing import NamedTuple

from dmlcpu.errors import DmlError
from dmlcpu.runtime.quota import memory_limit

_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_LEAST_MEMORY = 1 << 20
_ELSEWHERE = 1 << 30  # bytes of a job on a cluster, whose machines are not known


class Limits(NamedTuple):
    """What a run may use."""

    workers: int
    threads: int  # of each worker
    memory: int  # bytes of each worker


def limits_of(workers: int | None, threads: int | None, max_memory: int | str | None, scheduler: str | None) -> Limits:
    """Return what a run may use; by default one worker with a thread for each core, and half of the memory."""
    from dmlcpu.runtime.threads import get_num_threads

    workers = at_least(1, "workers", 1 if workers is None else workers)
    if threads is None:  # a cluster runs as many jobs at a time as it has threads
        threads = 1 if scheduler else max(1, get_num_threads() // workers)
    threads = at_least(1, "threads", threads)
    if scheduler:
        return Limits(workers, threads, _ELSEWHERE if max_memory is None else _bytes(max_memory))
    memory = memory_limit() // 2 if max_memory is None else _bytes(max_memory)
    return Limits(workers, threads, memory // workers)


def address_of(scheduler: str | None) -> str | None:
    """Return the address of a cluster; None: jobs run on this machine, also for "local".

    A local Dask cluster would listen on a port through which every user of the machine could run code in it.
    """
    return None if scheduler == "local" else scheduler


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
