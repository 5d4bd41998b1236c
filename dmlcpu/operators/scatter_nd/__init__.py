"""SCATTER_ND: a copy of an array in which index tuples say what is overwritten or reduced into."""
