"""Selection: the k best scores of each row of a product of bytes, which are never written."""
