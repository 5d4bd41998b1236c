"""dequantize_linear."""
