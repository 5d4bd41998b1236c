"""dynamic_quantize_matmul: floats quantized by their own range, times a quantized matrix."""
