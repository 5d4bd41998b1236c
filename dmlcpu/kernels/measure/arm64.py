"""Products of bytes by the vector units of ARM processors."""

from dmlcpu.kernels.gemm.microkernels.arm64 import DOTPROD, I8MM
from dmlcpu.kernels.measure.multiply import make_multiply

multiply_dotprod = make_multiply(DOTPROD)
multiply_i8mm = make_multiply(I8MM)
