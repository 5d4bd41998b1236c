"""MATRIX_MULTIPLY_INTEGER_TO_FLOAT: products of 8-bit matrices, scaled to floating point."""
