"""QUANTIZED_LINEAR_MATRIX_MULTIPLY: products of 8-bit matrices, quantized again."""
