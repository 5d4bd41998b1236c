"""matmul_integer on matrices that are read, and a result that is written, a block at a time."""

from dmlcpu.operators.matmul_integer.function import check, matmul_integer
from dmlcpu.products.blocks import SOURCES as SOURCES, blocks_of

estimate, run = blocks_of(matmul_integer, check)
