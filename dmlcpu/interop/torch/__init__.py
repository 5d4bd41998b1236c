"""PyTorch: its operators on dmlcpu's kernels (`enable`), and custom operators (``torch.ops.dmlcpu``)."""

from dmlcpu.common.imports import install_command

try:
    import torch as _torch
except ImportError as error:
    raise ImportError(f"dmlcpu.interop.torch needs the package torch: {install_command('torch')}") from error
if not hasattr(_torch.library, "get_kernel"):
    raise ImportError(f"dmlcpu.interop.torch needs torch 2.9 or newer; this is {_torch.__version__}")

from dmlcpu.interop.torch import custom_ops as custom_ops  # registers torch.ops.dmlcpu
from dmlcpu.interop.torch.switches import accelerated, disable, enable, report

__all__ = ["accelerated", "disable", "enable", "report"]


def __dir__() -> list[str]:
    return __all__
