"""The kernels that measure the machine. Those that multiply do so by the instruction of the products' kernels."""

from dmlcpu.kernels.registry import Row
from dmlcpu.runtime.isa import Isa

KERNELS = (
    Row("measure", "read", "read", Isa.GENERIC, "measure.memory"),
    Row("measure", "copy", "copy", Isa.GENERIC, "measure.memory"),
    Row("measure", "multiply", "multiply_generic", Isa.GENERIC, "measure.generic"),
    Row("measure", "multiply", "multiply_avx2", Isa.AVX2, "measure.x86"),
    Row("measure", "multiply", "multiply_avxvnni", Isa.AVXVNNI, "measure.x86"),
    Row("measure", "multiply", "multiply_avx512vnni", Isa.AVX512VNNI, "measure.x86"),
    Row("measure", "multiply", "multiply_amx", Isa.AMX, "measure.amx"),
    Row("measure", "multiply", "multiply_dotprod", Isa.DOTPROD, "measure.arm64"),
    Row("measure", "multiply", "multiply_i8mm", Isa.I8MM, "measure.arm64"),
)
