"""SCATTER_ND: resolve index tuples to positions, copy the input, apply the updates."""
