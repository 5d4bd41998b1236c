"""Kernels that measure the machine: how fast it reads, copies and multiplies."""
