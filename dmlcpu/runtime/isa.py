"""Which instruction sets kernels may use: those that Numba compiles for, up to the bound DMLCPU_ISA.

Compiling an instruction that the target lacks kills the process (LLVM ERROR, SIGABRT). So features are looked up before
anything is compiled.
"""

import ctypes
import functools
import logging
import os
import sys
from collections.abc import Iterable
from enum import Enum

_log = logging.getLogger("dmlcpu")

_X86, _ARM = "x86_64", "aarch64"
_AVX2 = "avx2 fma"
_AVX512VNNI = f"{_AVX2} avx512f avx512bw avx512vl avx512dq avx512vnni"


class Isa(Enum):
    """Instruction sets: architecture, rank, and lists of LLVM's feature names; a target needs one of the lists."""

    GENERIC = "", 0, ""
    AVX2 = _X86, 1, _AVX2
    AVXVNNI = _X86, 2, f"{_AVX2} avxvnni", f"{_AVX2} avx512vl avx512vnni"  # vpdpbusd of 256 bits, in either encoding
    AVX512VNNI = _X86, 3, _AVX512VNNI
    AMX = _X86, 4, f"{_AVX512VNNI} amx-tile amx-int8"
    DOTPROD = _ARM, 1, "neon dotprod"
    I8MM = _ARM, 2, "neon i8mm"

    def __init__(self, architecture: str, rank: int, *needs: str) -> None:
        self.architecture = architecture
        self.rank = rank
        self.needs = [frozenset([*filter(None, [architecture]), *features.split()]) for features in needs]

    def is_within(self, bound: "Isa") -> bool:
        """Return whether a bound allows this one. GENERIC is within every bound."""
        return self is Isa.GENERIC or (self.architecture == bound.architecture and self.rank <= bound.rank)


def highest(isas: Iterable[Isa]) -> Isa:
    """Return the one of highest rank."""
    return max(isas, key=lambda isa: isa.rank)


@functools.cache
def detected() -> frozenset[Isa]:
    """Return the sets that this machine, its operating system and Numba's target can run."""
    return _runnable(Isa)


@functools.cache
def allowed() -> frozenset[Isa]:
    """Return the sets that the machine can run and DMLCPU_ISA allows."""
    text = os.environ.get("DMLCPU_ISA", "")
    if not text:
        return detected()
    try:
        bound = Isa[text.upper()]
    except KeyError:
        names = ", ".join(isa.name.lower() for isa in Isa)
        raise ValueError(f"DMLCPU_ISA is {text!r}; allowed: {names}") from None
    if bound.architecture not in ("", *target_features()):
        _log.debug("DMLCPU_ISA is %s, which is a bound for %s; using GENERIC", text, bound.architecture)
    return _runnable(isa for isa in Isa if isa.is_within(bound))  # AMX is requested only if the bound allows it


def require(isa: Isa) -> None:
    """Raise RuntimeError if Numba's target lacks features of this instruction set."""
    missing = _missing(isa)
    if missing:
        raise RuntimeError(f"a kernel for {isa.name} cannot be compiled for this target, which lacks {missing}")


@functools.cache
def target_features() -> frozenset[str]:
    """Return the architecture and features Numba compiles for (it honors NUMBA_CPU_NAME and NUMBA_CPU_FEATURES)."""
    from dmlcpu.runtime.uninterrupted import uninterrupted

    features: frozenset[str] = uninterrupted(_target_features)
    return features


def _target_features() -> frozenset[str]:
    from numba.core.registry import cpu_target

    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    architecture = triple.partition("-")[0].replace("arm64", _ARM)  # Apple's name
    named = {name[1:] for name in features.split(",") if name.startswith("+")}
    implied = _dot_products(triple, cpu, features) if architecture == _ARM else frozenset()
    return frozenset({architecture, *named, *implied})


# LLVM's list of an ARM processor's features leaves these out, though LLVM uses them for processors that it knows by
# name. So it compiles a dot product: how bytes of the left-hand side are widened, and the instruction to look for.
_DOT_PRODUCTS = {"dotprod": ("sext", "sdot"), "i8mm": ("zext", "usdot")}
_DOT_PRODUCT = """
define i32 @dot(<16 x i8> %a, <16 x i8> %b) {{
  %wide_a = {widen} <16 x i8> %a to <16 x i32>
  %wide_b = sext <16 x i8> %b to <16 x i32>
  %products = mul <16 x i32> %wide_a, %wide_b
  %sum = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %products)
  ret i32 %sum
}}
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
"""


def _dot_products(triple: str, cpu: str, features: str) -> frozenset[str]:
    """Return which of `_DOT_PRODUCTS` LLVM compiles for."""
    from llvmlite import binding

    machine = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    found = set()
    for feature, (widen, instruction) in _DOT_PRODUCTS.items():
        assembly = machine.emit_assembly(binding.parse_assembly(_DOT_PRODUCT.format(widen=widen)))
        if instruction in (word.partition(".")[0] for word in assembly.split()):  # sdot, or sdot.4s on Apple's systems
            found.add(feature)
    return frozenset(found)


def _missing(isa: Isa) -> str:
    """Return which features of an instruction set the target lacks, in words; nothing if it lacks none."""
    missing = [needs - target_features() for needs in isa.needs]
    return " or ".join(sorted(", ".join(sorted(features)) for features in missing)) if all(missing) else ""


def _runnable(isas: Iterable[Isa]) -> frozenset[Isa]:
    """Return the sets that the target and the operating system can run."""
    runs = {isa for isa in isas if not _missing(isa)}
    if Isa.AMX in runs and not _request_amx():
        runs.remove(Isa.AMX)
        _log.debug("AMX: the operating system does not grant the tile registers; using %s", highest(runs).name)
    return frozenset(runs)


_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18
_SYS_ARCH_PRCTL = 158


@functools.cache
def _request_amx() -> bool:
    """Ask Linux for the use of AMX tiles in this process; threads and children inherit it."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)
