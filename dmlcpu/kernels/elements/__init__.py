"""SCATTER_ELEMENTS and GATHER_ELEMENTS: each index replaces one coordinate of its position."""
