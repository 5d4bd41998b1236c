"""matmul_integer on matrices that are read, and a result that is written, a block at a time."""

from functools import partial

from dmlcpu.operators.matmul_integer.function import check, matmul_integer
from dmlcpu.products.blocks import SOURCES as SOURCES, estimate as estimate_of, run as run_of

estimate = partial(estimate_of, matmul_integer, check)
run = partial(run_of, matmul_integer, check)
