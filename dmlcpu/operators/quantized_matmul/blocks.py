"""quantized_matmul on matrices that are read, and a result that is written, a block at a time."""

from functools import partial

from dmlcpu.operators.quantized_matmul.function import check, quantized_matmul
from dmlcpu.products.blocks import SOURCES as SOURCES, estimate as estimate_of, run as run_of

estimate = partial(estimate_of, quantized_matmul, check)
run = partial(run_of, quantized_matmul, check)
