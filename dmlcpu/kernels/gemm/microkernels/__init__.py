"""Microkernels: the innermost loops of products, written as LLVM operations; a file for each family of processors."""
