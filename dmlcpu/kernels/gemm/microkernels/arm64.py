"""The microkernels of ARM's vector units: dot products of bytes in 128 bits."""

from typing import Any

from dmlcpu.kernels.gemm.microkernels import units
from dmlcpu.kernels.gemm.microkernels.microkernel import Microkernel, as_it_is
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, call, constant, vector

_HIGH_BITS = 0x80808080


def _as_signed(builder: Any, words: Any) -> tuple[Any, ...]:
    """Subtract 128 from unsigned bytes, which makes them signed."""
    return (builder.xor(words, constant(words.type, _HIGH_BITS)),)


def _make_dot_product(instruction: str) -> Any:
    """Return a `multiply` of one instruction, sdot or usdot."""

    def multiply(builder: Any, acc: Any, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> Any:
        lane_bytes = vector(BYTE, 4 * acc.type.count)
        name = f"llvm.aarch64.neon.{instruction}.v4i32.v16i8"
        operands = [builder.bitcast(words, lane_bytes) for words in (*lhs, *rhs)]
        return call(builder, name, acc.type, [acc, *operands])

    return multiply


_SDOT, _USDOT = _make_dot_product("sdot"), _make_dot_product("usdot")
# sdot takes signed bytes on both sides.
DOTPROD = Microkernel(units.DOTPROD, _as_signed, as_it_is, _SDOT, lhs_offset=128)
I8MM = Microkernel(units.I8MM, as_it_is, as_it_is, _USDOT)
