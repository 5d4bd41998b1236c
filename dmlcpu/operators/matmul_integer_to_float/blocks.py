"""matmul_integer_to_float on matrices that are read, and a result that is written, a block at a time."""

from functools import partial

from dmlcpu.operators.matmul_integer_to_float.function import check, matmul_integer_to_float
from dmlcpu.products.blocks import SOURCES as SOURCES, estimate as estimate_of, run as run_of

estimate = partial(estimate_of, matmul_integer_to_float, check)
run = partial(run_of, matmul_integer_to_float, check)
