"""The kernels of the quantizers."""

from dmlcpu.kernels.registry import Row
from dmlcpu.runtime.isa import Isa

KERNELS = (
    Row("quantize_linear", "quantize", "quantize", Isa.GENERIC, "quantize_linear.quantize"),
    Row("dequantize_linear", "dequantize", "dequantize", Isa.GENERIC, "quantize_linear.dequantize"),
    Row("dynamic_quantize_linear", "range", "find_range", Isa.GENERIC, "quantize_linear.dynamic_range"),
    Row("dynamic_quantize_linear", "settle", "settle", Isa.GENERIC, "quantize_linear.dynamic_range"),
    Row("dynamic_quantize_linear", "quantize", "quantize", Isa.GENERIC, "quantize_linear.quantize"),
)
