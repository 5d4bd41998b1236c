"""The table of kernels: one line each. Dispatch, tests and benchmarks read it, and nothing else lists kernels."""

from collections.abc import Callable
from dataclasses import dataclass

from dmlcpu.kernels.gemm import pack, product, skinny
from dmlcpu.kernels.gemm.microkernels import amx, arm64, x86
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR, Microkernel
from dmlcpu.kernels.gemm.product import make_product
from dmlcpu.kernels.gemm.skinny import make_skinny
from dmlcpu.kernels.scatter_nd import apply, buckets, resolve
from dmlcpu.kernels.top_k import columns, lockstep, select_sort, split, sweep, tournament
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Product:
    """What a kernel of a product works with."""

    mr: int  # rows of its tallest tile of accumulators
    nr: int  # columns of it
    rhs_layout: str  # what it reads the right-hand side as: the name of a packed layout, or "rows": as it is in memory
    rate: int  # products in a nanosecond on one thread, within a factor of 2
    microkernel: Microkernel | None = None  # of a vector unit; None: the tile registers have their own
    is_skinny: bool = False  # for few rows: work is cut by columns alone, and each task reads all of the left-hand side


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: where it is used, what it needs, and how large its workspace is.

    Kernels with the same operator and stage are alternatives that give the same bits; the operator's plan chooses.
    """

    operator: str
    stage: str
    name: str
    isa: Isa
    kernel: Kernel
    workspace: Callable[..., tuple[int, ...]] | None = None
    supports: Callable[..., bool] | None = None  # of alternatives with limits: what they can do
    product: Product | None = None


def _vectors(microkernel: Microkernel) -> Product:
    return Product(mr=MR, nr=NR, rhs_layout=pack.LAYOUT, rate=microkernel.rate, microkernel=microkernel)


def _skinny(microkernel: Microkernel) -> Product:
    return Product(
        mr=skinny.MOST_ROWS,
        nr=skinny.BLOCK,
        rhs_layout="rows",
        rate=microkernel.rate,
        microkernel=microkernel,
        is_skinny=True,
    )


_TILES = Product(mr=amx.MR, nr=NR, rhs_layout=pack.LAYOUT, rate=amx.RATE)

# fmt: off
KERNELS = (
    Entry("top_k", "select", "lockstep", Isa.GENERIC, lockstep.lockstep,
          workspace=lockstep.scratch, supports=lockstep.takes),
    Entry("top_k", "select", "tournament", Isa.GENERIC, tournament.tournament,
          workspace=tournament.scratch, supports=tournament.takes),
    Entry("top_k", "select", "split", Isa.GENERIC, split.split, workspace=split.scratch, supports=split.takes),
    Entry("top_k", "merge", "merge", Isa.GENERIC, split.merge),
    Entry("top_k", "select", "sweep", Isa.GENERIC, sweep.sweep, workspace=sweep.scratch, supports=sweep.takes),
    Entry("top_k", "select", "columns", Isa.GENERIC, columns.columns,
          workspace=columns.scratch, supports=columns.takes),
    Entry("top_k", "select", "select_sort", Isa.GENERIC, select_sort.select_sort, workspace=select_sort.scratch),
    Entry("scatter_nd", "survey", "survey", Isa.GENERIC, resolve.survey),
    Entry("scatter_nd", "copy", "copy", Isa.GENERIC, apply.copy),
    Entry("scatter_nd", "apply", "apply", Isa.GENERIC, apply.apply),
    Entry("scatter_nd", "partition", "partition", Isa.GENERIC, buckets.partition),
    Entry("scatter_nd", "drain", "drain", Isa.GENERIC, buckets.drain),
    Entry("quantized_matmul", "pack", "pack", Isa.GENERIC, pack.pack),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x8x4_generic", Isa.GENERIC, make_product(GENERIC),
          product=_vectors(GENERIC)),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x16x4_avx2", Isa.AVX2, make_product(x86.AVX2),
          product=_vectors(x86.AVX2)),
    Entry("quantized_matmul", "dot", "dot_u8s8_6x16x4_avxvnni", Isa.AVXVNNI, make_product(x86.AVXVNNI),
          product=_vectors(x86.AVXVNNI)),
    Entry("quantized_matmul", "dot", "dot_u8s8_12x32x4_avx512vnni", Isa.AVX512VNNI, make_product(x86.AVX512VNNI),
          product=_vectors(x86.AVX512VNNI)),
    Entry("quantized_matmul", "dot", "dot_u8s8_32x32x64_amx", Isa.AMX, product.amx, product=_TILES),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x16x4_dotprod", Isa.DOTPROD, make_product(arm64.DOTPROD),
          product=_vectors(arm64.DOTPROD)),
    Entry("quantized_matmul", "dot", "dot_u8s8_6x16x4_i8mm", Isa.I8MM, make_product(arm64.I8MM),
          product=_vectors(arm64.I8MM)),
    Entry("quantized_matmul", "dot", "skinny_u8s8_16x16_generic", Isa.GENERIC, make_skinny(GENERIC),
          supports=skinny.supports, product=_skinny(GENERIC)),
    Entry("quantized_matmul", "dot", "skinny_u8s8_32x16_avx2", Isa.AVX2, make_skinny(x86.AVX2),
          supports=skinny.supports, product=_skinny(x86.AVX2)),
    Entry("quantized_matmul", "dot", "skinny_u8s8_32x16_avxvnni", Isa.AVXVNNI, make_skinny(x86.AVXVNNI),
          supports=skinny.supports, product=_skinny(x86.AVXVNNI)),
    Entry("quantized_matmul", "dot", "skinny_u8s8_64x16_avx512vnni", Isa.AVX512VNNI, make_skinny(x86.AVX512VNNI),
          supports=skinny.supports, product=_skinny(x86.AVX512VNNI)),
    Entry("quantized_matmul", "dot", "skinny_u8s8_16x16_dotprod", Isa.DOTPROD, make_skinny(arm64.DOTPROD),
          supports=skinny.supports, product=_skinny(arm64.DOTPROD)),
    Entry("quantized_matmul", "dot", "skinny_u8s8_16x16_i8mm", Isa.I8MM, make_skinny(arm64.I8MM),
          supports=skinny.supports, product=_skinny(arm64.I8MM)),
)
# fmt: on


def available(operator: str | None = None, stage: str | None = None) -> list[Entry]:
    """Return the kernels this machine can run and DMLCPU_ISA allows, the highest instruction set first."""
    entries = [
        entry
        for entry in KERNELS
        if entry.isa in allowed() and operator in (None, entry.operator) and stage in (None, entry.stage)
    ]
    return sorted(entries, key=lambda entry: -entry.isa.rank)


def find(operator: str, stage: str, name: str | None = None) -> Entry:
    """Return the available kernel of that name, or without one the first."""
    for entry in available(operator, stage):
        if name in (None, entry.name):
            return entry
    raise LookupError(f"no kernel {name} for {operator} {stage} on this machine")
