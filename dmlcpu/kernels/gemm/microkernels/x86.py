"""The microkernels of the vector units of x86-64."""

from typing import Any

from llvmlite import ir

from dmlcpu.kernels.gemm.microkernels.generic import multiply_widened, widen_signed, widen_unsigned
from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel, as_it_is
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, HALF, constant, vector
from dmlcpu.runtime.isa import Isa


def _vpdpbusd(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    """Multiply and add in one instruction, unsigned bytes by signed ones."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * acc.type.count}"  # LLVM's name for both encodings, EVEX and VEX
    return _call(builder, name, acc.type, [acc, *lhs, *rhs])


def _multiply_bytes(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    """Multiply bytes, add pairs in 16 bits, which saturates, and pairs of pairs in 32 bits."""
    lane_bytes, halves = vector(BYTE, 4 * acc.type.count), vector(HALF, 2 * acc.type.count)
    operands = [builder.bitcast(words, lane_bytes) for words in (*lhs, *rhs)]
    pairs = _call(builder, "llvm.x86.avx2.pmadd.ub.sw", halves, operands)
    return _add_pairs(builder, acc, pairs, constant(halves, 1))


def _multiply_int16(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    """Multiply words of two int16."""
    halves = vector(HALF, 2 * acc.type.count)
    return _add_pairs(builder, acc, *[builder.bitcast(words, halves) for words in (*lhs, *rhs)])


def _add_pairs(builder: Any, acc: Any, one: Any, other: Any) -> Any:
    return builder.add(acc, _call(builder, "llvm.x86.avx2.pmadd.wd", acc.type, [one, other]))


def _call(builder: Any, name: str, kind: Any, operands: list[Any]) -> Any:
    function = ir.FunctionType(kind, [operand.type for operand in operands])
    return builder.call(builder.module.declare_intrinsic(name, (), function), operands)


# Products in a cycle, of 32 possible (Zen 4): AVX2 31, AVX2_INT16 24, AVX2_WIDENING 21. LLVM compiles larger blocks, or
# int16 in blocks of another shape, with spills. gemm/forms.py says when each is taken.
AVX2 = Microkernel(Isa.AVX2, as_it_is, as_it_is, _multiply_bytes, registers=16, lanes=8, vectors=2, rows=4)
AVX2_INT16 = Microkernel(Isa.AVX2, as_it_is, as_it_is, _multiply_int16, registers=16, lanes=8, vectors=1, rows=12)
AVX2_WIDENING = Microkernel(
    Isa.AVX2, widen_unsigned, widen_signed, multiply_widened, registers=16, lanes=8, vectors=2, rows=4
)
AVXVNNI = Microkernel(Isa.AVXVNNI, as_it_is, as_it_is, _vpdpbusd, registers=16, lanes=8, vectors=2, rows=6)
AVX512VNNI = Microkernel(Isa.AVX512VNNI, as_it_is, as_it_is, _vpdpbusd, registers=32, lanes=16, vectors=2, rows=12)
