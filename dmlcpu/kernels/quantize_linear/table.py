"""The kernels of the quantizers."""

from dmlcpu.kernels.registry import Row

KERNELS = (
    Row.of("quantize_linear", "quantize", "quantize_linear.quantize.quantize"),
    Row.of("dequantize_linear", "dequantize", "quantize_linear.dequantize.dequantize"),
    Row.of("dynamic_quantize_linear", "range", "quantize_linear.dynamic_range.find_range"),
    Row.of("dynamic_quantize_linear", "settle", "quantize_linear.dynamic_range.settle"),
    Row.of("dynamic_quantize_linear", "rows", "quantize_linear.dynamic_range.settle_rows"),
    Row.of("dynamic_quantize_linear", "quantize", "quantize_linear.quantize.quantize"),
)
