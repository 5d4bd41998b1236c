"""What would make calls faster on this machine, in sentences."""

import math
import os
from collections.abc import Iterator
from typing import NamedTuple

from dmlcpu.config import cache_folder
from dmlcpu.measure.limits import Limits, Reached
from dmlcpu.runtime import isa, quota, threads

# If N threads multiply less than this times N as fast as one, they share cores or other processes run.
_SCALING = 0.6
_POSSIBLE = 1.25  # of a limit: a cache may still hold parts of an operator's arrays


class Conditions(NamedTuple):
    """The conditions for kernels: environment variables and the machine's properties."""

    threads: int  # in use
    usable: int  # processors available to the process
    processors: int  # of the machine
    cpu_quota: float | None
    variables: dict[str, str]  # the environment variables that are set
    isa: str
    detected: str
    cache: str  # the folder, or "none" and the reason
    layer: str | None  # the threading layer's advice


_VARIABLES = ("DMLCPU_ISA", "DMLCPU_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
NO_COMPILATION = (
    "Compilation is switched off, so dmlcpu.reference computes all results, slowly: unset NUMBA_DISABLE_JIT."
)


def conditions() -> Conditions:
    """Return the conditions of this process."""
    processors = os.cpu_count() or 1
    return Conditions(
        threads=threads.get_num_threads(),
        usable=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else processors,
        processors=processors,
        cpu_quota=quota.cpu_quota(),
        variables={name: os.environ[name] for name in _VARIABLES if os.environ.get(name)},
        isa=isa.highest(isa.allowed()).name.lower(),
        detected=isa.highest(isa.detected()).name.lower(),
        cache=cache_folder(),
        layer=threads.layer().describe()["advice"],
    )


def advise(found: Conditions, limits: list[Limits], reached: list[Reached], compiled: int) -> list[str]:
    """Return the advice that applies; limits: of one thread and of all; compiled: the number of operators' kernels."""
    return [*_of_threads(found), *_of_rates(limits, reached), *_of_kernels(found, compiled)]


def _of_threads(found: Conditions) -> Iterator[str]:
    granted = min(found.usable, math.ceil(found.cpu_quota or found.usable))
    if found.usable < found.processors:
        yield f"The process may run on {found.usable} of {found.processors} processors (its affinity): let it use more."
    if found.cpu_quota is not None and found.cpu_quota < found.usable:
        yield (
            f"A control group grants the time of {found.cpu_quota:g} of {found.usable} processors: "
            "raise its quota (cpu.max), or the container's number of CPUs."
        )
    if found.threads != granted:
        names = ("DMLCPU_NUM_THREADS", "NUMBA_NUM_THREADS")
        setting = next((f"unset {name}" for name in names if name in found.variables), "call set_num_threads")
        used = "1 thread" if found.threads == 1 else f"{found.threads} threads"
        processors = "1 processor" if granted == 1 else f"{granted} processors"
        yield f"Operators use {used}, but the process has the time of {processors}: {setting}."
    if found.layer:
        yield f"Threads: {found.layer}."


def _of_rates(limits: list[Limits], reached: list[Reached]) -> Iterator[str]:
    one, most = limits[0], limits[-1]
    speedup = most.multiply / one.multiply if most.multiply and one.multiply else math.inf
    if speedup < _SCALING * most.threads:
        yield (
            f"{most.threads} threads multiply {speedup:.1f} times as fast as one: other processes keep the processors "
            "busy, or processors share a core. End those processes, or use fewer threads."
        )
    beyond = [each.operator for each in reached if (each.fraction or 0) > _POSSIBLE]
    if beyond:
        yield f"{', '.join(beyond)} exceeded the limit, so other processes disturbed the measurement: measure again."


def _of_kernels(found: Conditions, compiled: int) -> Iterator[str]:
    if found.isa != found.detected:
        yield f"DMLCPU_ISA allows {found.isa}, but the machine has {found.detected}: unset it."
    numba = [name for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if name in found.variables]
    if numba:
        yield f"{' and '.join(numba)} may hide instructions of the processor: unset them, Numba detects all."
    if found.cache.startswith("none"):
        yield (
            "No folder for compiled kernels can be written to, so each process compiles them: "
            "set NUMBA_CACHE_DIR to one that can."
        )
    elif compiled:
        yield (
            f"{compiled} kernels of operators had to be compiled, because the cache lacked them: "
            "run `dmlcpu warmup` once for all of them."
        )
