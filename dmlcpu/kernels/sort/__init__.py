"""Kernels of sort, argsort and sort_with_indices."""
