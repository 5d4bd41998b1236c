"""quantized_matmul on matrices that are read, and a result that is written, a block at a time."""

from dmlcpu.operators.quantized_matmul.function import check, quantized_matmul
from dmlcpu.products.blocks import SOURCES as SOURCES, blocks_of

estimate, run = blocks_of(quantized_matmul, check)
