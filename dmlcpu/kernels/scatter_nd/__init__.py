"""SCATTER_ND: the output is copied from the input, and updated at the offsets that index tuples give."""
