"""The microkernels of the vector units of x86-64."""

from typing import Any

from dmlcpu.kernels.gemm.microkernels import units
from dmlcpu.kernels.gemm.microkernels.generic import widen_signed, widen_unsigned
from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel, as_it_is
from dmlcpu.kernels.gemm.microkernels.pairs import add_bytes, add_halves, emit_pairs
from dmlcpu.kernels.gemm.microkernels.vectors import HALF, call, constant, vector


def _multiply_bytes(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    pairs = add_bytes(builder, *lhs, *rhs)
    return builder.add(acc, add_halves(builder, pairs, constant(pairs.type, 1)))


def _multiply_int16(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    halves = vector(HALF, 2 * acc.type.count)
    return builder.add(acc, add_halves(builder, *[builder.bitcast(words, halves) for words in (*lhs, *rhs)]))


def _multiply_widened(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    for a, b in zip(lhs, rhs, strict=True):
        acc = builder.add(acc, add_halves(builder, a, b))
    return acc


def _vpdpbusd(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    """Multiply unsigned bytes by signed ones and add, in one instruction."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * acc.type.count}"  # LLVM's name for both encodings, EVEX and VEX
    return call(builder, name, acc.type, [acc, *lhs, *rhs])


# Products in a cycle, of 32 possible (Zen 4): AVX2 31, AVX2_INT16 24, AVX2_WIDENING 21. LLVM spills registers of larger
# blocks, and of int16 in blocks of another shape. gemm/forms.py says when each is taken.
AVX2 = Microkernel(units.AVX2, as_it_is, as_it_is, _multiply_bytes, emit_pairs=emit_pairs)
AVX2_INT16 = Microkernel(units.AVX2._replace(vectors=1, rows=12), as_it_is, as_it_is, _multiply_int16)
AVX2_WIDENING = Microkernel(units.AVX2, widen_unsigned, widen_signed, _multiply_widened)
AVXVNNI = Microkernel(units.AVXVNNI, as_it_is, as_it_is, _vpdpbusd)
AVX512VNNI = Microkernel(units.AVX512VNNI, as_it_is, as_it_is, _vpdpbusd)
