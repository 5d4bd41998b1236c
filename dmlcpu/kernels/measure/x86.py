"""Products of bytes by the vector units of x86-64."""

from dmlcpu.kernels.gemm.microkernels.x86 import AVX2, AVX512VNNI, AVXVNNI
from dmlcpu.kernels.measure.multiply import make_multiply

multiply_avx2 = make_multiply(AVX2)
multiply_avxvnni = make_multiply(AVXVNNI)
multiply_avx512vnni = make_multiply(AVX512VNNI)
