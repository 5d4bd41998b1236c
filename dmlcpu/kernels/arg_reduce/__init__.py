"""Kernels of argmax and argmin."""
