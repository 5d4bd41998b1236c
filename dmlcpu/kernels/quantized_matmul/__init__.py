"""QUANTIZED_LINEAR_MATRIX_MULTIPLY: pack A and B, form exact integer products, requantize."""
