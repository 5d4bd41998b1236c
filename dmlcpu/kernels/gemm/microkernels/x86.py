"""The microkernels of the vector units of x86-64."""

from typing import Any

from llvmlite import ir

from dmlcpu.kernels.gemm.microkernels.generic import multiply_widened, widen_signed, widen_unsigned
from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel, as_it_is
from dmlcpu.runtime.isa import Isa


def _vpdpbusd(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
    """Multiply and add in one instruction, unsigned bytes by signed ones."""
    kind = acc.type
    name = f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}"  # LLVM's name for both encodings, EVEX and VEX
    function = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind] * 3))
    return builder.call(function, [acc, *lhs, *rhs])


AVX2 = Microkernel(Isa.AVX2, widen_unsigned, widen_signed, multiply_widened, registers=16, lanes=8, vectors=2, rows=4)
AVXVNNI = Microkernel(Isa.AVXVNNI, as_it_is, as_it_is, _vpdpbusd, registers=16, lanes=8, vectors=2, rows=6)
AVX512VNNI = Microkernel(Isa.AVX512VNNI, as_it_is, as_it_is, _vpdpbusd, registers=32, lanes=16, vectors=2, rows=12)
