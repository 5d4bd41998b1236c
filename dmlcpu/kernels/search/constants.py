"""Numbers that the kernels of search and their callers agree on; nothing here needs Numba."""

PRODUCT, DISTANCE, COSINE = range(3)  # metrics
PRODUCTS, ROUNDED_PRODUCTS, DISTANCES = range(3)  # terms: products of float32, or of float64; squared differences

# The facts of an encoded row: the lengths of w, of w / scale - codes, and of the codes; the term that does not depend
# on the query, m (x - m) or |x - m|**2; and for cosines the sum of the squares of x.
LENGTH, RESIDUAL, CODE_LENGTH, TERM, SQUARE = range(5)
FACTS = 5
GREATEST = 2.0**500  # in absolute value: sums of squares of differences are finite float64
FAR = 2.0**40  # longer rows have no codes: float32 would not hold their products

# The error of sums of up to 16,384 terms in float64, relative to the terms and absolute: docs/exact_search.rst.
SUM_ERROR, SUBNORMAL_ERROR = 2.0**-36, 2.0**-1040
