"""SCATTER_ND: index tuples become offsets in the output, which is copied from the input and updated there."""
