"""quantize_linear on an array that is read, and a result that is written, a block at a time."""

from functools import partial

from dmlcpu.operators.quantize_linear.function import check, quantize_linear
from dmlcpu.quantizers.blocks import SOURCES as SOURCES, estimate as estimate_of, run as run_of

estimate = partial(estimate_of, quantize_linear, check)
run = partial(run_of, quantize_linear, check)
