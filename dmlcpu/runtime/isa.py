"""Which instruction sets the kernels may use: what Numba compiles for, and no more than DMLCPU_ISA allows."""

import ctypes
import functools
import logging
import os
import platform
import sys
from enum import IntEnum

_log = logging.getLogger("dmlcpu")


class Isa(IntEnum):
    """Instruction sets that kernels are written for, each including the ones before it."""

    GENERIC = 0
    AVX2 = 1
    AVXVNNI = 2
    AVX512VNNI = 3
    AMX = 4


# LLVM's names of what a kernel of each level needs; of several sets one is enough. Compiling an intrinsic that the
# target lacks kills the process (LLVM ERROR, SIGABRT), so these are looked up before anything is compiled.
_NEEDED = {
    Isa.AVX2: [{"avx2", "fma"}],
    Isa.AVXVNNI: [{"avxvnni"}, {"avx512vl", "avx512vnni"}],  # vpdpbusd of 256 bits, in either encoding
    Isa.AVX512VNNI: [{"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}],
    Isa.AMX: [{"amx-tile", "amx-int8"}],
}

_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18
_SYS_ARCH_PRCTL = 158


@functools.cache
def target_features() -> frozenset[str]:
    """Return the CPU features Numba compiles for (it honours NUMBA_CPU_NAME and NUMBA_CPU_FEATURES)."""
    from numba.core.registry import cpu_target

    _triple, _cpu, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(name[1:] for name in features.split(",") if name.startswith("+"))


@functools.cache
def detected() -> Isa:
    """Return the highest level this machine, its operating system and Numba's target can run."""
    return _highest_up_to(Isa.AMX)


@functools.cache
def allowed() -> Isa:
    """Return the level kernels are picked for: the highest that the machine can run and DMLCPU_ISA allows."""
    text = os.environ.get("DMLCPU_ISA", "")
    if not text:
        return detected()
    try:
        bound = Isa[text.upper()]
    except KeyError:
        names = ", ".join(isa.name.lower() for isa in Isa)
        raise ValueError(f"DMLCPU_ISA is {text!r}; allowed: {names}") from None
    return _highest_up_to(bound)  # the tile registers are asked for only where AMX may be used


def require(isa: Isa) -> None:
    """Refuse to go on where Numba's target lacks what kernels of this level need: compiling would kill the process."""
    for level, needed in _NEEDED.items():
        if level <= isa and not any(features <= target_features() for features in needed):
            missing = " or ".join(sorted(", ".join(sorted(features - target_features())) for features in needed))
            raise RuntimeError(f"a kernel for {isa.name} cannot be compiled for this target, which lacks {missing}")


def _highest_up_to(bound: Isa) -> Isa:
    level = Isa.GENERIC
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return level
    for candidate, needed in _NEEDED.items():
        if candidate > bound or not any(features <= target_features() for features in needed):
            break
        if candidate is Isa.AMX and not _request_amx():
            _log.debug("AMX: the operating system does not grant the tile registers; using %s", level.name)
            break
        level = candidate
    return level


def _request_amx() -> bool:
    """Ask Linux once for the use of AMX tiles in this process; threads and children inherit it."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)
