"""What the tests of asv_bench share: its files, and what its calls have to give."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from dmlcpu import reference

ASV_BENCH = Path(__file__).parents[2] / "asv_bench"


def load(name: str) -> ModuleType:
    """Import a file of asv_bench, which is not a package of the distribution."""
    path, environment = list(sys.path), dict(os.environ)
    sys.path.insert(0, str(ASV_BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)


def expected(implementation, case):
    """Return what the reference makes of a case, as a tuple of arrays."""
    inputs = case.inputs()
    if hasattr(case, "axis"):
        return reference.top_k(inputs, case.k, axis=case.axis)
    if type(case).__name__ == "AtCase":
        x, indices, updates = inputs
        for _ in range(3):  # as below
            if case.reduction == "none":
                x[indices] = updates
            else:
                {"add": np.add, "max": np.maximum}[case.reduction].at(x, indices, updates)
        return (x,)
    if type(case).__name__ == "MatmulIntegerCase":
        return (reference.matmul_integer(*inputs),)
    if hasattr(case, "m"):
        return (reference.quantized_matmul(*inputs),)
    x, indices, updates = inputs
    # The first call and the untimed one have been in place, too.
    for _ in range(3 if case.in_place and implementation != "onnxruntime" else 1):
        x = reference.scatter_nd(x, indices, updates, reduction=case.reduction)
    return (x,)


def as_arrays(result):
    """Return a contender's result as a tuple of arrays."""
    results = result if isinstance(result, tuple | list) else (result,)
    return tuple(_as_array(result) for result in results)


def _as_array(result):
    if type(result).__module__ == "torch":
        import torch

        if result.dtype == torch.bfloat16:
            return result.view(torch.uint16).numpy().view("bfloat16")
        return result.numpy()
    return np.asarray(result)


def check(implementation, case, result):
    """Compare a result with the reference: ours to the bit, a peer's so far that it has done the same work."""
    wanted, found = expected(implementation, case), as_arrays(result)
    if implementation in ("numpy", "onnxruntime", "torch", "torch on dmlcpu"):
        # Peers promise neither the order of ties nor the last bit.
        wanted, found = wanted[:1], found[:1]
        tolerance = 1 if type(case).__name__ == "QuantizedMatmulCase" else 1e-6
        np.testing.assert_allclose(found[0].astype(np.float64), wanted[0].astype(np.float64), rtol=0, atol=tolerance)
        assert [array.dtype for array in found] == [array.dtype for array in wanted]
        return
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.astype(ours.dtype).tobytes()
