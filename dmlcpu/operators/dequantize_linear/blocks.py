"""dequantize_linear on an array that is read, and a result that is written, a block at a time."""

from functools import partial

from dmlcpu.operators.dequantize_linear.function import check, dequantize_linear
from dmlcpu.quantizers.blocks import SOURCES as SOURCES, estimate as estimate_of, run as run_of

estimate = partial(estimate_of, dequantize_linear, check)
run = partial(run_of, dequantize_linear, check)
