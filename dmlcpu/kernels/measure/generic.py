"""Products of bytes as any processor computes them."""

from dmlcpu.kernels.gemm.microkernels.generic import GENERIC
from dmlcpu.kernels.measure.multiply import make_multiply

multiply_generic = make_multiply(GENERIC)
