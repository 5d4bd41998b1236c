"""Kernels of search: rows of numbers become bytes, and sums of pairs of rows."""
