"""The product of 8-bit matrices and the k best scores of each row, in one pass."""
