"""quantize_linear."""
