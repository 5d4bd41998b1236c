"""Selection: the k best scores of each row of a product. The kernels are products whose epilogue writes no score."""
