"""ONNX: whole models, in ONNX Runtime or on these kernels, and operators for ONNX's reference evaluator."""

from dmlcpu.common.imports import install_command

try:
    import onnx.reference  # noqa: F401
except ImportError as error:
    raise ImportError(f"dmlcpu.interop.onnx needs the package onnx: {install_command('onnx')}") from error

from dmlcpu.interop.onnx import ops
from dmlcpu.interop.onnx.backend import Backend, BackendRep, Tensor
from dmlcpu.interop.onnx.session import InferenceSession

__all__ = [
    "OPS",
    "Backend",
    "BackendRep",
    "InferenceSession",
    "Tensor",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

OPS = ops.OPS  # assigned, not imported, so that Sphinx finds the next line
"""Operators for ONNX's reference evaluator: ``onnx.reference.ReferenceEvaluator(model, new_ops=OPS)``."""

# ONNX wants a backend's module to have these, too.
is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device


def __dir__() -> list[str]:
    return __all__
