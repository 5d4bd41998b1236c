"""Shared by quantize_linear, dequantize_linear and dynamic_quantize_linear."""
