"""SCATTER_ELEMENTS: a copy of an array in which each update has an index along one axis."""
