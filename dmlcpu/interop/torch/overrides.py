"""The operators of PyTorch that are taken over."""

from dmlcpu.interop.torch.override import Override
from dmlcpu.interop.torch.products import INT_MM
from dmlcpu.interop.torch.scatter import SCATTER
from dmlcpu.interop.torch.topk import TOPK

OVERRIDES: tuple[Override, ...] = (TOPK, INT_MM, *SCATTER)
