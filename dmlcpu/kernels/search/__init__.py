"""Kernels of search: rows of numbers become codes, candidates or all vectors are scored, and sums of pairs of rows."""
