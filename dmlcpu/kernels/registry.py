"""The table of kernels: one line each. Dispatch, tests and benchmarks read it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dmlcpu.kernels.gemm import pack, skinny
from dmlcpu.kernels.gemm.epilogue import REQUANTIZE, SUMS, Epilogue
from dmlcpu.kernels.gemm.microkernels import amx
from dmlcpu.kernels.gemm.microkernels.arm64 import DOTPROD, I8MM
from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR, Microkernel
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK
from dmlcpu.kernels.gemm.microkernels.x86 import AVX2, AVX512VNNI, AVXVNNI
from dmlcpu.kernels.gemm.product import make_amx_product, make_product
from dmlcpu.kernels.gemm.skinny import make_skinny
from dmlcpu.kernels.scatter_nd import apply, owned, partition, validate
from dmlcpu.kernels.top_k import (
    lockstep,
    select_sort,
    split,
    strided_filter,
    strided_insert,
    strided_tournament,
    tournament,
)
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.kernel import Kernel

ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Product:
    """What a kernel of a product works with."""

    mr: int  # rows of its tallest tile of accumulators
    nr: int  # columns of it
    rhs_layouts: tuple[str, ...]  # of the right-hand sides it takes: packed ones, or ROWS, as they are in memory
    rate: int  # products in a nanosecond on one thread, within a factor of 2
    microkernel: Microkernel | None = None  # of a vector unit; None: the tile registers have their own
    wraps: bool = False  # of an int32 y it stores sums modulo 2**32
    is_skinny: bool = False  # for few rows: work is cut by columns alone, and each task reads all of the left-hand side


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: where it is used, what it needs, and how large its workspace is.

    Kernels with the same operator and stage are alternatives that give the same bits; the operator's plan chooses.
    """

    operator: str
    stage: str
    name: str  # the kernel's own, written out so that a search finds it here
    isa: Isa
    kernel: Kernel
    workspace: Callable[..., tuple[int, ...]] | None = None
    supports: Callable[[Any], bool] | None = None  # of alternatives with limits: whether they can do a Problem
    product: Product | None = None
    # Of top_k's alternatives: nanoseconds on one thread for an element of 4 bytes, and for a winner. Together they tell
    # within a factor of 2 what a sequence takes (Zen 4).
    cost: tuple[float, float] | None = None


def _vectors(operator: str, name: str, microkernel: Microkernel, epilogue: Epilogue) -> Entry:
    product = Product(MR, NR, (pack.LAYOUT, ROWS), microkernel.rate, microkernel, epilogue.wraps)
    return Entry(operator, "dot", name, microkernel.isa, make_product(microkernel, epilogue), product=product)


def _tiles(operator: str, name: str, epilogue: Epilogue) -> Entry:
    product = Product(amx.MR, NR, (pack.LAYOUT, ROWS), amx.RATE, wraps=epilogue.wraps)
    return Entry(operator, "dot", name, Isa.AMX, make_amx_product(epilogue), product=product)


def _skinny(operator: str, name: str, microkernel: Microkernel, epilogue: Epilogue) -> Entry:
    product = Product(skinny.MOST_ROWS, BLOCK, (ROWS,), microkernel.rate, microkernel, epilogue.wraps, is_skinny=True)
    kernel = make_skinny(microkernel, epilogue)
    return Entry(operator, "dot", name, microkernel.isa, kernel, supports=skinny.supports, product=product)


# fmt: off
KERNELS = (
    Entry("top_k", "select", "lockstep", Isa.GENERIC, lockstep.lockstep,
          workspace=lockstep.workspace, supports=lockstep.supports, cost=(0.5, 8)),
    Entry("top_k", "select", "tournament", Isa.GENERIC, tournament.tournament,
          workspace=tournament.workspace, supports=tournament.supports, cost=(0.2, 45)),
    Entry("top_k", "select", "split", Isa.GENERIC, split.split,
          workspace=tournament.workspace, supports=tournament.supports, cost=(0.2, 45)),
    Entry("top_k", "merge", "merge", Isa.GENERIC, split.merge),
    Entry("top_k", "select", "strided_insert", Isa.GENERIC, strided_insert.strided_insert,
          workspace=strided_insert.workspace, supports=strided_insert.supports, cost=(0.6, 2)),
    Entry("top_k", "select", "strided_tournament", Isa.GENERIC, strided_tournament.strided_tournament,
          workspace=strided_tournament.workspace, supports=strided_tournament.supports, cost=(1, 120)),
    Entry("top_k", "select", "select_sort", Isa.GENERIC, select_sort.select_sort,
          workspace=select_sort.workspace, cost=(2, 10)),
    Entry("top_k", "filter", "strided_filter", Isa.GENERIC, strided_filter.strided_filter),
    Entry("scatter_nd", "validate", "validate", Isa.GENERIC, validate.validate),
    Entry("scatter_nd", "copy", "copy", Isa.GENERIC, owned.copy),
    Entry("scatter_nd", "apply", "apply", Isa.GENERIC, apply.apply),
    Entry("scatter_nd", "partition", "partition", Isa.GENERIC, partition.partition),
    Entry("scatter_nd", "apply_buckets", "apply_buckets", Isa.GENERIC, partition.apply_buckets),
    Entry("quantized_matmul", "pack", "pack", Isa.GENERIC, pack.pack),
    _vectors("quantized_matmul", "dot_u8s8_4x8x4_generic", GENERIC, REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_4x16x4_avx2", AVX2, REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_6x16x4_avxvnni", AVXVNNI, REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_12x32x4_avx512vnni", AVX512VNNI, REQUANTIZE),
    _tiles("quantized_matmul", "dot_u8s8_32x32x64_amx", REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_4x16x4_dotprod", DOTPROD, REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_6x16x4_i8mm", I8MM, REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_16x16_generic", GENERIC, REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_32x16_avx2", AVX2, REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_32x16_avxvnni", AVXVNNI, REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_64x16_avx512vnni", AVX512VNNI, REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_16x16_dotprod", DOTPROD, REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_16x16_i8mm", I8MM, REQUANTIZE),
    _vectors("matmul_integer", "dot_u8s8_s32_4x8x4_generic", GENERIC, SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_4x16x4_avx2", AVX2, SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_6x16x4_avxvnni", AVXVNNI, SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_12x32x4_avx512vnni", AVX512VNNI, SUMS),
    _tiles("matmul_integer", "dot_u8s8_s32_32x32x64_amx", SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_4x16x4_dotprod", DOTPROD, SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_6x16x4_i8mm", I8MM, SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_16x16_generic", GENERIC, SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_32x16_avx2", AVX2, SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_32x16_avxvnni", AVXVNNI, SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_64x16_avx512vnni", AVX512VNNI, SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_16x16_dotprod", DOTPROD, SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_16x16_i8mm", I8MM, SUMS),
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
    raise LookupError(f"no kernel {name or 'at all'} for {operator} {stage} on this machine")
