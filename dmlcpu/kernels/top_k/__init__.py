"""TOP_K1: map elements to unsigned keys, select the k greatest of each sequence, write values and indices."""
