"""TOP_K1: the k largest or smallest elements of each sequence, with their positions."""
