"""MATRIX_MULTIPLY_INTEGER: products of 8-bit matrices as integer sums."""
