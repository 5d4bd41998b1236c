"""The kernels that measure the machine. Those that multiply use the instructions of the products' kernels."""

from dmlcpu.kernels.gemm.table import TARGETS, TILES
from dmlcpu.kernels.registry import Made, Row
from dmlcpu.runtime.isa import Isa

KERNELS = (
    Row.of("measure", "read", "measure.memory.read"),
    Row.of("measure", "copy", "measure.memory.copy"),
    Row.of("measure", "multiply", "measure.multiply.multiply_amx", Isa.AMX),
    *[
        Made("measure", "multiply", f"multiply_{unit.name}", unit.isa, "measure.multiply.make_multiply", (microkernel,))
        for unit, nest, _, microkernel, _ in TARGETS
        if nest != TILES
    ],
)
