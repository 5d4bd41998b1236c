"""Operators in which ONNX's reference evaluator errs, or is too slow for a whole model."""

import math
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_batch_normalization import BatchNormalization_14 as _ReferenceBatchNormalization
from onnx.reference.ops.op_erf import Erf as _ReferenceErf

from dmlcpu.common.arguments import Array, as_axis
from dmlcpu.errors import BindingError, UnsupportedError
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.jit import compile_kernel


class Erf(_ReferenceErf):  # type: ignore[misc]
    """ONNX Erf, versions 9 and 13, of float32 and float16.

    The evaluator calls Python's once an element, which takes most of a transformer.
    """

    def _run(self, x: Array) -> tuple[Array]:
        if x.dtype in (np.float32, np.float16):
            return (erf(x),)
        return super()._run(x)  # type: ignore[no-any-return]


def _replace_by_erf(x):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        x[i] = math.erf(np.float64(x[i]))


_to_erf: Any = compile_kernel(_replace_by_erf) if can_compile() else _replace_by_erf


def erf(x: Array) -> Array:
    """Return the error function of float32 or float16, within one unit in the last place."""
    y = x.astype(np.float32, order="C")
    _to_erf(y.reshape(-1))
    return y.astype(x.dtype, copy=False)


class BatchNormalization(_ReferenceBatchNormalization):  # type: ignore[misc]
    """ONNX BatchNormalization, versions 1 to 15. The evaluator takes the batch's own statistics in versions 9 to 13."""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
        super().__init__(onnx_node, run_params, schema)
        self.version = run_params["opsets"][""]
        # Before version 14 further outputs ask for training, and before version 7 a missing is_test does.
        trains = len(onnx_node.output) > 1 or (self.version < 7 and not getattr(self, "is_test", 0))
        if self.version < 14 and (trains or not getattr(self, "spatial", 1)):
            found = f"training, or spatial is 0, in version {self.version} (node {onnx_node.name!r})"
            raise UnsupportedError("BatchNormalization", "attributes", found, "inference by channels")

    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float = 1e-5, **others: Any
    ) -> tuple[Array, ...]:
        if self.version >= 14 and others.get("training_mode"):
            return super()._run(x, scale, bias, mean, var, epsilon, **others)  # type: ignore[no-any-return]
        shape = (-1, *[1] * (x.ndim - 2))
        scale, bias, mean, var = (each.reshape(shape) for each in (scale, bias, mean, var))
        y = scale * (x - mean) / np.sqrt(var + epsilon) + bias
        return (y.astype(x.dtype),)


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """ONNX GlobalMaxPool, version 1. The evaluator's shape is right for four dimensions alone."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GatherElements(OpRun):  # type: ignore[misc]
    """ONNX GatherElements, versions 11 and 13. The evaluator takes at most 64 elements along the axis."""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        axis = as_axis("GatherElements", "axis", axis, "data", data.ndim)
        if indices.ndim != data.ndim:
            raise BindingError("GatherElements", "indices.ndim", str(indices.ndim), f"{data.ndim}, as data has")
        # The other dimensions of indices may be smaller than those of data.
        part = data[tuple(slice(None if each == axis else size) for each, size in enumerate(indices.shape))]
        return (np.take_along_axis(part, indices, axis),)


class STFT(OpRun):  # type: ignore[misc]
    """ONNX STFT, version 17, of all frames at once; the evaluator cuts and joins them one by one."""

    def _run(
        self, signal: Array, step: Array, window: Array | None = None, length: Array | None = None, onesided: int = 1
    ) -> tuple[Array]:
        signal = signal[..., None] if signal.ndim == 2 else signal  # PyTorch exports real signals so
        samples = signal.shape[1]
        default = samples if window is None else window.size
        size, hop = default if length is None else length.item(), step.item()
        if not 1 <= size <= samples:
            raise BindingError("STFT", "frame_length", str(size), f"1 to {samples}, the length of signal")
        if hop < 1:
            raise BindingError("STFT", "frame_step", str(hop), "1 or more")
        if window is not None and window.shape != (size,):
            raise BindingError("STFT", "window.shape", str(window.shape), f"({size},)")
        is_real = signal.shape[2] == 1
        values = signal[..., 0] if is_real else signal[..., 0] + 1j * signal[..., 1]
        frames = sliding_window_view(values, size, axis=1)[:, ::hop]
        frames = frames if window is None else frames * window
        bins = size // 2 + 1 if onesided else size
        spectra = np.fft.rfft(frames) if is_real and onesided else np.fft.fft(frames)[..., :bins]
        return (np.stack([spectra.real, spectra.imag], axis=-1).astype(signal.dtype, copy=False),)


REPAIRS: list[type[OpRun]] = [Erf, BatchNormalization, GlobalMaxPool, STFT]
