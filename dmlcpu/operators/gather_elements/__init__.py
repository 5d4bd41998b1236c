"""GATHER_ELEMENTS: elements of an array, each with an index along one axis."""
