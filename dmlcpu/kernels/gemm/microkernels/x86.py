"""The microkernels of the vector units of x86-64."""

from typing import Any

from dmlcpu.kernels.gemm.microkernels.generic import widen_signed, widen_unsigned
from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel, as_it_is
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, HALF, WORD, call, constant, vector
from dmlcpu.runtime.isa import Isa


def add_bytes(builder: Any, lhs: Any, rhs: Any) -> Any:
    """Emit the sums of pairs of products of bytes, unsigned by signed, which saturate at 16 bits (vpmaddubsw)."""
    count = lhs.type.count
    operands = [builder.bitcast(words, vector(BYTE, 4 * count)) for words in (lhs, rhs)]
    return call(builder, "llvm.x86.avx2.pmadd.ub.sw", vector(HALF, 2 * count), operands)


def add_halves(builder: Any, lhs: Any, rhs: Any) -> Any:
    """Emit the sums of pairs of products of 16 bits (vpmaddwd).

    It is called by its name: LLVM would move the widening of a pattern out of a loop, and narrow again within it.
    """
    return call(builder, "llvm.x86.avx2.pmadd.wd", vector(WORD, lhs.type.count // 2), [lhs, rhs])


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
    """Multiply and add in one instruction, unsigned bytes by signed ones."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * acc.type.count}"  # LLVM's name for both encodings, EVEX and VEX
    return call(builder, name, acc.type, [acc, *lhs, *rhs])


# Products in a cycle, of 32 possible (Zen 4): AVX2 31, AVX2_INT16 24, AVX2_WIDENING 21. LLVM compiles larger blocks, or
# int16 in blocks of another shape, with spills. gemm/forms.py says when each is taken.
AVX2 = Microkernel(Isa.AVX2, as_it_is, as_it_is, _multiply_bytes, registers=16, lanes=8, vectors=2, rows=4)
AVX2_INT16 = Microkernel(Isa.AVX2, as_it_is, as_it_is, _multiply_int16, registers=16, lanes=8, vectors=1, rows=12)
AVX2_WIDENING = Microkernel(
    Isa.AVX2, widen_unsigned, widen_signed, _multiply_widened, registers=16, lanes=8, vectors=2, rows=4
)
AVXVNNI = Microkernel(Isa.AVXVNNI, as_it_is, as_it_is, _vpdpbusd, registers=16, lanes=8, vectors=2, rows=6)
AVX512VNNI = Microkernel(Isa.AVX512VNNI, as_it_is, as_it_is, _vpdpbusd, registers=32, lanes=16, vectors=2, rows=12)
