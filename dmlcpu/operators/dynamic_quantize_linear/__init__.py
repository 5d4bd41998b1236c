"""dynamic_quantize_linear."""
